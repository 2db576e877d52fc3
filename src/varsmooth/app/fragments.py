"""Results as pieces of HTML: what a person reads on the page."""

from collections.abc import Mapping, Sequence

from torch import Tensor

from varsmooth.app import drawings
from varsmooth.app.one_image import Attacked, Certified, Reply, SelectorDraws, View
from varsmooth.cascade import Stages
from varsmooth.certificates import ABSTAIN, Certificate, stage_radii
from varsmooth.report.markup import Html, element, join
from varsmooth.report.statements import MEANINGS
from varsmooth.rounding import rounded

CLASSIFIERS = {
    "f": "no noise",
    "g": "one fixed σ",
    "g_v": "h chooses σ from one noisy copy",
    "g_v*": "the median of h chooses σ",
    "cascade": "f’s own votes choose σ",
}

VOTES = "Votes of f on N noisy copies. Green: the prediction; no bar is green if g abstains."


def class_name(prediction: int, names: Sequence[str]) -> str:
    if prediction == ABSTAIN:
        return "abstains"
    return names[prediction] if prediction < len(names) else str(prediction)


def figure(content: str | bytes, caption: str, alt: str, kind: str = "chart") -> Html:
    """A picture with its caption; kind: `chart`, or `pixels` for images."""
    picture = element("img", src=drawings.data_url(content), alt=alt)
    return element("figure", picture, element("figcaption", caption), class_=kind)


def pixels(image: Tensor, caption: str, alt: str) -> Html:
    return figure(drawings.png(image), caption, alt, "pixels")


def sentence(text: str, kind: str = "note") -> Html:
    return element("p", text, class_=kind)


def number(title: str, value: str, small: str, kind: str | None = None, **more: str) -> Html:
    return element(
        "div",
        element("span", title),
        element("strong", value, **more),
        element("small", small),
        class_=f"number {kind or ''}".strip(),
    )


# One image


def answer_html(view: View, deployed: Certificate, names: Sequence[str], label: int | None) -> Html:
    """Prediction, σ and radius: the three numbers of the first view."""
    answer = view.answer
    kind = outcome_kind(answer.prediction, label)
    why = {"right": "correct", "wrong": "wrong", "abstain": "no significant majority"}[kind]
    why = "majority vote" if label is None and kind == "right" else why
    chosen_by = "the same for every image"
    if view.draws is not None:
        chosen_by = f"grid level for h’s median {view.draws.median:.4f}"
    elif deployed.stages is not None:
        chosen_by = "the stage whose votes answer"
    about = f"preview, N = {sum(answer.counts)}"
    if deployed.prediction not in (ABSTAIN, answer.prediction):
        about += f", for {class_name(deployed.prediction, names)}"
    return element(
        "div",
        number("prediction", class_name(answer.prediction, names), why, kind, id="prediction"),
        number("noise level σ", f"{answer.sigma:.4f}", chosen_by, id="sigma"),
        number("certified radius", rounded(deployed.radius), about, id="radius"),
        class_="numbers",
    )


def outcome_kind(prediction: int, label: int | None) -> str:
    """A CSS class: right, wrong or abstain."""
    if prediction == ABSTAIN:
        return "abstain"
    return "right" if label in (None, prediction) else "wrong"


def grid_html(levels: Sequence[float], chosen: float) -> Html:
    """The levels an image may get; the one in use stands out."""
    chips = [
        element("li", f"{s:.3f}", class_="chosen" if abs(s / chosen - 1) < 1e-5 else None)
        for s in levels
    ]
    return element("ol", *chips, class_="grid", title="the noise levels this image may get")


def curve_html(
    curve: Sequence[Certificate],
    grid: Sequence[float],
    ways: Mapping[str, Certificate],
    sigma: float,
    label: int | None,
) -> Html:
    best = max(curve, key=lambda c: c.radius)
    caption = (
        f"Certified radius of this image at each fixed σ (best {rounded(best.radius)} at "
        f"σ = {best.sigma:.3f}). Large dots: the levels this image may get. Green: the level in "
        "use, with the radius that holds against attacks on the level too. Orange: the cascade, in "
        "which f’s own votes choose the level. Violet: one σ for all images. A cross: wrong class."
    )
    drawn = drawings.svg(
        lambda axes: drawings.plot_radius_curve(axes, curve, grid, ways, sigma, label),
        width=5.6,
        height=2.9,
    )
    return figure(drawn, caption, "certified radius against σ")


def view_html(view: View) -> Html:
    """The image as f sees it."""
    return pixels(view.noisy, f"x + ε at σ = {view.answer.sigma:.3f}", "the image under noise")


def draws_html(draws: SelectorDraws | None) -> Html:
    if draws is None:
        return sentence("This model has no selector h.")
    low, high = draws.bounds
    beyond = low == 0 or high == float("inf")
    caption = join(
        f"h on noisy copies (noise σ_m). Black: the median, {draws.median:.4f}. Red: the grid "
        f"level in use, {draws.chosen:.4f}. Violet: an attacker with budget {draws.budget:g} "
        "moves the median at most from ",
        element("b", f"{low:.4f}"),
        " to ",
        element("b", "∞" if high == float("inf") else f"{high:.4f}"),
        " (N_h draws cannot bound it: raise N_h or σ_m, or lower the budget)." if beyond else ".",
    )
    drawn = drawings.svg(lambda axes: drawings.plot_draws(axes, draws))
    return figure(drawn, caption, "histogram of the selector’s levels")


def votes_html(counts: Sequence[int], names: Sequence[str], winner: int, caption: str) -> Html:
    drawn = drawings.svg(lambda axes: drawings.plot_votes(axes, counts, names, winner))
    return figure(drawn, caption, "votes for each class")


# Certificates


def certified_html(found: Certified, names: Sequence[str], budget: float) -> Html:
    """How the radius is built, and beside it each certificate with its guarantee."""
    cards = []
    built = [construction_html(found.cascade)]
    if found.dual is not None:
        cards.append(card("g_v*: selector and classifier attacked together", found.dual, names))
        built.insert(0, construction_html(found.dual))
    cards.append(card("cascade: f’s own votes choose σ", found.cascade, names))
    cards.append(card(f"g: one σ = {found.fixed.sigma:g}", found.fixed, names))
    if found.paper is not None:
        cards.append(card(f"the paper’s three levels, D = {budget:g}", found.paper, names))
    return element(
        "div", element("div", *cards, class_="cards"), element("div", *built), class_="certified"
    )


def construction_html(certificate: Certificate) -> Html:
    """A picture of how the radius follows from the evidence."""
    if certificate.stages is not None:
        return stages_html(certificate, certificate.stages)
    rows = len(drawings.construction(certificate)[0])
    drawn = drawings.svg(
        lambda axes: drawings.plot_construction(axes, certificate), height=1.5 + 0.3 * rows
    )
    if certificate.method == "sound":
        caption = join(
            "One row for each noise level (▸: this image’s). ",
            element("i", class_="key entry"),
            " Entry distance ",
            sub("D", "k"),
            ": no image nearer than this gets that level. ",
            element("i", class_="key class"),
            " Class radius ",
            sub("R", "k"),
            ": nearer than this, that level answers the same class; missing where no vote was "
            "needed. The certified radius is the leftmost dot, min",
            element("sub", "k"),
            " max(",
            sub("D", "k"),
            ", ",
            sub("R", "k"),
            ").",
        )
    elif certificate.method == "paper":
        caption = join("The levels of the paper’s method, and their class radii.")
    else:
        caption = join("At one level the certified radius is the class radius σ Φ⁻¹(p).")
    return figure(drawn, caption, "how the certified radius is built")


def stages_html(certificate: Certificate, stages: Stages) -> Html:
    """The stages of a cascade as rows: level, threshold, and what each adds to the radius."""
    radii = stage_radii(certificate.ledger, certificate.votes, stages)
    rows = []
    for j, (level, threshold) in enumerate(zip(stages.levels, stages.thresholds, strict=True)):
        visited = j < len(radii)
        last = j == len(radii) - 1
        bound = element("td", rounded(radii[j])) if visited else element("td", "–")
        cells = (bound, element("td", "–")) if last else (element("td", "–"), bound)
        votes = certificate.votes[j].n if visited else 0
        head = element("th", "▸ " if last else "", f"σ = {level:.3f}", scope="row")
        rows.append(
            element(
                "tr",
                head,
                element("td", f"{threshold:g}"),
                element("td", str(votes or "not needed")),
                *cells,
            )
        )
    titles = ("stage", "τ", "votes", "H", "X")
    head = element("tr", *(element("th", title) for title in titles))
    foot = element(
        "tr", element("th", "R", scope="row"), element("td", rounded(certificate.radius), colspan=4)
    )
    caption = (
        "The first stage whose votes reach its threshold τ answers (▸: the one certified here). "
        "Nearer than H that stage answers this class; nearer than X an earlier one answers no "
        "other class. R is the smallest of them."
    )
    table = element(
        "table", element("thead", head), element("tbody", *rows), element("tfoot", foot)
    )
    return element("figure", table, element("figcaption", caption), class_="stages")


def card(title: str, certificate: Certificate, names: Sequence[str]) -> Html:
    """One certificate: its radius, its class, and what the radius means."""
    word = certificate.guarantee
    meaning = MEANINGS[word].partition(": ")[2]
    return element(
        "article",
        element("header", element("span", paper_name(title)), element("mark", word)),
        element("strong", rounded(certificate.radius), class_="radius"),
        " ",
        element("span", class_name(certificate.prediction, names)),
        element("p", meaning[:1].upper() + meaning[1:]),
        class_=f"card {word}",
    )


# Attacks


def attacked_html(found: Attacked, names: Sequence[str], budget: float) -> Html:
    """The adversarial image, what was added to it, and every classifier before and after."""
    difference, factor = drawings.amplified(found.x, found.adversarial)
    enlarged = f"the perturbation × {factor:.3g}, ‖δ‖₂ = {found.distance:.3f}"
    rows = [
        element(
            "tr",
            element("th", paper_name(name), element("small", CLASSIFIERS[name]), scope="row"),
            *(_cell(said[name], names, found.target) for said in (found.before, found.after)),
        )
        for name in found.before
    ]
    head = element("tr", element("th"), element("th", "before"), element("th", "attacked"))
    return join(
        element(
            "div",
            pixels(found.x, "the image", "the image"),
            pixels(found.adversarial, f"attacked, budget {budget:g}", "the adversarial image"),
            pixels(difference, enlarged, "the perturbation, amplified"),
            class_="row",
        ),
        element("table", element("thead", head), element("tbody", *rows), class_="replies"),
        sentence(
            f"The attack drives away from “{class_name(found.target, names)}”. A failed attack "
            "proves nothing; a successful one inside a sound radius would refute the certificate."
        ),
    )


def _cell(reply: Reply, names: Sequence[str], target: int) -> Html:
    level = None if reply.sigma is None else element("small", f"σ {reply.sigma:.4f}")
    kind = outcome_kind(reply.prediction, target)
    return element("td", class_name(reply.prediction, names), level, class_=kind)


def paper_name(text: str) -> Html:
    """g_v as the paper sets it."""
    parts = text.split("g_v")
    return join(parts[0], *(join(sub("g", "v"), part) for part in parts[1:]))


def sub(letter: str, index: str) -> Html:
    return join(letter, element("sub", index))
