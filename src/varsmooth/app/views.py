"""What a person reads: the page, and each answer as a piece of HTML. Templates hold the words."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from markupsafe import Markup
from torch import Tensor

from varsmooth.app import drawings
from varsmooth.app.knobs import KNOBS, Knobs, knobs_for
from varsmooth.app.work import Attacked, Certified, SelectorDraws, View
from varsmooth.certificates import Certificate, Certificates
from varsmooth.data import Batch
from varsmooth.defaults import ABSTAIN
from varsmooth.evidence import stage_radii
from varsmooth.report import pages
from varsmooth.report.outcomes import outcome
from varsmooth.report.statements import MEANINGS

if TYPE_CHECKING:
    from varsmooth.app.desk import Desk

VOTES = "Votes of f on N noisy copies. Green: the prediction; no bar is green if g abstains."
TITLES = {"g": "one σ", "g_v*": "selector", "cascade": "cascade"}
THUMBNAIL = 160


def kind(prediction: int, label: int | None) -> str:
    """A CSS class: right, wrong or abstains; without a label a prediction counts as right."""
    return outcome({"prediction": prediction, "label": prediction if label is None else label})


def picture(image: Tensor) -> str:
    """Pixels (C,H,W) in [0,1], exactly."""
    pixels = (255 * image.clamp(0, 1)).round().byte().permute(1, 2, 0)
    return pages.picture(pixels.cpu().numpy())


def paper_name(text: str) -> Markup:
    """g_v as the paper sets it."""
    return Markup("g<sub>v</sub>").join(map(Markup.escape, text.split("g_v")))


_templates = pages.templates(
    "varsmooth.app",
    ABSTAIN=ABSTAIN,
    infinity=float("inf"),
    meanings=MEANINGS,
    stage_radii=stage_radii,
)
_templates.filters |= {"kind": kind, "picture": picture, "paper_name": paper_name}
one, run, parts, _several = (  # macros: functions from values to HTML
    cast(Any, _templates.get_template(f"{name}.html").module)
    for name in ("one", "run", "parts", "several")
)


def page_html(desk: "Desk", model: str) -> str:
    """The whole page for one model."""
    about, samples = desk.about(model), desk.samples(model)
    names, labels = samples.class_names, samples.labels
    captions = [
        f"image {i + 1}" if labels is None else f"label: {names[labels[i]]}"
        for i in range(len(samples))
    ]
    first = Knobs.recommended(about)
    turned = "lam" if about.selector or about.cascades else "sigma"
    shown = {turned, "sigma", "n", "budget", "steps"}
    if about.selector:
        shown |= {"sigma_m", "low", "high", "n_select"}
        shown |= {"sigma_a"} if about.universal else set()
    return _templates.get_template("page.html").render(
        model=model,
        models=desk.models,
        knobs=knobs_for(about),
        first=vars(first),
        turned_first=turned,
        hidden=[name for name in KNOBS if name not in shown],
        has_selector=about.selector is not None,
        universal=about.universal,
        samples=[
            (pages.picture(image, THUMBNAIL), caption)
            for image, caption in zip(samples.images, captions, strict=True)
        ],
        first_sample=desk.first_sample(model),
        run=desk.run or "",
        any_run=desk.any_run,
        view="run" if desk.run is not None else "one",
    )


def answer_html(
    view: View, deployed: Certificate, names: Sequence[str], label: int | None, advanced: bool
) -> dict[str, str]:
    """Prediction, σ and radius; with `advanced` what is behind them."""
    found = {"answer": one.answer(view, deployed, names, label)}
    if advanced:
        said = view.answer
        found["noisy"] = one.noisy(view)
        found["draws"] = draws_html(view.draws)
        found["votes"] = parts.votes(votes_url(said.counts, names, said.prediction), VOTES)
    return found


def draws_html(draws: SelectorDraws | None) -> Markup:
    found: Markup = parts.draws(draws, draws and drawings.svg(drawings.plot_draws, draws))
    return found


def votes_url(counts: Sequence[int], names: Sequence[str], winner: int) -> str:
    return drawings.svg(drawings.plot_votes, counts, names, winner)


def curve_html(
    curve: Sequence[Certificate],
    grid: Sequence[float],
    ways: Mapping[str, Certificate],
    sigma: float,
    label: int | None,
) -> str:
    shown = (curve, grid, ways, sigma, label)
    url = drawings.svg(drawings.plot_radius_curve, *shown, width=5.6, height=2.9)
    return str(one.curve(url, max(curve, key=lambda c: c.radius), len(grid), len(ways) > 1))


def construction_url(certificate: Certificate) -> str:
    """A picture of how the radius follows from the evidence; a cascade has a table instead."""
    if certificate.stages is not None:
        return ""
    height = 1.5 + 0.3 * len(drawings.construction(certificate)[0])
    return drawings.svg(drawings.plot_construction, certificate, height=height)


def certified_html(found: Certified, names: Sequence[str], budget: float) -> str:
    """How the radius is built, and beside it each certificate with its guarantee."""
    built = construction_url(found.dual) if found.dual else ""
    return str(one.certified(found, names, budget, built))


def attacked_html(found: Attacked, names: Sequence[str], budget: float) -> str:
    """The adversarial image, what was added to it, and every classifier before and after."""
    difference = found.adversarial - found.x
    factor = 0.5 / (float(difference.abs().max()) or 0.5)
    return str(one.attacked(found, names, budget, 0.5 + factor * difference, factor))


def several_html(images: Batch, ways: Mapping[str, Certificates], names: Sequence[str]) -> str:
    """Each image with its σ and radius in every way, and the average radius of each way."""
    labels = [None] * len(images.ids) if images.labels is None else images.labels.tolist()
    radii = {TITLES[way]: true_radii(found, labels) for way, found in ways.items()}
    shown = [
        {
            "pixels": x,
            "label": labels[i],
            "best": max(each[i] for each in radii.values()),
            "lines": [(TITLES[way], c[i], radii[TITLES[way]][i]) for way, c in ways.items()],
        }
        for i, x in enumerate(images.images)
    ]
    averages = {way: sum(each) / len(each) for way, each in radii.items()}
    return str(_several.several(averages, shown, names))


def true_radii(found: Certificates, labels: Sequence[int | None]) -> list[float]:
    """The radius of each image; 0 for a wrong class."""
    return [
        c.radius if label in (None, c.prediction) else 0.0
        for c, label in zip(found, labels, strict=True)
    ]
