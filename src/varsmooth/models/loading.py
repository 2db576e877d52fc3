"""From the name of a model to a smoothed classifier that is ready to use."""

from collections.abc import Collection
from dataclasses import fields
from pathlib import Path
from typing import Any

from varsmooth.cascade import CascadeSelector, SoftmaxGate
from varsmooth.defaults import N_SELECT
from varsmooth.errors import VarsmoothError, check, nearest
from varsmooth.models.adapters import in_precision
from varsmooth.models.checkpoints import Checkpoint, load_checkpoint
from varsmooth.models.settings import Settings, read_stages, stages_for
from varsmooth.selectors import FixedSelector, LearnedSelector, MedianSelector
from varsmooth.smoothing import Selector, SmoothedClassifier


def load(
    name_or_path: str | Path, *, trust: Collection[str] = (), **settings: Any
) -> SmoothedClassifier:
    """A released model by name, or a model by the path of its folder, as a smoothed classifier.

    A pair of f and h is protected by median smoothing with the settings that its description
    recommends. A classifier alone is smoothed at the level it was trained for (the middle of its
    range if it was trained for many).

    Args:
        name_or_path: As for `varsmooth.models.checkpoints.load_checkpoint`.
        trust: Import paths of your own networks that the model may build.
        settings: Take precedence over what the model recommends: sigma (one fixed level instead
            of a selector), cascade ([1.0, 0.5, 0.25], "1.0:0.6,0.5,0.25" or "tuned") with
            gate, lam, sigma_a, sigma_m, clip, levels (0: no grid), n_median,
            protect=False (h evaluated once on x + ε, ε ~ N(0, σ_a² I)), lattice, precision; see
            `varsmooth.models.settings.Settings`.

    Returns:
        The smoothed classifier, in evaluation mode.
    """
    known = [*(field.name for field in fields(Settings)), "trust"]
    for name in settings:
        check(name in known, f"load has no setting {name!r}{nearest(name, known)}")
    if isinstance(levels := settings.get("cascade"), list | tuple):
        settings["cascade"] = ",".join(map(str, levels))
    return smoothed(load_checkpoint(name_or_path, trust), Settings(**settings))


def smoothed(model: Checkpoint, settings: Settings) -> SmoothedClassifier:
    """The classifier of a model, smoothed as these settings and its description say."""
    if model.classifier is None:
        raise VarsmoothError("this model is a selector without its classifier; load the pair")
    selector = selector_of(model, settings)
    classifier = in_precision(model.classifier, settings.precision)
    return SmoothedClassifier(classifier, selector, lattice=settings.lattice).eval()


def selector_of(model: Checkpoint, settings: Settings) -> Selector:
    """Who chooses the level: these settings first, then what the description recommends."""
    about, given = model.description, settings.of_selector()
    if settings.cascade == "tuned":
        check(
            len(about.cascades) > 0,
            "this model has no tuned cascade; run varsmooth tune MODEL --goal cascade",
        )
        stages = stages_for(about.cascades, 1.0 if settings.lam is None else settings.lam)
        gate = _gate(settings.gate or stages.gate)
        return CascadeSelector(stages.levels, stages.thresholds, gate)
    if settings.cascade is not None:
        return named_cascade(settings)
    if settings.sigma is not None:
        return FixedSelector(settings.sigma)
    if model.selector is None:
        tuned = about.cascades and [*given] == ["lam"]
        check(
            not given and settings.protect,
            f"{[*given, 'protect'][0]} steers a selector, but this model has none; "
            + ("give cascade='tuned' too" if tuned else "leave it out"),
        )
        return FixedSelector(about.default_sigma)
    chosen = {"lam": 0.0, "sigma_a": about.sigma_of_selector, **about.recommended, **given}
    learned = LearnedSelector(model.selector, chosen["sigma_a"], chosen["lam"])
    if not settings.protect:
        unused = given.keys() - {"lam", "sigma_a"}
        check(
            not unused,
            f"{', '.join(sorted(unused))} belongs to the protected selector; "
            "leave it out, or leave out protect=False",
        )
        return learned
    clip, levels = chosen.get("clip"), chosen.get("levels")
    return MedianSelector(
        learned,
        chosen.get("sigma_m", chosen["sigma_a"]),
        n=chosen.get("n_median", N_SELECT),
        clip=None if clip is None else (clip[0], clip[1]),
        levels=None if levels == 0 else levels,
    )


def named_cascade(settings: Settings) -> CascadeSelector:
    """The cascade whose stages were named."""
    check(settings.cascade != "tuned", "only a tuned model has a tuned cascade; name its stages")
    return CascadeSelector(*read_stages(settings.cascade or ""), _gate(settings.gate))


def _gate(confidence: float | None) -> SoftmaxGate | None:
    return None if confidence is None else SoftmaxGate(confidence)
