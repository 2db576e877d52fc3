"""From the name of a model to a smoothed classifier that is ready to use."""

import difflib
from collections.abc import Collection
from dataclasses import fields
from pathlib import Path
from typing import Any

from varsmooth.cascade import CascadeSelector, SoftmaxGate
from varsmooth.defaults import N_SELECT
from varsmooth.errors import VarsmoothError, require
from varsmooth.models.checkpoints import Checkpoint, load_checkpoint
from varsmooth.models.settings import Settings, read_stages, stages_for
from varsmooth.selectors import FixedSelector, LearnedSelector, MedianSelector
from varsmooth.smoothing import Selector, SmoothedClassifier


def load(
    name_or_path: str | Path, *, trusted: Collection[str] = (), **settings: Any
) -> SmoothedClassifier:
    """A released model by name, or a model by the path of its folder, as a smoothed classifier.

    A pair of f and h is protected by median smoothing with the settings that its description
    recommends. A classifier alone is smoothed at the level it was trained for (the middle of its
    range if it was trained for many).

    Args:
        name_or_path: as for `varsmooth.models.checkpoints.load_checkpoint`
        trusted: import paths of your own networks that the model may build
        settings: take precedence over what the model recommends: sigma (one fixed level instead
            of a selector), cascade ("1.0:0.6,0.5,0.25", or "tuned") with gate, lam, sigma_a,
            sigma_m, clip, levels (0: no grid), n_median,
            protect=False (h evaluated once on x + ε, ε ~ N(0, σ_a² I)), lattice; see
            `varsmooth.models.settings.Settings`

    Returns:
        The smoothed classifier, in evaluation mode.
    """
    known = [field.name for field in fields(Settings)]
    for name in settings:
        close = difflib.get_close_matches(name, known, n=1, cutoff=0.4) or [", ".join(known)]
        require(name in known, f"load has no setting {name!r}; did you mean {close[0]}?")
    return smoothed(load_checkpoint(name_or_path, trusted), Settings(**settings))


def smoothed(model: Checkpoint, settings: Settings) -> SmoothedClassifier:
    """The classifier of a model, smoothed as these settings and its description say."""
    if model.classifier is None:
        raise VarsmoothError("this model is a selector without its classifier; load the pair")
    selector = selector_of(model, settings)
    return SmoothedClassifier(model.classifier, selector, lattice=settings.lattice).eval()


def selector_of(model: Checkpoint, settings: Settings) -> Selector:
    """Who chooses the level: these settings first, then what the description recommends."""
    about, given = model.description, settings.of_selector()
    if settings.cascade is not None:
        return _cascade(model, settings)
    require(settings.gate is None, "gate belongs to a cascade; give cascade too, or leave it out")
    if settings.sigma is not None or model.selector is None:
        require(
            not given and settings.protect,
            f"{', '.join(given) or 'protect'} steers a selector, but "
            + ("this model has none" if settings.sigma is None else "sigma fixes the level")
            + "; leave it out",
        )
        return FixedSelector(about.default_sigma if settings.sigma is None else settings.sigma)
    chosen = {"lam": 0.0, "sigma_a": about.sigma_of_selector, **about.recommended, **given}
    learned = LearnedSelector(model.selector, chosen["sigma_a"], chosen["lam"])
    if not settings.protect:
        unused = given.keys() - {"lam", "sigma_a"}
        require(
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
    assert settings.cascade is not None
    require(settings.cascade != "tuned", "only a tuned model has a tuned cascade; name its stages")
    require(settings.lam is None, "lam chooses among tuned stages; use cascade=tuned")
    gate = None if settings.gate is None else SoftmaxGate(settings.gate)
    return CascadeSelector(*read_stages(settings.cascade), gate=gate)


def _cascade(model: Checkpoint, settings: Settings) -> CascadeSelector:
    """The stages that were named, or those that `tune` found for λ."""
    assert settings.cascade is not None
    given = settings.of_selector().keys() - {"lam"} | ({"sigma"} if settings.sigma else set())
    require(
        not given and settings.protect,
        f"a cascade needs no {', '.join(sorted(given)) or 'protect'}; leave it out",
    )
    if settings.cascade != "tuned":
        return named_cascade(settings)
    gate = None if settings.gate is None else SoftmaxGate(settings.gate)
    family = model.description.cascades
    require(len(family) > 0, "this model has no tuned cascade; run varsmooth tune, or name stages")
    chosen = stages_for(family, 1.0 if settings.lam is None else settings.lam)
    if gate is None and chosen.gate is not None:
        gate = SoftmaxGate(chosen.gate)
    return CascadeSelector(chosen.levels, chosen.thresholds, gate)
