"""The quickstart: one released model on embedded images, through every verb, in two minutes."""

from dataclasses import dataclass, replace
from pathlib import Path

from varsmooth.errors import VarsmoothError, require
from varsmooth.models.descriptions import describe
from varsmooth.report import average_certified_radius, open_runs, reach, write_report
from varsmooth.rounding import rounded
from varsmooth.runs.attacking import attack_dataset
from varsmooth.runs.certifying import certify_dataset
from varsmooth.runs.options import (
    AttackOptions,
    CertifyOptions,
    DataOptions,
    ModelOptions,
    PredictOptions,
    RunOptions,
)
from varsmooth.runs.predicting import predict_dataset
from varsmooth.runs.records import Row, Run

Lines = list[tuple[str, ...]]

USUAL_MODEL = "cifar10-0.25"


@dataclass(frozen=True)
class Demo:
    """What was run: which model, on which images, where the results are."""

    model: str
    out: Path
    data: DataOptions
    sigma: float

    def options(self, name: str, title: str) -> RunOptions:
        return RunOptions(self.out / name, name=title)


def choose_model(name: str | None) -> str:
    """The named model, or the one that README and guides speak of."""
    return name or USUAL_MODEL


def _is_tuned(model: str) -> bool:
    """Whether the sound certificate knows which levels to look at."""
    return describe(model).recommended.get("levels") is not None


def run_demo(model: str | None, out: Path, images: int) -> tuple[Lines, Path | None]:
    """Predict, certify and attack; returns a small table and the report's page."""
    chosen = choose_model(model)
    about = describe(chosen)
    require(
        about.selector is None or _is_tuned(chosen),
        f"{chosen} has no grid of levels; choose one with: varsmooth tune {chosen}",
    )
    data = DataOptions(data="cifar10-sample", subset=f":{images}")
    demo = Demo(chosen, out, data, about.sigma_of_selector)
    predictions = predict_dataset(
        ModelOptions(chosen), data, PredictOptions(seed=0), demo.options("predict", "predict")
    )
    certified = certify_each_way(demo, dual=about.selector is not None)
    attacked = attack(demo)
    table: Lines = [("what", "guarantee", "images", "right", "radius ≥ 0.25", "mean radius")]
    table.append(_line("predict", "", predictions.rows()))
    table += [
        _line(run.header["name"], run.rows()[0]["guarantee"], run.rows()) for run in certified
    ]
    for title, rows in attacked:
        table.append(_line(title, "", rows))
    return table, _page(certified, out / "report")


def certify_each_way(demo: Demo, dual: bool) -> list[Run]:
    """One fixed level; with a selector also the sound certificate and the paper's three levels.

    They share their votes, so that each way after the first costs little.
    """
    settings = CertifyOptions(votes=demo.out / "votes")
    level = ModelOptions(demo.model, sigma=demo.sigma)
    title = f"fixed σ = {demo.sigma:g}"
    fixed = certify_dataset(level, demo.data, settings, demo.options("fixed", title))
    if not dual:
        return [fixed]
    pair, three = ModelOptions(demo.model), replace(settings, method="paper", distance=0.25)
    title = "g_v*, three levels at D = 0.25"
    return [
        certify_dataset(pair, demo.data, settings, demo.options("sound", "g_v*, sound")),
        fixed,
        certify_dataset(pair, demo.data, three, demo.options("paper", title)),
    ]


def attack(demo: Demo, images: int = 6, eps: float = 0.5) -> list[tuple[str, list[Row]]]:
    """A strong attack on a few images, through f, noise and selector: before and after."""
    few = replace(demo.data, subset=f":{images}")
    settings = AttackOptions(eps=eps, steps=10, samples=8, n=200)
    run = attack_dataset(ModelOptions(demo.model), few, settings, demo.options("attack", "attack"))
    before = [row | {"prediction": row["clean_prediction"]} for row in run.rows()]
    return [("before the attack", before), (f"attacked, ℓ2 budget {eps:g}", run.rows())]


def _line(title: str, guarantee: str, rows: list[Row]) -> tuple[str, ...]:
    right = [row for row in rows if row["prediction"] == row["label"]]
    cells = (title, guarantee, str(len(rows)), f"{len(right)}")
    if "radius" not in rows[0]:
        return (*cells, "", "")
    far = sum(row["radius"] >= 0.25 for row in right)
    columns = ([row[key] for row in rows] for key in ("prediction", "label", "radius"))
    return (*cells, f"{far}", rounded(average_certified_radius(reach(*columns))))


def _page(runs: list[Run], out: Path) -> Path | None:
    try:
        return write_report(open_runs([run.folder for run in runs]), out)
    except VarsmoothError as missing:  # figures need matplotlib, which is an extra
        print(missing)
        return None
