"""The sentences about runs: what was found, what the numbers mean and what they do not."""

from collections.abc import Sequence

from varsmooth.certificates import ABSTAIN
from varsmooth.report.outcomes import Envelope, Outcomes, shared_images
from varsmooth.report.statistics import average_certified_radius, false_certificates, reach
from varsmooth.rounding import percent, rounded
from varsmooth.runs.records import Row, Run

MEANINGS = {
    "sound": "sound: within the radius no attack on the image changes the smoothed classifier's "
    "class, whatever it does to the noise level. A deployed prediction is itself a vote, and errs "
    "with its own α.",
    "conditional": "conditional: within the radius no attack changes the class as long as it "
    "leaves the selector's choice of σ alone; an attack that moves σ is not covered.",
    "heuristic": "heuristic: a value computed from a few noise levels only; it can be false, and "
    "no probability bounds how often.",
}

INTERVALS = (
    "Brackets and bands are 95 % intervals over images, as if these were drawn at random from all "
    "images of their kind: exact (Clopper–Pearson) for shares, each radius for itself; Student's "
    "for the average certified radius."
)
PAIRED = (
    "Differences are paired by image: Bonett–Price intervals for shares, Student's for the "
    "average certified radius."
)
TESTED = "p is McNemar's exact test of the disagreements."


def what_holds(runs: Sequence[Outcomes]) -> list[str]:
    """What the words of a report mean, and what α per image says about each run's table."""
    if runs[0].verb == "certify":
        said = [MEANINGS[word] for word in MEANINGS if word in {run.guarantee for run in runs}]
        alike: dict[tuple[str | None, float | None, int], list[str]] = {}
        for run in runs:
            alike.setdefault((run.guarantee, run.alpha, len(run)), []).append(run.name)
        return said + [f"{'; '.join(names)}: {_whole_table(*key)}" for key, names in alike.items()]
    if runs[0].verb == "attack":
        return [
            "An attack that fails proves nothing: accuracy under attack is an upper bound of what "
            "a better attack would leave. An image counts as right under attack only if it is also "
            "right without one; an abstention counts as wrong."
        ]
    return ["Predictions carry no radius. An abstention counts as wrong."]


def _whole_table(guarantee: str | None, alpha: float | None, n: int) -> str:
    if guarantee == "heuristic":
        return "α holds for no image of a heuristic run, so nothing for the table."
    if alpha is None:
        return "α is not recorded, so nothing can be said about the whole table."
    total = false_certificates(alpha, n)
    union = max(0.0, 1 - total.expected)
    provided = " if σ is not attacked" if guarantee == "conditional" else ""
    return (
        f"α = {alpha:g} is per image: each radius is too large with probability at most "
        f"α{provided}. Of {n} radii at most α·n = {total.expected:g} are too large on average; "
        f"with 95 % probability at most {total.at_most}, and then certified accuracy is at least "
        f"the shown one less {percent(total.at_most, n, up=True)} points, at every radius at once. "
        f"All {n} are true with probability at least {rounded(total.all_true)} (by the union bound "
        f"alone: {rounded(union)})."
    )


def cautions(runs: Sequence[Outcomes], envelopes: Sequence[Envelope]) -> list[str]:
    """What a reader must know before comparing."""
    said = [
        f"{run.name}: not finished, {run.images} of {run.expected} images."
        for run in [*runs, *(run for best in envelopes for run in best.runs)]
        if run.images < run.expected
    ]
    said += [
        f"Envelope of {best.label}: the best of {len(best.runs)} runs at each radius, chosen "
        "with hindsight: no single classifier attains it, and it has no interval."
        for best in envelopes
    ]
    for run in runs[1:]:
        pair = shared_images(run, runs[0])
        if pair is None:
            said.append(f"{run.name}: shares no image with {runs[0].name}, so compare with care.")
        elif pair[0].images < max(run.images, runs[0].images):
            said.append(
                f"{run.name}: shares {pair[0].images} images with {runs[0].name}; differences are "
                "on these alone."
            )
    return list(dict.fromkeys(said))


def result(run: Run) -> list[str]:
    """What a run found, as a terminal shows it; its images may have no labels."""
    rows = run.rows()
    if rows and "violated" in rows[0]:
        return [_searched(run, rows)]
    images, size = len({row["id"] for row in rows}), run.header["dataset"]["size"]
    counted = f"{images} of {size} images in {run.folder}"
    if run.header["verb"] == "attack":
        budgets = sorted({row["eps"] for row in rows})
        return [counted, *(_attacked([r for r in rows if r["eps"] == eps]) for eps in budgets)]
    found = _right(rows, "prediction")
    labelled = [row for row in rows if row["label"] is not None]
    if run.header["verb"] == "certify" and labelled:
        columns = ([row[key] for row in labelled] for key in ("prediction", "label", "radius"))
        mean = rounded(average_certified_radius(reach(*columns)))
        found = f"certified accuracy {found}, average certified radius {mean} (0 where wrong)"
    elif labelled:
        found = f"accuracy {found}"
    abstained = sum(row["prediction"] == ABSTAIN for row in rows)
    return [f"{counted}: {found}, {percent(abstained, max(len(rows), 1))} % abstained"]


def _attacked(rows: Sequence[Row]) -> str:
    """An image that was wrong before counts as wrong after: the attacker may do nothing."""
    after = [
        row if row["clean_prediction"] == row["label"] else row | {"prediction": None}
        for row in rows
    ]
    changed = sum(row["prediction"] != row["clean_prediction"] for row in rows)
    return (
        f"eps {rows[0]['eps']:g}: clean accuracy {_right(rows, 'clean_prediction')}, attacked "
        f"{_right(after, 'prediction')}, {percent(changed, len(rows))} % of the answers changed"
    )


def _searched(run: Run, rows: Sequence[Row]) -> str:
    kinds: dict[str, list[bool]] = {}
    for row in rows:
        kinds.setdefault(row["guarantee"], []).append(row["violated"])
    counts = [f"{sum(kinds[k])} of {len(kinds[k])} {k} ones false" for k in sorted(kinds)]
    return f"certificates searched in {run.folder}: {', '.join(counts)}"


def _right(rows: Sequence[Row], column: str) -> str:
    labelled = [row for row in rows if row["label"] is not None]
    right = sum(row[column] == row["label"] for row in labelled)
    return f"{percent(right, len(labelled))} %" if labelled else "unlabelled"
