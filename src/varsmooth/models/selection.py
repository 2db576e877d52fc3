"""Which selector a command means. Decided here alone, without torch.

The command line, `varsmooth.load`, runs, the report and the app all call `resolve_selector`, and
print its result with `selector_text`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from varsmooth.defaults import N_SELECT
from varsmooth.errors import VarsmoothError
from varsmooth.models.descriptions import Description
from varsmooth.models.options import (
    KINDS,
    ModelOptions,
    SelectorKind,
    read_stages,
    stages_for,
    stages_text,
)

DEFAULT_LAM = 1.0
"""The λ of a tuned cascade unless another is chosen: the largest average radius."""


@dataclass(frozen=True)
class SelectorPlan:
    """A selector as plain values, and why it is this one.

    Attributes:
        about: In the form of `NoiseSelector.describe()`; `levels` may be a number of levels.
        reason: Where values come from that the caller has not set.
        tuned: Whether values are used that were chosen on held-out images.
    """

    about: dict[str, Any]
    reason: str = ""
    tuned: bool = False

    @property
    def every_level(self) -> list[float]:
        """The levels of a cascade, or the one σ."""
        return list(self.about.get("levels") or [self.about["sigma"]])

    @property
    def kind(self) -> SelectorKind:
        kind: SelectorKind = self.about["selector"]
        return kind

    def __str__(self) -> str:
        return selector_text(self.about) + (f" ({self.reason})" if self.reason else "")


def resolve_selector(description: Description | None, options: ModelOptions) -> SelectorPlan:
    """The selector that these options mean for a model.

    Options exclude the kinds of selector that they do not belong to (`KINDS`). Of the others, the
    first that the model has: a cascade (of the options, else what `tune` has stored), its selector
    network under median smoothing, one σ. The network without protection only if
    selector="learned".

    Args:
        description: Of the model; None: a classifier of the user's own, without a description.
        options: What the caller has set.
    """
    steering = options.of_selector()
    allowed = set(get_args(SelectorKind)).intersection(*(KINDS[name] for name in steering))
    if options.selector is not None:
        allowed = {options.selector}
    network = description is not None and description.selector is not None
    stored = description is not None and bool(description.cascades)
    present = {
        "cascade": stored or options.cascade is not None,
        "median": network and options.selector != "learned",
        "learned": network and options.selector == "learned",
        "fixed": options.sigma is not None or description is not None,
    }
    kind = next((kind for kind in present if kind in allowed and present[kind]), None)
    if kind == "cascade":
        return _cascade(description, options)
    if kind == "fixed":
        return _fixed(description, options)
    if kind is not None and description is not None:
        return _network(description, options, protected=kind == "median")
    raise VarsmoothError(_missing(description, options, allowed))


def _missing(
    description: Description | None, options: ModelOptions, allowed: set[SelectorKind]
) -> str:
    """Why there is no such selector, and what to type instead."""
    if description is None:
        model = options.model or "it"
        return f"{model} has no selector; choose a fixed noise level with --sigma, or --cascade"
    if allowed == {"cascade"}:
        stages = "name its stages, as in --cascade 0.5,0.25,0.12"
        tune = f"varsmooth tune {options.model or 'MODEL'} --goal cascade"
        return f"this model has no tuned cascade; choose one with: {tune}, or {stages}"
    name = next(iter(options.of_selector()), "selector")
    return f"`{name}` has no effect: this model has no selector; leave it out"


def _fixed(description: Description | None, options: ModelOptions) -> SelectorPlan:
    if options.sigma is not None or description is None:
        return SelectorPlan({"selector": "fixed", "sigma": options.sigma})
    about = {"selector": "fixed", "sigma": description.default_sigma}
    recommended = "sigma" in description.recommended
    if recommended:
        reason = "the model's recommendation"
    elif description.universal:
        reason = "the middle of the levels that it was trained for"
    elif description.adopted:
        reason = "the model's default"
    else:
        reason = "the level that it was trained for"
    return SelectorPlan(about, reason, recommended and description.tuned is not None)


def _cascade(description: Description | None, options: ModelOptions) -> SelectorPlan:
    reason = ""
    levels: Sequence[float]
    if options.cascade is not None or description is None:
        levels, thresholds, gates = zip(*read_stages(options.cascade or ""), strict=True)
    else:
        lam = DEFAULT_LAM if options.lam is None else options.lam
        stages = stages_for(description.cascades, lam)
        levels, thresholds, gates = stages.levels, stages.thresholds, stages.gates
        default = "" if options.selector else ", the model's default"
        reason = f"tuned for λ = {lam:g}{default}"
    about = {
        "selector": "cascade",
        "levels": list(levels),
        "thresholds": list(thresholds),
        "gates": list(gates) if any(gates) else None,
    }
    return SelectorPlan(about, reason, bool(reason))


def _network(description: Description, options: ModelOptions, protected: bool) -> SelectorPlan:
    steering = options.of_selector()
    values: dict[str, Any] = {"lam": 0.0, "sigma_a": description.sigma_of_selector}
    values |= description.recommended | steering
    learned = {"selector": "learned", "sigma_a": values["sigma_a"], "lam": values["lam"]}
    unset = description.recommended.keys() & KINDS.keys() - steering.keys() - {"sigma"}
    tuned = description.tuned is not None and not description.tuned.cascade_only
    reason = "as the model recommends" if unset else ""
    if not protected:
        return SelectorPlan(learned, reason, tuned)
    clip, levels = values.get("clip"), values.get("levels")
    median = {
        "selector": "median",
        "sigma_m": values.get("sigma_m", values["sigma_a"]),
        "n": values.get("n_median", N_SELECT),
        "clip": None if clip is None else list(clip),
        "levels": None if levels == 0 else levels,
        "inner": learned,
    }
    return SelectorPlan(median, reason, tuned)


def options_for(about: Mapping[str, Any]) -> dict[str, Any]:
    """The options of `ModelOptions` that mean a selector: the inverse of `resolve_selector`.

    Examples:
        >>> options_for({"selector": "cascade", "levels": [0.5, 0.25], "thresholds": [0.6, 0.5]})
        {'cascade': '0.5:0.6,0.25'}
    """
    kind = about["selector"]
    if kind == "fixed":
        return {"sigma": about["sigma"]}
    if kind == "cascade":
        gates = about.get("gates") or [0.0] * len(about["levels"])
        stages = zip(about["levels"], about["thresholds"], gates, strict=True)
        return {"cascade": ",".join(map(_stage, stages))}
    if kind == "median":
        own = {"sigma_m": about["sigma_m"], "clip": about["clip"], "n_median": about["n"]}
        return {**options_for(about["inner"]), **own, "levels": about["levels"] or 0}
    return {"lam": about["lam"], "sigma_a": about["sigma_a"]}


def _stage(stage: tuple[float, float, float]) -> str:
    """LEVEL:THRESHOLD:GATE with every digit of a level, which is a float32 number."""
    import numpy as np  # not before the command line's help

    level, tau, gate = stage
    parts = [str(np.float32(level)), str(float(tau)), str(float(gate))]
    return ":".join(parts[: 3 if gate else 2 if tau != 0.5 else 1])


def selector_text(about: Mapping[str, Any]) -> str:
    """A selector's description in a few words, to follow "σ".

    Examples:
        >>> selector_text({"selector": "fixed", "sigma": 0.25})
        '0.25'
        >>> selector_text({"selector": "cascade", "levels": [0.5, 0.25], "thresholds": [0.6, 0.5]})
        'by cascade 0.5:0.6,0.25'
        >>> h = {"selector": "learned", "sigma_a": 0.25, "lam": 0.3}
        >>> selector_text({"selector": "median", "sigma_m": 0.5, "levels": 8, "inner": h})
        'by selector at λ = 0.3, σ_a = 0.25, median at σ_m = 0.5, 8 levels'
    """
    kind = about.get("selector", "unknown")
    if kind == "fixed":
        return _text(about.get("sigma"))
    if kind == "cascade" and {"levels", "thresholds"} <= about.keys():
        gates = about.get("gates")
        text = stages_text(
            about["levels"], about["thresholds"], gates if isinstance(gates, list) else None
        )
        return f"by cascade {text}" + ", gate of its own" * isinstance(gates, dict)
    if kind == "learned":
        return f"by selector at λ = {_text(about.get('lam'))}, σ_a = {_text(about.get('sigma_a'))}"
    if kind != "median":
        return f"by {about.get('name', f'{kind} selector')}"
    parts = [
        selector_text(about.get("inner") or {}),
        f"median at σ_m = {_text(about.get('sigma_m'))}",
    ]
    if about.get("clip"):
        parts.append(f"clip {_text(about['clip'])}")
    if levels := about.get("levels"):
        parts.append(f"levels {_text(levels)}" if isinstance(levels, list) else f"{levels} levels")
    return ", ".join(parts)


def _text(value: Any) -> str:
    """A number, or several, with four digits."""
    if isinstance(value, list):
        return " ".join(map(_text, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)
