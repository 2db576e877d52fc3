"""`varsmooth demo`: one released model on embedded images, through every verb, in two minutes."""

from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from varsmooth.cli.feedback import announce, conclude
from varsmooth.defaults import MODEL
from varsmooth.errors import require
from varsmooth.runs.options import (
    AttackOptions,
    CertifyOptions,
    DataOptions,
    ModelOptions,
    PredictOptions,
    RunOptions,
)
from varsmooth.typed import Count

if TYPE_CHECKING:
    from varsmooth.report import Outcomes
    from varsmooth.runs.records import Run

ATTACKED = AttackOptions(eps=0.5, steps=10, samples=8, n=200)


def demo(
    *,
    model: str = MODEL,
    out: Path = Path("varsmooth-demo"),
    images: Count = 40,
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
        trust: import paths of your own networks that the model may load: package.module:Class,...
    """
    where = str(out)
    if find_spec("matplotlib") is None:
        where += "; the report has no figures, which need pip install 'varsmooth[report]'"
    announce(f"predict, certify and attack {images} images with {model}", out=where)
    from varsmooth.models.descriptions import describe
    from varsmooth.report import open_runs, write_report
    from varsmooth.report.statements import verdict
    from varsmooth.runs.predicting import predict_dataset

    about = describe(model)
    require(
        about.selector is None or about.recommended.get("levels") is not None,
        f"{model} has no grid of levels; choose one with: varsmooth tune {model}",
    )
    data = DataOptions(data="cifar10-sample", subset=f":{images}")
    plan = Demo(ModelOptions(model, trust=trust), out, data, about.sigma_of_selector)
    if about.cascades:
        plan = replace(plan, deployed=replace(plan.model, cascade="tuned", lam=1.0))
    predicted = predict_dataset(
        plan.deployed or plan.model,
        data,
        PredictOptions(seed=0),
        plan.options("predict", "predict"),
    )
    certified = certify_each_way(plan, dual=about.selector is not None)
    attacked = attack_a_few(plan)
    runs = open_runs([run.folder for run in [*certified, attacked, predicted]])
    page = write_report(runs, out / "report")
    lines = [HEAD, *(line for run in runs for line in _lines(run))]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(map(str.ljust, line, widths)).rstrip())
    knob = "--cascade tuned --lam 0.5" if about.cascades else "--sigma 0.5"
    conclude(
        [
            "average radius: over all images, 0 where wrong or abstaining\n",
            *verdict(runs),
            f"report: {page}",
        ],
        f"varsmooth certify --model {model} {knob} --subset :100 --out runs/turned",
        f"varsmooth attack --against {certified[0].folder} --out runs/search",
        "varsmooth app  # turn λ on an image in the browser; pip install 'varsmooth[app]'",
        "varsmooth data fetch cifar10",
    )


@dataclass(frozen=True)
class Demo:
    """Which model, on which images, where the results go, and the level to compare with."""

    model: ModelOptions
    out: Path
    data: DataOptions
    sigma: float
    deployed: ModelOptions | None = None

    def options(self, name: str, title: str) -> RunOptions:
        return RunOptions(self.out / name, name=title)


def certify_each_way(demo: Demo, dual: bool) -> list["Run"]:
    """The cascade, one fixed level, and the paper's selector: sound, and by its three levels.

    They share their votes, so that each way after the first costs little.
    """
    from varsmooth.runs.certifying import certify_dataset

    settings = CertifyOptions(vote_cache=demo.out / "votes")
    three = replace(settings, method="paper", distance=0.25)
    level = replace(demo.model, sigma=demo.sigma)
    ways = [(level, settings, "fixed", f"fixed σ = {demo.sigma:g}")]
    if demo.deployed is not None:
        ways.insert(0, (demo.deployed, settings, "cascade", "cascade, λ = 1"))
    if dual:
        ways.append((demo.model, settings, "sound", "g_v*, sound"))
        ways.append((demo.model, three, "paper", "g_v*, three levels at D = 0.25"))
    return [
        certify_dataset(model, demo.data, way, demo.options(name, title))
        for model, way, name, title in ways
    ]


def attack_a_few(demo: Demo, images: int = 6) -> "Run":
    """A strong attack on a few images, through f, noise and selector."""
    from varsmooth.runs.attacking import attack_dataset

    few = replace(demo.data, subset=f":{images}")
    model = demo.deployed or demo.model
    return attack_dataset(model, few, ATTACKED, demo.options("attack", "attack"))


HEAD = ("what", "guarantee", "images", "right", "radius ≥ 0.25", "average radius")


def _lines(run: "Outcomes") -> list[tuple[str, ...]]:
    """One line of the table, or two for an attack."""
    from varsmooth.report import average_certified_radius
    from varsmooth.rounding import rounded

    right, n = str(run.correct.sum()), str(len(run))
    if run.verb == "certify":
        far, mean = str((run.reach >= 0.25).sum()), average_certified_radius(run.reach)
        return [(run.name, str(run.guarantee), n, right, far, rounded(mean))]
    if run.verb == "predict":
        return [(run.name, "", n, right, "", "")]
    before = ("before the attack", "", n, str(run.clean_correct.sum()), "", "")
    return [before, (f"attacked, ℓ2 budget {ATTACKED.eps:g}", "", n, right, "", "")]
