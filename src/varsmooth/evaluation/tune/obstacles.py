"""Why no cascade certifies more than one σ, from the tuning votes."""

import numpy as np

from varsmooth.bounds import average_certified_radius, class_radius
from varsmooth.defaults import ALPHA
from varsmooth.evaluation.tune.cascade import Rule
from varsmooth.evaluation.tune.table import ConfidentVotes
from varsmooth.rounding import rounded

ACCURACY_LOSS = 0.05
"""How much less accurate f may be under less noise than σ before that is the reason."""

RADIUS_GAIN = 1.05
"""Each image at its own best level must gain this factor before levels are worth choosing."""


def why_one_level(best: Rule, table: ConfidentVotes) -> str:
    """One sentence: f fits one level only, the images agree on one, or wrong classes come near."""
    single = best.columns[0]
    sigma, votes = table.levels[single], table.counts[..., 0]  # (N, L, classes), no gate
    right = (votes.argmax(axis=2) == table.labels[:, None]).mean(axis=0)  # (L,)
    quieter = [j for j, level in enumerate(table.levels) if level < sigma]
    quietest = min(quieter, key=lambda j: right[j], default=single)
    if right[quietest] < right[single] - ACCURACY_LOSS:
        return (
            f"no cascade helps because f fits one noise level: the vote is right on "
            f"{right[single]:.0%} of the images at σ = {sigma:g}, but on {right[quietest]:.0%} at "
            f"the smaller {table.levels[quietest]:g}; train it for every level "
            "(train classifier --universal true)"
        )
    rows = np.arange(len(table.labels))
    own = votes[rows, :, table.labels]  # (N, L) votes for the label
    radii = np.maximum(class_radius(own, table.n, np.asarray(table.levels), ALPHA), 0)
    one = average_certified_radius(radii[:, single])
    most = average_certified_radius(radii.max(axis=1))
    if most < RADIUS_GAIN * one:
        return (
            f"no cascade helps because the images agree on σ = {sigma:g}: with each at its own "
            f"best level the average radius would be {rounded(most)} instead of {rounded(one)} "
            "(Cohen's bound)"
        )
    louder = [j for j, level in enumerate(table.levels) if level > sigma]
    where = f" ({right[louder].min():.0%} right at σ = {max(table.levels):g})" if louder else ""
    return (
        f"no cascade helps although each image at its own best level would have {rounded(most)} "
        f"instead of {rounded(one)} (Cohen's bound): at larger σ f misclassifies too many "
        f"images{where} to decide first; a more accurate f or more votes than --n {table.n} may "
        "change that"
    )
