"""The sliders of the knobs, as each model wants them."""

from typing import Any

import gradio as gr

from varsmooth.app.fragments import sentence
from varsmooth.app.knobs import BUDGET, DRAWS, VOTES, Knobs, Range
from varsmooth.app.models import Model

NO_SELECTOR = "This model has no selector h, so σ is one number for every image."


class KnobPanel:
    """The sliders of one model's knobs."""

    def __init__(self, model: Model) -> None:
        first, sigmas = model.first_knobs(), sigma_sliders(model)
        self.note = gr.HTML(sentence(NO_SELECTOR), visible=not model.has_selector)
        with gr.Group(visible=model.has_selector) as self.group:
            self.lam = slider("λ: accuracy ← → large σ", model.lam_range, first.lam, "lam")
            self.sigma_a = slider(
                "σ_a that h is told",
                sigmas,
                first.sigma_a,
                "sigma-a",
                visible=model.about.universal,
            )
            self.sigma_m = slider("σ_m: noise of the median", sigmas, first.sigma_m, "sigma-m")
            with gr.Row():
                self.low = slider("clip from", sigmas, first.clip[0], "low")
                self.high = slider("clip to", sigmas, first.clip[1], "high")
            self.n_select = slider("N_h: draws of h", DRAWS, first.n_select, "n-select")
        with gr.Group():
            self.sigma = slider(_sigma_label(model), sigmas, first.sigma, "sigma-fixed")
            self.n = slider("N: votes of f", VOTES, first.n, "n")
            self.budget = slider(
                "the attacker's ℓ₂ budget (D of the paper)", BUDGET, first.budget, "budget"
            )

    @property
    def all(self) -> list[Any]:
        """In the order of `knobs_of`."""
        return [
            self.sigma,
            self.lam,
            self.sigma_a,
            self.sigma_m,
            self.low,
            self.high,
            self.n,
            self.n_select,
            self.budget,
        ]

    @property
    def changing(self) -> list[Any]:
        """What depends on the model, in the order of `updates`."""
        return [
            self.note,
            self.group,
            self.lam,
            self.sigma_a,
            self.sigma_m,
            self.low,
            self.high,
            self.sigma,
        ]


def updates(model: Model) -> list[Any]:
    """The panel as another model wants it."""
    first, sigmas = model.first_knobs(), sigma_sliders(model)
    lam = model.lam_range
    ends = {"minimum": sigmas.low, "maximum": sigmas.high}
    return [
        gr.update(visible=not model.has_selector),
        gr.update(visible=model.has_selector),
        gr.update(minimum=lam.low, maximum=lam.high, value=first.lam),
        gr.update(**ends, value=first.sigma_a, visible=model.about.universal),
        gr.update(**ends, value=first.sigma_m),
        gr.update(**ends, value=first.clip[0]),
        gr.update(**ends, value=first.clip[1]),
        gr.update(**ends, value=first.sigma, label=_sigma_label(model)),
    ]


def sigma_sliders(model: Model) -> Range:
    """One range for every σ of a model, fine enough for any recommendation."""
    low, high, _ = model.sigma_range
    first = model.first_knobs()
    return Range(min(low, first.clip[0]), max(high, first.clip[1], first.sigma_m), 0.001)


def _sigma_label(model: Model) -> str:
    return "fixed σ of g, to compare with" if model.has_selector else "σ"


def slider(label: str, range: Range, value: float, name: str, **more: Any) -> gr.Slider:
    low, high, step = range
    return gr.Slider(low, high, value, step=step, label=label, elem_id=f"vs-{name}", **more)


def knobs_of(
    sigma: float,
    lam: float,
    sigma_a: float,
    sigma_m: float,
    low: float,
    high: float,
    n: float,
    n_select: float,
    budget: float,
) -> Knobs:
    """The sliders' values as knobs; a number that was typed may be even, a median's is odd."""
    odd = int(n_select) + 1 - int(n_select) % 2
    return Knobs(sigma, lam, sigma_a, sigma_m, (low, high), int(n), odd, budget).check()
