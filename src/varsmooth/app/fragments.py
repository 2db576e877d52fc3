"""Results as pieces of HTML: what a person reads on the page."""

from collections.abc import Sequence
from html import escape

from torch import Tensor

from varsmooth.app import pictures
from varsmooth.app.attacking import Answer, Attacked
from varsmooth.app.certifying import Certified
from varsmooth.app.looking import Levels, View
from varsmooth.certificates import ABSTAIN, Certificate
from varsmooth.report.statements import MEANINGS
from varsmooth.rounding import rounded

CLASSIFIERS = {
    "f": "no noise",
    "g": "one fixed σ",
    "g_v": "h chooses σ, once",
    "g_v*": "median of h, protected",
}


def class_name(prediction: int, names: Sequence[str]) -> str:
    if prediction == ABSTAIN:
        return "abstains"
    return names[prediction] if prediction < len(names) else str(prediction)


def figure(content: str | bytes, caption: str, alt: str, kind: str = "chart") -> str:
    """A picture with its caption; kind: `chart`, or `pixels` for images."""
    return (
        f"<figure class='vs-{kind}'><img src='{pictures.data_url(content)}' alt='{escape(alt)}'>"
        f"<figcaption>{caption}</figcaption></figure>"
    )


def pixels(image: Tensor, caption: str, alt: str) -> str:
    return figure(pictures.png(image), caption, alt, "pixels")


def sentence(text: str, kind: str = "note") -> str:
    return f"<p class='vs-{kind}'>{escape(text)}</p>"


def view_html(view: View, names: Sequence[str], label: int | None) -> str:
    """The image, the image under noise, σ, and the answer."""
    answer = view.answer
    truth = "" if label is None else f"label: {escape(class_name(label, names))}"
    if answer.prediction == ABSTAIN:
        verdict, kind, why = "abstains", "abstain", "the votes do not settle it at α = 0.001"
    else:
        verdict, why = class_name(answer.prediction, names), "the smoothed classifier's answer"
        kind = "right" if label in (None, answer.prediction) else "wrong"
        why = "right" if label == answer.prediction else why
        why = "wrong" if kind == "wrong" else why
    who = "fixed for every image"
    if view.levels is not None:
        who = f"chosen for this image: h says {view.levels.median:.4f}"
    return (
        "<div class='vs-view'>"
        + pixels(view.x, truth or "the image", "the image")
        + pixels(view.noisy, f"x + ε at σ = {answer.sigma:.3f}", "the image under noise")
        + "<div class='vs-numbers'>"
        f"<div class='vs-number'><span>noise level σ</span><strong id='vs-sigma'>"
        f"{answer.sigma:.4f}</strong><small>{who}</small></div>"
        f"<div class='vs-number vs-{kind}'><span>prediction</span><strong id='vs-prediction'>"
        f"{escape(verdict)}</strong><small>{escape(why)}</small></div>"
        "</div></div>"
    )


def levels_html(levels: Levels | None) -> str:
    if levels is None:
        return sentence("This model has no selector: σ is one number for every image.")
    low, high = levels.bounds
    reach = (
        f"an attacker with budget {levels.budget:g} brings the median at most from "
        f"<b>{low:.4f}</b> to <b>{'∞' if high == float('inf') else f'{high:.4f}'}</b>"
    )
    if low == 0 or high == float("inf"):
        reach += " (beyond what N_h draws can tell: raise N_h or σ_m, or lower the budget)"
    grid = "clipped and rounded to the grid" if levels.grid else "clipped"
    caption = (
        f"What h says of the image under noise σ_m. Black: the median, {levels.median:.4f}. "
        f"Red: the σ in use, {levels.chosen:.4f}, {grid}. Violet: {reach}."
    )
    drawn = pictures.svg(lambda axes: pictures.plot_levels(axes, levels))
    return figure(drawn, caption, "histogram of the selector's levels")


def votes_html(counts: Sequence[int], names: Sequence[str], winner: int, caption: str = "") -> str:
    drawn = pictures.svg(lambda axes: pictures.plot_votes(axes, counts, names, winner))
    return figure(drawn, caption, "votes for each class")


VOTES = "What f says of N noisy copies. Green: the answer. None is green where the vote is unclear."


def certified_html(found: Certified, names: Sequence[str], budget: float) -> str:
    """The picture of the radius, and beside it each certificate with its guarantee."""
    cards = []
    if found.dual is not None:
        cards.append(card("g_v*: selector and classifier together", found.dual, names))
    cards.append(card(f"g: fixed σ = {found.fixed.sigma:g}", found.fixed, names))
    if found.paper is not None:
        cards.append(card(f"the paper's three levels, D = {budget:g}", found.paper, names))
    return (
        "<div class='vs-certified'>"
        + construction_html(found.best_explained)
        + f"<div class='vs-cards'>{''.join(cards)}</div></div>"
    )


def construction_html(certificate: Certificate) -> str:
    rows = len(pictures.construction(certificate)[0])
    drawn = pictures.svg(
        lambda axes: pictures.plot_construction(axes, certificate), height=1.5 + 0.3 * rows
    )
    if certificate.method == "sound":
        caption = (
            "Each row is a noise level (▸: this image's). "
            "<i class='vs-key' style='background:#2a9d8f55'></i> entry distance D<sub>k</sub>: "
            "no image nearer than this gets that level. "
            "<i class='vs-key' style='background:#7b61c9'></i> class radius R<sub>k</sub>: nearer "
            "than this the vote at that level is won; none where no vote was needed. "
            "A level hurts only beyond both (dot), so R = min<sub>k</sub> max(D<sub>k</sub>, "
            "R<sub>k</sub>) is the leftmost dot."
        )
    elif certificate.method == "paper":
        caption = "The levels that the paper's method looks at, and their class radii."
    else:
        caption = (
            "One level for every image, so there is nothing to reach: the radius is the class "
            "radius σ Φ⁻¹(p) of the vote."
        )
    return figure(drawn, caption, "how the certified radius is built")


def card(title: str, certificate: Certificate, names: Sequence[str]) -> str:
    """One certificate: its radius, its class, and what the radius is worth."""
    word = certificate.guarantee
    meaning = MEANINGS[word].partition(": ")[2]
    return (
        f"<article class='vs-card vs-{word}'><header><span>{_paper_name(escape(title))}</span>"
        f"<mark>{word}</mark></header>"
        f"<strong class='vs-radius'>{rounded(certificate.radius)}</strong> "
        f"<span>{escape(class_name(certificate.prediction, names))}</span>"
        f"<p>{escape(meaning[:1].upper() + meaning[1:])}</p></article>"
    )


def attacked_html(found: Attacked, names: Sequence[str], budget: float) -> str:
    """The adversarial image, what was added to it, and every classifier before and after."""
    difference, factor = pictures.amplified(found.x, found.adversarial)
    rows = "".join(
        f"<tr><th scope='row'>{_paper_name(name)}<small>"
        f"{CLASSIFIERS[name]}</small></th>"
        f"{_cell(found.before[name], names, found.target)}"
        f"{_cell(found.after[name], names, found.target)}</tr>"
        for name in found.before
    )
    target = escape(class_name(found.target, names))
    return (
        "<div class='vs-view'>"
        + pixels(found.x, "the image", "the image")
        + pixels(found.adversarial, f"attacked, budget {budget:g}", "the adversarial image")
        + pixels(
            difference,
            f"the perturbation × {factor:.3g}, ‖δ‖₂ = {found.distance:.3f}",
            "the perturbation, amplified",
        )
        + "</div><table class='vs-answers'><thead><tr><th></th><th>before</th><th>attacked</th>"
        f"</tr></thead><tbody>{rows}</tbody></table>"
        f"<p class='vs-note'>The attack drives away from “{target}”. One that fails proves "
        "nothing; one that succeeds inside a sound radius would disprove the certificate.</p>"
    )


def _paper_name(text: str) -> str:
    return text.replace("g_v", "g<sub>v</sub>")


def _cell(answer: Answer, names: Sequence[str], target: int) -> str:
    kind = "right" if answer.prediction == target else "wrong"
    kind = "abstain" if answer.prediction == ABSTAIN else kind
    level = "" if answer.sigma is None else f"<small>σ {answer.sigma:.4f}</small>"
    return f"<td class='vs-{kind}'>{escape(class_name(answer.prediction, names))}{level}</td>"
