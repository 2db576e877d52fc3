"""From the name of a model to a smoothed classifier that is ready to use."""

from collections.abc import Collection
from pathlib import Path

from varsmooth.checkpoints import Checkpoint, load_checkpoint
from varsmooth.errors import require
from varsmooth.selectors import FixedSelector, LearnedSelector, MedianSelector, NoiseSelector
from varsmooth.smoothing import SmoothedClassifier


def load(
    name_or_path: str | Path, *, lam: float | None = None, trusted: Collection[str] = ()
) -> SmoothedClassifier:
    """A released model by name, or a model by the path of its folder, as a smoothed classifier.

    A pair of f and h is protected by median smoothing with the settings that its description
    recommends; `lam` overrides the recommended λ. A classifier alone is smoothed at the level it
    was trained for (the middle of its range if it was trained for many).
    trusted: import paths of your own networks, see `varsmooth.checkpoints.load_checkpoint`.
    """
    model = load_checkpoint(name_or_path, trusted)
    require(model.classifier is not None, f"{name_or_path} is a selector without its classifier")
    assert model.classifier is not None
    return SmoothedClassifier(model.classifier, selector_of(model, lam))


def selector_of(model: Checkpoint, lam: float | None = None) -> NoiseSelector:
    """The selector that a model's description recommends."""
    description = model.description
    if model.selector is None:
        require(lam is None, "lam steers a selector, and this model has none; leave it out")
        return FixedSelector(description.sigma_a / (2 if description.universal else 1))
    advice = description.recommended
    sigma_a = description.selector_sigma or description.sigma_a
    if lam is None:
        lam = advice.get("lam", 0.0)
    learned = LearnedSelector(model.selector, sigma_a, lam)
    clip = advice.get("clip")
    return MedianSelector(
        learned,
        advice.get("sigma_m", sigma_a),
        clip=None if clip is None else (clip[0], clip[1]),
        levels=advice.get("levels"),
    ).eval()
