"""Held-out images of a model: what `varsmooth tune` and `varsmooth measure` share."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from varsmooth.typed import Count, Device, NonNegative, Typed

if TYPE_CHECKING:
    from varsmooth.data import ImageDataset
    from varsmooth.models.checkpoints import Checkpoint
    from varsmooth.models.settings import Settings
    from varsmooth.smoothing import SmoothedClassifier


@dataclass(frozen=True)
class HeldOut(Typed):
    """Images that the model was not trained on.

    Args:
        data: a name from `varsmooth data list`, or a path (default: what the model was trained on)
        split: its held-out split
        images: how many of its images are used
        out: folder for a copy of the model with the results (default: the model's own folder; for
            a released model a new one in the working directory)
    """

    data: str | None = None
    split: str = "val"
    root: Path | None = None
    images: Count = 500
    seed: NonNegative = 0
    device: Device = "auto"
    out: Path | None = None
    trust: list[str] | None = None

    def load(self, model: str) -> "Checkpoint":
        from varsmooth.models.checkpoints import load_checkpoint

        return load_checkpoint(model, self.trust or ())

    def fit(
        self, loaded: "Checkpoint", settings: "Settings"
    ) -> tuple["SmoothedClassifier", "ImageDataset"]:
        """The model smoothed by these settings on the device, and the images in its numbering."""
        from varsmooth.data import load_dataset
        from varsmooth.data.fitting import fitted
        from varsmooth.models.loading import smoothed
        from varsmooth.processes import choose_device

        about = loaded.description
        g = smoothed(loaded, settings).to(choose_device(self.device))
        images = load_dataset(self.data or about.dataset, self.split, self.root)[: self.images]
        return g, fitted(images, g, *about.trained_on)
