"""From the name of a model to a smoothed classifier that is ready to use."""

import warnings
from collections.abc import Collection, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from torch import nn

from varsmooth.cascade import CascadeSelector
from varsmooth.errors import VarsmoothError, check, nearest
from varsmooth.models.adapters import in_precision
from varsmooth.models.checkpoints import Checkpoint, load_checkpoint
from varsmooth.models.options import ModelOptions
from varsmooth.models.selection import resolve_selector
from varsmooth.selectors import FixedSelector, LearnedSelector, MedianSelector
from varsmooth.smoothing import Selector, SmoothedClassifier


def load(
    name_or_path: str | Path, *, trust: Collection[str] = (), **options: Any
) -> SmoothedClassifier:
    """A released model by name, or a model by the path of its folder, as a smoothed classifier.

    What chooses its noise level unless the options say otherwise: the cascade that `varsmooth tune`
    has stored with the model; else its selector network, protected by median smoothing as its
    description recommends; else one σ, the level it was trained for (the middle of its range if it
    was trained for many; for an adopted one, the best of the levels that `varsmooth adopt` tried).

    Args:
        name_or_path: As for `varsmooth.models.checkpoints.load_checkpoint`.
        trust: Import paths of your own networks that the model may build.
        options: selector ("cascade", "median", "learned": h evaluated once on x + ε,
            ε ~ N(0, σ_a² I), or "fixed"), sigma (one fixed level), cascade (levels, as in
            [1.0, 0.5, 0.25], or stages LEVEL:THRESHOLD:GATE, as in "1.0:0.6:0.4,0.5,0.25"), lam,
            sigma_a, sigma_m, clip, levels (0: no grid), n_median, lattice, precision; see
            `varsmooth.models.options.ModelOptions`.

    Returns:
        The smoothed classifier, in evaluation mode.
    """
    known = [field.name for field in fields(ModelOptions) if field.name != "model"]
    for name in options:
        check(name in known, f"load has no option {name!r}{nearest(name, known)}")
    if isinstance(levels := options.get("cascade"), list | tuple):
        options["cascade"] = ",".join(map(str, levels))
    checkpoint = load_checkpoint(name_or_path, trust)
    chosen = ModelOptions(str(name_or_path), **options)
    g = smoothed(checkpoint, chosen)
    if chosen.sigma is not None or chosen.cascade is not None:
        levels = resolve_selector(checkpoint.description, chosen).every_level
        if (note := checkpoint.description.untrained_note(levels)) is not None:
            warnings.warn(note, stacklevel=2)
    return g


def smoothed(model: Checkpoint, options: ModelOptions) -> SmoothedClassifier:
    """The classifier of a model, smoothed as these options and its description say."""
    if model.classifier is None:
        raise VarsmoothError("this model is a selector without its classifier; load the pair")
    plan = resolve_selector(model.description, options)
    selector = make_selector(plan.about, model.selector)
    return smooth(model.classifier, selector, options)


def smooth(classifier: nn.Module, selector: Selector, options: ModelOptions) -> SmoothedClassifier:
    """A classifier and its selector with the precision and the kind of noise of the options."""
    classifier = in_precision(classifier, options.precision)
    return SmoothedClassifier(classifier, selector, lattice=options.lattice).eval()


def make_selector(about: Mapping[str, Any], network: nn.Module | None = None) -> Selector:
    """The selector that a plan or a run's header describes: the inverse of `describe`."""
    kind = about["selector"]
    if kind == "fixed":
        return FixedSelector(about["sigma"])
    if kind == "cascade":
        check(
            not isinstance(about["gates"], dict),
            "a gate that is a function cannot be made from its description; load the model by its "
            "factory",
        )
        return CascadeSelector(about["levels"], about["thresholds"], about["gates"])
    if kind == "learned":
        if network is None:
            raise VarsmoothError(
                "this selector needs its network; load the model with its selector"
            )
        return LearnedSelector(network, about["sigma_a"], about["lam"])
    check(kind == "median", f"a {kind} selector cannot be made from its description")
    clip = about["clip"]
    return MedianSelector(
        make_selector(about["inner"], network),
        about["sigma_m"],
        n=about["n"],
        clip=None if clip is None else (clip[0], clip[1]),
        levels=about["levels"],
    )
