"""What happens when something is pressed: plain values in, pieces of HTML out."""

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from functools import lru_cache
from pathlib import Path

import numpy as np

from varsmooth.app import attacking, certifying, fragments
from varsmooth.app.attacking import Kind
from varsmooth.app.jobs import Bench, Job
from varsmooth.app.knobs import Knobs
from varsmooth.app.looking import look
from varsmooth.app.models import Model
from varsmooth.app.runs import OpenRun
from varsmooth.app.uploads import open_upload
from varsmooth.data import ImageDataset, load_dataset
from varsmooth.data.fitting import renumbered
from varsmooth.defaults import MODEL
from varsmooth.errors import require
from varsmooth.models.descriptions import released_names

Tell = Callable[[float], None]
"""Told which share of the work is done."""


class Desk:
    """The models, sample images and runs that a page offers, and the work on them.

    model: the first to be shown, a released name or a folder; data: where samples come from;
    run: a run folder to offer; any_run: whether a visitor may name another;
    trust: import paths of networks that the models may load.
    """

    def __init__(
        self,
        model: str | None = None,
        data: str = "cifar10-sample",
        run: Path | None = None,
        any_run: bool = True,
        trust: Collection[str] = (),
    ) -> None:
        self.trust = trust
        self.first_model = model or MODEL
        self.models = list(dict.fromkeys([self.first_model, *released_names()]))
        self.run = run
        self.any_run = any_run
        self.bench = Bench()
        self.model = lru_cache(maxsize=4)(self._load)
        self.samples = few_of_each(load_dataset(data))
        self.model(self.first_model)  # a model that cannot be loaded is told at once

    def _load(self, name: str) -> Model:
        require(name in self.models, f"{name} was not offered when the page was started")
        return Model.load(name, self.trust)

    def sample(self, number: int) -> ImageDataset:
        """One of the sample images."""
        return self.samples[number : number + 1]

    def label(self, image: ImageDataset, model: Model) -> int | None:
        """The image's label in the model's numbering."""
        labels = renumbered(image, model.class_names).labels
        return None if labels is None else int(labels[0])

    def upload(self, path: str, model: str) -> tuple[ImageDataset, str]:
        """An uploaded picture in the size that the model wants, and what was done to it."""
        height, _, channels = self.samples.images.shape[1:]
        shape = self.model(model).about.image_shape
        return open_upload(path, shape[1] if shape else height, channels)

    def look(
        self, owner: str, name: str, image: ImageDataset, knobs: Knobs, seed: int
    ) -> tuple[str, str, str]:
        """View, selector and votes of one image."""
        model, knobs = self.model(name), knobs.check()
        with self.bench.job(owner) as job, self._watching(job, model):
            view = look(model, renumbered(image, model.class_names).batch([0]), knobs, seed)
        names, answer = model.class_names, view.answer
        return (
            fragments.view_html(view, names, self.label(image, model)),
            fragments.levels_html(view.levels),
            fragments.votes_html(answer.counts, names, answer.prediction, fragments.VOTES),
        )

    def certify(
        self, owner: str, name: str, image: ImageDataset, knobs: Knobs, tell: Tell | None = None
    ) -> str:
        """Every certificate of one image, and how the sound one is built."""
        model, knobs = self.model(name), knobs.check()
        most = certifying.most_images(model, knobs)
        batch = renumbered(image, model.class_names).batch([0])
        with self.bench.job(owner, _share(tell, most)) as job, self._watching(job, model):
            found = certifying.certify_each_way(model, batch, knobs)
        return fragments.certified_html(found, model.class_names, knobs.budget)

    def attack(
        self,
        owner: str,
        name: str,
        image: ImageDataset,
        knobs: Knobs,
        steps: int,
        kind: Kind,
        tell: Tell | None = None,
    ) -> str:
        """One image before and after an attack."""
        model, knobs = self.model(name), knobs.check()
        most = attacking.most_images(model, knobs, steps, kind)
        batch = renumbered(image, model.class_names).batch([0])
        with self.bench.job(owner, _share(tell, most)) as job, self._watching(job, model):
            found = attacking.attack(model, batch, knobs, steps, kind)
        return fragments.attacked_html(found, model.class_names, knobs.budget)

    def open_run(self, folder: str) -> OpenRun:
        """A run by the path of its folder."""
        require(bool(folder.strip()), "name the folder of a run, as given to --out")
        chosen = Path(folder.strip())
        require(
            self.any_run or chosen == self.run,
            "this page shows only the run that it was started with",
        )
        with self.bench.job("runs"):
            return OpenRun.open(chosen)

    @staticmethod
    def _watching(job: Job, model: Model) -> AbstractContextManager[None]:
        return job.watching(model.checkpoint.classifier, model.checkpoint.selector)


def few_of_each(images: ImageDataset, most: int = 20) -> ImageDataset:
    """The first images of each class in turn, or the first ones where nothing is labelled."""
    if images.labels is None:
        return images[:most]
    kinds = np.unique(images.labels)
    each = max(1, most // len(kinds))
    first = [np.flatnonzero(images.labels == kind)[:each] for kind in kinds]
    return images[np.concatenate(first)[:most]]


def _share(tell: Tell | None, most: int) -> Callable[[int], None] | None:
    return None if tell is None else lambda images: tell(min(1.0, images / most))
