"""Held-out images of a model: what `varsmooth tune` and `varsmooth measure` share."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from varsmooth.cli.feedback import announce, check_here, command
from varsmooth.files import check_unused
from varsmooth.models.descriptions import CONFIG, Tuned, describe
from varsmooth.models.settings import Settings
from varsmooth.models.source import Source
from varsmooth.typed import Count, Device, NonNegative

if TYPE_CHECKING:
    from varsmooth.data import ImageDataset
    from varsmooth.models.checkpoints import Checkpoint
    from varsmooth.smoothing import SmoothedClassifier


@dataclass(frozen=True, kw_only=True)
class HeldOut(Source):
    """Images that the model was not trained on.

    Args:
        split: their held-out split
        images: how many of its images are used
        out: folder for a copy of the model with the results (default: the model's own folder; for
            a released model a new one in the working directory)
    """

    split: str = "val"
    images: Count = 500
    seed: NonNegative = 0
    device: Device = "auto"
    out: Path | None = None
    trust: list[str] | None = None

    def certify(self, model: str | Path, **settings: object) -> str:
        """The command that certifies the tuned model on images that tuning has not seen."""
        from varsmooth.data.catalog import unseen_split

        about = describe(model)
        own = unseen_split(self.filled(about.source))
        given = {"trust": self.trust, "data": self.data, "root": self.root, "resize": self.resize}
        given["split"] = None if own == "test" else own
        given["subset"] = "1::2" if about.tuned is not None and about.tuned.half else None
        return command(f"certify --model {model}", **given, **settings)

    def tuned(self, model: str) -> Tuned:
        """The images to choose settings on: half of them where there are no others to certify."""
        from varsmooth.data.catalog import unseen_split

        source = self.filled(describe(model).source).absolute()
        half = self.split == unseen_split(source) == "val"
        return Tuned(str(source.data), self.split, self.images, half)

    def announce(self, doing: str, model: str, n: int) -> None:
        """Say what will be done, or what is not there."""
        source = check_here(model, self, trained=True)
        if self.out is not None and not (self.out / CONFIG).exists():
            check_unused(self.out)
        images = f"at most {self.images} of {source.words(self.split)}"
        announce(doing, self.device, images=images, n=n)

    def fit(
        self, model: str, settings: Settings, tuned: Tuned | None = None
    ) -> tuple["Checkpoint", "SmoothedClassifier", "ImageDataset"]:
        """The model, smoothed by these settings on the device, and images in its numbering."""
        from varsmooth.data import load_source
        from varsmooth.data.catalog import tuned_images
        from varsmooth.data.fitting import fitted
        from varsmooth.models.checkpoints import load_checkpoint
        from varsmooth.models.loading import smoothed
        from varsmooth.processes import choose_device

        loaded = load_checkpoint(model, self.trust or ())
        about = loaded.description
        g = smoothed(loaded, settings).to(choose_device(self.device))
        images = load_source(self.filled(about.source), self.split)
        chosen = images.few(self.images) if tuned is None else tuned_images(tuned, images)
        return loaded, g, fitted(chosen, g, *about.trained_on)
