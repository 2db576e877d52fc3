"""Request handlers: plain values in, pieces of HTML out."""

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from varsmooth.app import views, work
from varsmooth.app.options import PageOptions, Smoothers, sliders_for
from varsmooth.app.uploads import MAX_BYTES, decoded, open_picture, open_upload
from varsmooth.app.worker import Job, Worker
from varsmooth.certificates import Certificate
from varsmooth.data import ImageDataset, load_source
from varsmooth.data.catalog import unseen_split
from varsmooth.data.fitting import fitted
from varsmooth.data.source import Source
from varsmooth.defaults import MODEL
from varsmooth.errors import check
from varsmooth.evaluation.report import pages
from varsmooth.models.descriptions import Description, describe, released_names

Body = Mapping[str, Any]
Pieces = dict[str, str]  # of HTML, by the slots of the page
GRID_SIZE = 12  # images in the view of several
THUMBNAIL = 160  # pixels a side, at most
AGREE = 16  # votes that choose the sample of the first view


@dataclass(frozen=True)
class ImageRequest:
    """A request about one image."""

    model: Smoothers
    image: ImageDataset  # of length 1
    options: PageOptions
    seed: int

    @property
    def label(self) -> int | None:
        return None if self.image.labels is None else int(self.image.labels[0])


class Backend:
    """The models, sample images and runs that a page offers, and the work on them."""

    def __init__(
        self,
        model: str | None = None,  # the first to be shown, a released name or a folder
        data: str | None = None,  # where its samples come from; by default its own data set
        run: Path | None = None,  # the folder of a run to open
        any_run: bool = True,  # whether a visitor may name another
        trust: Collection[str] = (),  # import paths of networks that the models may load
    ) -> None:
        self.trust = trust
        self.first_model = model or MODEL
        self.models = list(dict.fromkeys([self.first_model, *released_names()]))
        self.data = data
        self.run = run
        self.any_run = any_run
        self.worker = Worker()
        self.model = lru_cache(maxsize=4)(self._load)
        self.samples = lru_cache(maxsize=4)(self._samples)
        self.first_sample = lru_cache(maxsize=4)(self._first_sample)
        self.image = lru_cache(maxsize=32)(self._image)
        self.many = lru_cache(maxsize=4)(self._many)
        self.certificates = lru_cache(maxsize=32)(work.certify_as)
        self.fixed_levels = lru_cache(maxsize=32)(work.certify_levels)  # do not depend on λ
        # Fail at the start if something cannot be loaded or does not fit.
        self.first_sample(self.first_model)
        if run is not None:
            views.open_run(run)
        self.handlers: dict[str, Callable[[Body, Job], Pieces]] = {
            "look": self.look,
            "curve": self.curve,
            "certify": self.certify,
            "attack": self.attack,
            "several": self.several,
            "run": self.browse,
            "evidence": self.evidence,
        }

    def about(self, name: str) -> Description:
        """The description of a model that the page offers."""
        check(
            name in self.models, f"this app does not offer {name}; restart it with --model {name}"
        )
        return describe(name)

    def _load(self, name: str) -> Smoothers:
        self.about(name)
        return Smoothers.load(name, self.trust)

    def _samples(self, name: str) -> ImageDataset:
        """Sample images for a model, of its own data set, with labels in its numbering."""
        model = self.model(name)
        named = Source(data=self.data if name == self.first_model else None)
        source, shape = named.with_defaults(model.about.samples), model.about.image_shape
        split = "test" if named.data is not None else unseen_split(source)
        if shape is not None and shape[1] == shape[2] and source.center_crop is None:
            source = replace(source, resize=shape[1])
        images = few_of_each(load_source(source, split))
        return fitted(images, model.at(model.about.default_sigma), model.about.class_names, shape)

    def _first_sample(self, name: str) -> int:
        """The first sample whose votes agree on its class, so that the first view shows a radius.

        A few votes at the model's own level decide, far fewer than a prediction takes.
        """
        model, samples = self.model(name), self.samples(name)
        g = model.at(model.about.default_sigma)
        for i in range(len(samples)):
            x, labels, ids = samples.batch([i])
            votes = g.votes(x, AGREE, noise=g.noise(1, 0, ids))[0]
            if int(votes.max() if labels is None else votes[labels[0]]) == AGREE:
                return i
        return 0

    def _many(self, name: str) -> ImageDataset:
        """Evenly spaced sample images, shown side by side."""
        samples = self.samples(name)
        places = np.linspace(0, len(samples) - 1, min(GRID_SIZE, len(samples)))
        return samples[places.round().astype(int)]

    def page(self, name: str) -> str:
        """The whole page for one model."""
        about, samples = self.about(name), self.samples(name)
        return views.templates.get_template("page.html").render(
            backend=self,
            model=name,
            about=about,
            sliders=sliders_for(about),
            first=vars(PageOptions.recommended(about)),
            thumbnails=[pages.picture(image, THUMBNAIL) for image in samples.pixels],
            samples=samples,
            max_bytes=MAX_BYTES,
        )

    # One image

    def upload(self, content: bytes, name: str, model: str) -> dict[str, Any]:
        """An uploaded picture in the size of the model's input, and how it was preprocessed."""
        image, note = open_upload(content, name, self.samples(model).shape)
        encoded = views.picture(image.batch([0]).images[0]).partition(",")[2]
        return {"picture": encoded, "html": {"note": views.parts.note(note)}}

    def read_request(self, body: Body) -> ImageRequest:
        """Parse and check a request."""
        name, image = str(body.get("model")), body.get("image")
        model = self.model(name)
        check(isinstance(image, Mapping), "a request needs an image")
        assert isinstance(image, Mapping)
        picture = decoded(str(image["picture"])) if "picture" in image else None
        chosen = self.image(name, picture, 0 if picture else image.get("sample"))
        options = PageOptions.read(body.get("options"), model.about)
        return ImageRequest(model, chosen, options, whole("seed", body.get("seed", 0), 2**31))

    def _image(self, name: str, picture: bytes | None, sample: Any) -> ImageDataset:
        """A picture, or a sample image by its number, with its label in the model's numbering."""
        samples = self.samples(name)
        if picture is not None:
            return open_picture(picture, samples.shape)
        number = whole("sample", sample, len(samples))
        return samples[number : number + 1]

    def look(self, body: Body, job: Job) -> Pieces:
        """Prediction, σ and radius of one image; `advanced`, `paper`: what their panels show."""
        q = self.read_request(body)
        model, options = q.model, q.options
        with watching(job, model, work.most_to_look(model, options)):
            view = work.look(model, q.image, options, q.seed)
            deployed = self._preview(model.in_use, q)
            drawn = None
            if body.get("paper") and model.has_selector:
                drawn = work.draws_of_selector(model, q.image, options, q.seed)
        result, names = view.result, model.about.class_names
        html = {
            "answer": views.one.answer(view, deployed, names, q.label),
            "grid": views.one.grid(model.levels(options), result.sigma),
        }
        if body.get("advanced"):
            html["noisy"] = views.one.noisy(view)
            html["votes"] = views.parts.votes(result.counts, names, result.prediction)
        if drawn is not None:
            html["draws"] = views.parts.draws(*drawn, options.budget, f"{options.budget:g}")
        return html

    def curve(self, body: Body, job: Job) -> Pieces:
        """The certified radius of one image at every fixed σ, and at the level in use."""
        q = self.read_request(body)
        model, options = q.model, q.options
        levels = work.curve_levels(model, options)
        with watching(job, model, work.most_to_look(model, options)):
            ways = {way: self._preview(way, q) for way in dict.fromkeys((model.in_use, "cascade"))}
            fixed = self.fixed_levels(model, q.image, levels, options.n, q.seed)
        shown = fixed, model.levels(options), ways, options.sigma, q.label
        return {"curve": views.one.curve(*shown)}

    def certify(self, body: Body, job: Job) -> Pieces:
        """Every certificate of one image under fresh noise, and how the sound one is built."""
        q = self.read_request(body)
        with watching(job, q.model, work.most_to_certify(q.model, q.options)):
            certificates = work.certify_each_way(q.model, q.image, q.options)
        names = q.model.about.class_names
        shown = certificates, q.model.in_use, names, q.options.budget
        return {"certified": views.one.certified(*shown)}

    def attack(self, body: Body, job: Job) -> Pieces:
        """One image before and after an attack."""
        q = self.read_request(body)
        kind: work.AttackKind = "weak" if body.get("kind") == "weak" else "strong"
        with watching(job, q.model, work.most_to_attack(q.model, q.options, kind)):
            attacked = work.attack(q.model, q.image, q.options, kind)
        names = q.model.about.class_names
        return {"attacked": views.one.attacked(attacked, names, q.options.budget)}

    def _preview(self, way: str, q: ImageRequest) -> Certificate:
        """The certificate of one smoothed classifier, cached by the options that it depends on."""
        return self.certificates(way, q.model, q.image, q.model.read_by(way, q.options), q.seed)[0]

    # Several images

    def several(self, body: Body, job: Job) -> Pieces:
        """σ and radius of each of several images, for every smoothed classifier."""
        name = str(body.get("model"))
        model, images = self.model(name), self.many(name)
        options = PageOptions.read(body.get("options"), model.about)
        with watching(job, model, len(images) * work.most_to_certify(model, options)):
            ways = {
                way: self.certificates(way, model, images, model.read_by(way, options), 0)
                for way in model.ways
            }
        radii = {way: views.true_radii(each, images.labels) for way, each in ways.items()}
        shown = (images.batch(slice(None)).images, images.labels, ways, radii)
        return {"several": views.several.several(*shown, model.about.class_names)}

    # Runs

    def browse(self, body: Body, job: Job) -> Pieces:
        """A part of the table of a run; with `all` also its overview."""
        run = self._opened(body)
        start = whole("start", body.get("start", 0), len(run.outcomes) + 1)
        html = {"table": run.table_html(str(body.get("kind", views.EVERYTHING)), start)}
        return html | (run.overview_html() if body.get("all") else {})

    def evidence(self, body: Body, job: Job) -> Pieces:
        run = self._opened(body)
        return {"evidence": run.evidence_html(whole("row", body.get("row"), 2**31))}

    def _opened(self, body: Body) -> views.OpenRun:
        named = str(body.get("folder", "")).strip()
        check(bool(named), "name the folder of a run, the --out of its command")
        check(
            self.any_run or Path(named) == self.run,
            "this page shows only the run that it was started with",
        )
        return views.open_run(named)


def watching(job: Job, model: Smoothers, most: int) -> AbstractContextManager[None]:
    return job.watching(most, model.checkpoint.classifier, model.checkpoint.selector)


def few_of_each(images: ImageDataset, most: int = 20) -> ImageDataset:
    """The first images of each class in turn, or the first ones where nothing is labelled."""
    if images.labels is None:
        return images[:most]
    kinds = np.unique(images.labels)
    each = max(1, most // len(kinds))
    first = [np.flatnonzero(images.labels == kind)[:each] for kind in kinds]
    return images[np.concatenate(first)[:most]]


def whole(name: str, value: Any, end: int) -> int:
    """An integer 0 ≤ value < end from a request."""
    check(
        isinstance(value, int) and not isinstance(value, bool) and 0 <= value < end,
        f"{name} must be an integer from 0 to {end - 1}",
    )
    return int(value)
