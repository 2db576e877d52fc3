"""`varsmooth demo`: one released model on embedded images, through every verb, in two minutes."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from varsmooth.cli.feedback import announce, conclude, resolve_images
from varsmooth.data.source import Source
from varsmooth.defaults import MODEL
from varsmooth.errors import check, nearest
from varsmooth.evaluation import options
from varsmooth.models.cards import aligned
from varsmooth.models.descriptions import CONFIG, Description, describe, released_names
from varsmooth.models.names import is_external
from varsmooth.rounding import counted, rounded
from varsmooth.types import Count

if TYPE_CHECKING:
    from varsmooth.evaluation.report import Outcomes

EPS, LAM = 0.5, 0.4
"""The budget of the attack, and λ of the second cascade: in between."""


def demo(
    *,
    model: str = MODEL,
    out: Path = Path("varsmooth-demo"),
    images: Count = 60,
    trust: list[str] | None = None,
) -> None:
    """Predict, certify and attack a few embedded images with a released model.

    Takes about two minutes on two cores and downloads nothing. Rerun the same command to resume.

    examples:
      varsmooth demo
      varsmooth demo --images 100 --out my-demo

    Args:
        model: a released name or a model folder
        out: the folder for runs and report
        images: how many images of the embedded CIFAR-10 sample
    """
    where, names = str(out), released_names()
    if find_spec("matplotlib") is None:
        where += "; the report has no figures, which need pip install matplotlib"
    check(
        is_external(model) or (Path(model).expanduser() / CONFIG).is_file() or model in names,
        f"{model} is neither a released model nor the folder of one{nearest(model, names)}",
    )
    resolve_images(model, Source())
    announce(f"predict, certify and attack {counted(images, 'image')} with {model}", out=where)
    from varsmooth.evaluation.attack import attack_dataset
    from varsmooth.evaluation.certify import certify_dataset
    from varsmooth.evaluation.predict import predict_dataset
    from varsmooth.evaluation.report import open_runs, write_report
    from varsmooth.evaluation.report.summary_text import verdict

    about = describe(model)
    check(
        about.selector is None or about.recommended.get("levels") is not None,
        f"{model} has no grid of levels; choose one with: varsmooth tune {model}",
    )
    data = options.DataOptions(data="cifar10-sample", subset=f":{images}")
    base = options.ModelOptions(model, trust=trust)
    run = options.RunOptions(out / "predict")
    predicted = predict_dataset(base, data, options.PredictOptions(seed=0), run)
    certified = [
        certify_dataset(smoothed, data, certify_options, options.RunOptions(out / name, title))
        for name, title, smoothed, certify_options in _ways(base, about, out / "votes")
    ]
    attack = options.AttackOptions(eps=EPS, steps=10, samples=8, n=200)
    few, run = replace(data, subset=f":{min(images, 6)}"), options.RunOptions(out / "attack")
    attacked = attack_dataset(base, few, attack, run)
    runs = open_runs([run.folder for run in [*certified, attacked, predicted]])
    page = write_report(runs, out / "report")
    other = "--lam 0.2" if about.cascades else "--sigma 0.5"
    conclude(
        [
            *aligned([HEAD, *(line for run in runs for line in _lines(run))]),
            "average radius: over all images, 0 where wrong or abstaining; votes: of f, per image",
            "predict: the deployed vote, which abstains where it is not significant\n",
            *_gain(runs),
            *verdict(runs),
            f"report: {page}",
        ],
        f"varsmooth certify --model {model} {other} --subset :100 --out runs/turned",
        f"varsmooth attack --against {certified[0].folder} --out runs/search",
        "varsmooth app",
        "varsmooth data fetch cifar10",
    )


def _ways(
    model: options.ModelOptions, about: Description, votes: Path
) -> Iterator[tuple[str, str, options.ModelOptions, options.CertifyOptions]]:
    """The cascade at two λ, fixed levels, and the paper's selector: sound, and by three levels.

    They share their votes, so that each way after the first costs little.
    """
    certify_options = options.CertifyOptions(vote_cache=votes)
    fixed = {"fixed": about.single.levels[0] if about.single else about.sigma_of_selector}
    if about.cascades:
        yield "cascade", "cascade, λ = 1", model, certify_options
        yield "turned", f"cascade, λ = {LAM:g}", replace(model, lam=LAM), certify_options
        fixed["smallest"] = min(level for stages in about.cascades for level in stages.levels)
    for name, level in fixed.items():
        yield name, f"fixed σ = {level:g}", replace(model, sigma=level), certify_options
    if about.selector is not None:
        paper = replace(certify_options, method="paper", distance=0.25)
        median = replace(model, selector="median")
        yield "sound", "g_v*, sound", median, certify_options
        yield "paper", "g_v*, three levels at D = 0.25", median, paper


def _gain(runs: Sequence["Outcomes"]) -> list[str]:
    """What a σ per image gives: the cascade and the single σ that are right most often, compared.

    Of equals the one with the larger average radius; nothing if either is missing.
    """

    def best(kind: str) -> "Outcomes | None":
        alike = [
            run
            for run in runs
            if run.verb == "certify" and run.header["selector"].get("selector") == kind
        ]
        return max(alike, key=lambda run: (run.correct.sum(), run.average_radius), default=None)

    cascade, single = best("cascade"), best("fixed")
    if cascade is None or single is None or single.average_radius == 0:
        return []
    right, more = int(cascade.correct.sum()), int(cascade.correct.sum() - single.correct.sum())
    than = f"{abs(more)} {'more' if more > 0 else 'fewer'} than" if more else "as many as"
    ratio = rounded(cascade.average_radius / single.average_radius, 1)
    return [
        f"{cascade.name}: {right} of {len(cascade)} right, {than} with {single.name}, and "
        f"{ratio} times its average radius"
    ]


HEAD = ("what", "guarantee", "images", "right", "radius ≥ 0.25", "average radius", "votes")


def _lines(run: "Outcomes") -> list[tuple[str, ...]]:
    """One line of the table, or two for an attack."""
    right, n = str(run.correct.sum()), str(len(run))
    if run.verb == "attack":
        before = ("before the attack", "", n, str(run.clean_correct.sum()), "", "", "")
        return [before, (f"attacked, ℓ2 budget {EPS:g}", "", n, right, "", "", "")]
    votes = f"{run.samples.mean():.0f}"
    if run.verb == "predict":
        return [(run.name, "", n, right, "", "", votes)]
    far, mean = str((run.reach >= 0.25).sum()), rounded(run.average_radius)
    return [(run.name, str(run.guarantee), n, right, far, mean, votes)]
