"""Text about runs: the results, what the numbers mean, and what they do not."""

import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, get_args

import numpy as np

from varsmooth.defaults import ABSTAIN, ALPHA_SELECT, Guarantee
from varsmooth.errors import VarsmoothError
from varsmooth.evaluation.headers import SEEN
from varsmooth.evaluation.records import Row, Run
from varsmooth.evaluation.report.outcomes import (
    Envelope,
    Flags,
    Outcomes,
    class_name,
    shared_images,
)
from varsmooth.evaluation.report.statistics import (
    ErrorProbability,
    PairedDifference,
    Share,
    false_certificates,
)
from varsmooth.evaluation.report.summaries import (
    baseline_of,
    baselines_of,
    decided_radii,
    radius_difference,
    round_radii,
)
from varsmooth.evaluation.report.tables import Cell
from varsmooth.evidence import Ledger
from varsmooth.methods import METHODS
from varsmooth.models.descriptions import describe
from varsmooth.models.names import is_external
from varsmooth.models.selection import selector_text
from varsmooth.rounding import percent, rounded

MEANINGS = {
    "sound": "within the radius no attack on the image changes the smoothed classifier's "
    "class, whatever it does to the noise level. A deployed prediction is itself a vote, and errs "
    "with its own α.",
    "conditional": "within the radius no attack changes the class unless it moves the "
    "selector's choice of σ; such attacks are not covered.",
    "heuristic": "a value computed from a few noise levels only; it can be wrong, and no "
    "probability bounds how often.",
}

INTERVALS = (
    "Brackets and bands are 95 % confidence intervals that treat the images as a random sample: "
    "Clopper–Pearson (exact, pointwise) for shares, Student's t for the average certified radius. "
    "Differences are paired by image: Bonett–Price intervals for shares, Student's t for the "
    "average certified radius."
)
P_VALUES = "p is from McNemar's exact test."
ATTACKS = (
    "A failed attack proves nothing: accuracy under attack is an upper bound, and a better attack "
    "may lower it. An image counts as right under attack only if it is also right without "
    "one; an abstention counts as wrong."
)
PREDICTIONS = "Predictions carry no radius. An abstention counts as wrong."

BOUNDS = {"best": "its own votes where that is larger", "cohen": "1 − p_A"}
"""What bounds the runner-up; runs that do not record it, such as imported ones, took 1 − p_A."""

SHOWN = 20  # images without labels that a terminal shows one by one


def subject_of(runs: Sequence[Outcomes]) -> Outcomes:
    """The run that a report is about.

    Certificates come first, a chosen σ before a single one, and then the strongest guarantee.
    """
    order, words = ("certify", "predict", "attack"), (*get_args(Guarantee), None)

    def place(run: Outcomes) -> tuple[int, bool, int]:
        return order.index(run.verb), run.fixed_sigma is not None, words.index(run.guarantee)

    return min(runs, key=place)


def verdict(runs: Sequence[Outcomes], radii: Sequence[float] | None = None) -> list[str]:
    """The conclusion of a report: a headline, what to compare it with, and what an attacker can do.

    Args:
        runs: The runs of the report.
        radii: The radii that matter to the reader; by default those of `--at`.
    """
    subject = subject_of(runs)
    if subject.verb != "certify":
        return attacked([subject]) if subject.verb == "attack" else predicted([subject])
    matter = list(radii or subject.decided_radii)
    lines = [_headline(subject, matter), *_comparison(runs, subject)]
    if subject.alpha is None or subject.guarantee in (None, "heuristic"):
        return lines
    radius = next((r for r in matter if r > 0), None)
    if radius is None:
        radius = float(round_radii([subject])[:2][-1])
    answer = ErrorProbability.of(subject.reach, radius, subject.alpha, str(subject.guarantee))
    return [*lines, str(answer)]


def _headline(subject: Outcomes, radii: Sequence[float]) -> str:
    """Certified accuracy where it matters; a run that stopped there has no average radius."""
    shares = [f"{_share(subject.reach >= r)} at r = {r:g}" for r in radii] or [
        _share(subject.correct)
    ]
    count = len(subject)
    words = f"{subject.name}: {', '.join(shares)} of {count} images certified as their true class"
    if not subject.decided_radii:
        words += f", average certified radius {rounded(subject.average_radius)}"
    return f"{words} ({subject.guarantee})"


def _comparison(runs: Sequence[Outcomes], subject: Outcomes) -> list[str]:
    """What to compare the subject with."""
    certified = [run for run in runs if run.verb == "certify"]
    if subject.fixed_sigma is None:
        return [_against(subject, certified)]
    if len(certified) == 1:
        return []
    pairs = [shared_images(subject, run) for run in certified if run is not subject]
    if any(pair is None for pair in pairs):
        return ["The runs share no images, so their radii cannot be compared."]
    if any(len(pair[0]) < max(map(len, certified)) for pair in pairs if pair):
        return ["The runs are not on the same images; compare with --common true."]
    if decided_radii(certified) is not None:
        return ["A sequential run has no average radius; see certified accuracy at its radii."]
    largest = max(run.average_radius for run in certified)
    best = [run.name for run in certified if np.isclose(run.average_radius, largest)]
    have = "share" if len(best) > 1 else "has"
    return [
        f"Of the {len(certified)} runs, {', '.join(best)} {have} the largest average certified "
        f"radius: {rounded(largest)}, chosen with hindsight."
    ]


def single_text(runs: Sequence[Outcomes], baseline: Outcomes) -> str:
    """What a single-σ baseline may be called: it is the best only if there are several."""
    several = len(baselines_of(runs)) > 1
    return "the best single σ" if several else f"σ = {baseline.fixed_sigma:.3g}"


def _against(subject: Outcomes, certified: Sequence[Outcomes]) -> str:
    baseline = baseline_of(certified)
    if baseline.fixed_sigma is None:
        return (
            "There is no single-σ run, so this report cannot show what choosing σ per image gains; "
            f"make one of the same images with: varsmooth certify --sigma {_single(subject)} …"
        )
    best = f"{single_text(certified, baseline)} ({baseline.name})"
    if (pair := shared_images(subject, baseline)) is None:
        return f"It shares no image with {best}, so the two cannot be compared."
    if (radii := decided_radii(pair)) is not None:
        return _at_radii(pair, best, radii)
    difference = radius_difference(*pair)
    assert difference.interval is not None
    low, high = difference.interval
    gap = f"{difference.text} on the same {len(pair[0])} images"
    mine, theirs = (run.samples.mean() for run in pair)
    if np.isfinite(mine - theirs) and round(mine) != round(theirs):
        gap += f", with {mine:.0f} against {theirs:.0f} samples per image"
    if subject.guarantee != baseline.guarantee:
        return f"Average radius against {best}: {gap}, but its radii are only {subject.guarantee}."
    if low <= 0 <= high:
        return f"No significant difference from {best}: average radius {gap}."
    return f"Its average radius is {'larger' if low > 0 else 'smaller'} than with {best}: {gap}."


def _single(subject: Outcomes) -> str:
    """The best single σ on held-out images, if the model was tuned; else an example."""
    named = subject.header["config"].get("model")
    if named is not None and not is_external(named):
        with suppress(VarsmoothError, OSError):
            if single := describe(named).single:
                return f"{single.levels[0]:.4g}"
    return "0.5"


def _at_radii(pair: tuple[Outcomes, Outcomes], baseline: str, radii: Sequence[float]) -> str:
    """Two runs of which one stopped as soon as its radii were decided."""
    if not radii:
        return f"It and {baseline} decided different radii, so the two cannot be compared."
    one, other = pair
    gaps = [Cell.difference(PairedDifference.of(one.reach >= r, other.reach >= r)) for r in radii]
    shown = ", ".join(f"{gap.text} at r = {r:g}" for gap, r in zip(gaps, radii, strict=True))
    weaker = "" if one.guarantee == other.guarantee else f", but its radii are {one.guarantee}"
    return (
        f"Certified accuracy minus that of {baseline}, in points: {shown}, on the same {len(one)} "
        f"images{weaker}."
    )


def chosen_baseline(runs: Sequence[Outcomes], baseline: Outcomes) -> list[str]:
    """How the best single σ was chosen, if it is the baseline."""
    single = baselines_of(runs)
    if baseline.fixed_sigma is None or not single:
        return []
    others = any(run.fixed_sigma is not None and run not in single for run in runs)
    if len(single) == 1:
        return [f"{baseline.name} is the only single-σ run{' on these images' * others}."]
    choosing = [run for run in runs if run.fixed_sigma is None]
    sequential = decided_radii(single + choosing) is not None
    best = "certified accuracy at the decided radii" if sequential else "average certified radius"
    return [
        f"{baseline.name} has the largest {best} of the {len(single)} single-σ runs"
        f"{' on these images' * others}. It was chosen with hindsight, on the same images."
    ]


def attacked(runs: Sequence[Outcomes]) -> list[str]:
    """Accuracy under each attack at its largest budget."""
    at = [run.select(run.eps == run.budgets()[-1]) for run in runs]
    return [
        f"{_with_sigma(run)}: right on {_share(run.correct)} of {len(run)} images under an attack "
        f"with ℓ₂ budget {run.budgets()[0]:g}, and on {_share(run.clean_correct)} without it"
        for run in at
    ]


def predicted(runs: Sequence[Outcomes]) -> list[str]:
    """How often each run is right."""
    return [
        f"{_with_sigma(run)}: right on {_share(run.correct)} of {len(run)} images; "
        f"abstains on {_share(run.abstained, up=True)}"
        for run in runs
    ]


def _with_sigma(run: Outcomes) -> str:
    """A run, and what chose the σ that was attacked or predicted with."""
    return f"{run.name} (σ {selector_text(run.header['selector'])})"


def what_holds(runs: Sequence[Outcomes]) -> list[str]:
    """What the guarantees mean, and what α per image implies for each run's table."""
    words = {run.guarantee for run in runs}
    lines = [f"{word}: {meaning}" for word, meaning in MEANINGS.items() if word in words]
    alike: dict[tuple[str | None, float | None, int], list[str]] = {}
    for run in runs:
        if run.verb == "certify":
            alike.setdefault((run.guarantee, run.alpha, len(run)), []).append(run.name)
    lines += [f"{'; '.join(names)}: {_whole_table(*key)}" for key, names in alike.items()]
    lines += [ATTACKS] * any(run.verb == "attack" for run in runs)
    return lines + [PREDICTIONS] * any(run.verb == "predict" for run in runs)


def _whole_table(guarantee: str | None, alpha: float | None, n: int) -> str:
    if guarantee == "heuristic":
        return "a heuristic radius has no α, so it implies nothing about the whole table."
    if alpha is None:
        return "α is not recorded, so it implies nothing about the whole table."
    total = false_certificates(alpha, n)
    provided = " if σ is not attacked" if guarantee == "conditional" else ""
    return (
        f"α = {alpha:g} is per image: each radius is too large with probability at most "
        f"α{provided}. Of {n} radii, at most α·n = {total.expected:g} are too large on average "
        f"and, with 95 % probability, at most {total.at_most}; certified accuracy is then at "
        f"least the one shown minus {percent(total.at_most, n, up=True)} points at every radius. "
        f"All {n} radii hold with probability at least {rounded(total.all_true)} (union bound: "
        f"{rounded(max(0.0, 1 - total.expected))})."
    )


def cautions(runs: Sequence[Outcomes], envelopes: Sequence[Envelope]) -> list[str]:
    """Warnings to read before comparing runs."""
    lines = [
        f"{run.name} is not finished: {done} of {run.expected} images{run.unfinished}."
        for run in [*runs, *(run for best in envelopes for run in best.runs)]
        if (done := run.images + run.left_out) < run.expected
    ]
    lines += [
        f"{run.name}: {what.format(seen)} of its {run.expected} images, so its results do not "
        "estimate accuracy on unseen images."
        for run in runs
        for name, what in SEEN.items()
        if isinstance(seen := run.header.get(name), int) and seen > 0
    ]
    lines += [
        f"{run.name} voted only until its listed radii were decided, so its average radius and the "
        "accuracy between those radii are lower bounds."
        for run in runs
        if run.decided_radii
    ]
    lines += _unequal([run for run in runs if run.verb == "certify"])
    lines += [text for one in runs for other in runs if (text := _uncovered(one, other))]
    lines += [
        f"Envelope of {best.label}: the best of {len(best.runs)} runs at each radius, chosen "
        "with hindsight. No single classifier attains it, and it has no interval."
        for best in envelopes
    ]
    for verb in dict.fromkeys(run.verb for run in runs):
        alike = [run for run in runs if run.verb == verb]
        baseline = baseline_of(alike)
        for run in alike:
            pair, other = shared_images(run, baseline), baseline.name
            if pair is None:
                lines.append(f"{run.name} shares no image with {other}: compare with care.")
            elif (n := pair[0].images) < max(run.images, baseline.images):
                lines.append(
                    f"{run.name} shares {n} images with {other}; differences use only these."
                )
    return list(dict.fromkeys(lines))


def _unequal(certified: Sequence[Outcomes]) -> list[str]:
    """Options that make radii larger by themselves and differ between runs."""
    config = {run.name: run.header["config"] for run in certified}
    votes = {name: c.get("n_max") or c.get("n") for name, c in config.items()}
    alphas = {run.name: run.alpha for run in certified}
    bounds = {
        run.name: BOUNDS[run.header["config"].get("bound", "cohen")]
        for run in certified
        if run.guarantee != "heuristic"  # which bounds no runner-up
    }
    means = {run.name: run.samples.mean() for run in certified}  # NaN where not recorded
    samples = {name: f"{mean:.0f}" for name, mean in means.items() if np.isfinite(mean)}
    differing: tuple[tuple[str, str, Mapping[str, Any]], ...] = (
        ("votes", "more votes", votes),
        ("α", "a larger α", alphas),
        ("the bound on the runner-up", "one by its own votes", bounds),
        ("samples per image", "more samples", samples),
    )
    lines = []
    for what, why, values in differing:
        known = {name: str(value) for name, value in values.items() if value is not None}
        if len(set(known.values())) > 1:
            each = ", ".join(f"{name}: {value}" for name, value in known.items())
            lines.append(f"The runs differ in {what} ({each}); {why} alone can make radii larger.")
    return lines


def _uncovered(certified: Outcomes, predicted: Outcomes) -> str:
    """Whether the queries of one run err more often than their α inside the radii of another."""
    evidence = certified.rows[0].get("evidence")
    header, options = predicted.header, predicted.header["config"]
    same = header["fingerprints"] == certified.header["fingerprints"] != {}
    if not (evidence and same and predicted.verb == "predict" and options.get("alpha")):
        return ""
    method, ledger = METHODS[evidence["method"]], Ledger(**evidence["ledger"])
    spent = options.get("alpha_select", ALPHA_SELECT)
    with suppress(KeyError, TypeError, ValueError):  # of a damaged header
        if method.covers(ledger, method.query_ledger(header["selector"], options["alpha"], spent)):
            return ""
    enough = f"--alpha-select {ledger.alpha_deploy:g} and --n-median {ledger.n_deploy} or more"
    return (
        f"Inside the radii of {certified.name} the predictions of {predicted.name} may err more "
        f"often than their α = {options['alpha']:g}: the radii cover "
        + (f"queries with {enough}." if ledger.n_deploy else "no query.")
    )


def result(run: Run, rows: Sequence[Row]) -> list[str]:
    """The result of a run for the terminal; its images may have no labels."""
    verb = run.header["verb"]
    if rows and "violated" in rows[0]:
        kinds = sorted({row["guarantee"] for row in rows})
        violated = {k: [row["violated"] for row in rows if row["guarantee"] == k] for k in kinds}
        counts = [f"{sum(false)} of {len(false)} {k} ones false" for k, false in violated.items()]
        return [f"certificates searched in {run.folder}: {', '.join(counts)}"]
    images, size = len({row["id"] for row in rows}), run.header["dataset"]["size"]
    counted = f"{images} of {size} images in {run.folder}"
    if verb == "attack":
        budgets = sorted({row["eps"] for row in rows})
        return [counted, *(_attack(run, [r for r in rows if r["eps"] == eps]) for eps in budgets)]
    if not rows:
        return [counted]
    abstained = sum(row["prediction"] == ABSTAIN for row in rows)
    abstains = f"{percent(abstained, len(rows), up=True)} % abstained"
    if rows[0]["label"] is None:
        each = [_row_text(run, row) for row in rows] if len(rows) <= SHOWN else []
        return [f"{counted}: unlabelled, {abstains}", *each]
    outcomes = Outcomes.of(run.header, rows)
    if at := outcomes.decided_radii:
        samples = outcomes.samples
        votes = f"mean {samples.mean():,.0f}, median {np.median(samples):,.0f}"
        curve = [
            f"certified accuracy at r = {r:g}: {Cell.share(Share.of(outcomes.reach >= r)).text} %"
            for r in at
        ]
        return [counted, *curve, f"votes per image: {votes}"]
    right = f"accuracy {_share(outcomes.correct)}"
    if verb == "certify":
        mean = rounded(outcomes.average_radius)
        right = (
            f"certified {right}, average certified radius {mean} (misclassified images count as 0)"
        )
    lines = [f"{counted}: {right}, {abstains}"]
    evidence = rows[0].get("evidence")
    share = evidence["ledger"].get("alpha_deploy", 0) if evidence else 0
    if share > ALPHA_SELECT:  # the default of predict
        need = f"--alpha-select {share:g}"
        lines.append(f"inside these radii predict with {need}, or it may err more often")
    return lines


def _row_text(run: Run, row: Row) -> str:
    about = run.header["dataset"]
    image = str(about["name"]) if about["size"] == 1 else row.get("file") or f"image {row['id']}"
    names = run.header.get("class_names") or about.get("class_names", [])
    words = [image, class_name(row["prediction"], names), f"σ {row['sigma']:.3g}"]
    words += [f"radius {rounded(row['radius'])}"] if "radius" in row else []
    return "  ".join(words)


def next_command(run: Run, rows: Sequence[Row]) -> str:
    """What to type after a run: a report needs labels."""
    labelled = all(row["label"] is not None for row in rows)
    folders = [str(folder) for folder in (run.folder, *run.parts)]
    return shlex.join(["varsmooth", "report", *([] if labelled else ["export"]), *folders])


def _attack(run: Run, rows: Sequence[Row]) -> str:
    clean = attacked = "unlabelled"
    if rows[0]["label"] is not None:
        outcomes = Outcomes.of(run.header, rows)
        clean, attacked = _share(outcomes.clean_correct), _share(outcomes.correct)
    changed = sum(row["prediction"] != row["clean_prediction"] for row in rows)
    return (
        f"eps {rows[0]['eps']:g}: clean accuracy {clean}, attacked {attacked}, "
        f"{percent(changed, len(rows))} % of the predictions changed"
    )


def _share(flags: Flags, up: bool = False) -> str:
    return f"{percent(int(flags.sum()), len(flags), up)} %"
