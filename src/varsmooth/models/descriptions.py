"""The description of a model: the `config.json` beside its weights, read without torch.

A description is untrusted input: every entry is checked against its type, so that a malformed file
gives one clear error.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from varsmooth import __version__
from varsmooth._util.files import check_unused, replace_file
from varsmooth._util.typed import OptionError, read
from varsmooth._util.untrusted import check_limit, read_object
from varsmooth.data.source import Interpolation, Preprocessing, Source, Tuned, sample
from varsmooth.errors import VarsmoothError, check, nearest, wrap_errors
from varsmooth.models.names import PREFIX, fetch, is_code, missing_colon
from varsmooth.models.options import KINDS, ModelOptions, TunedStages
from varsmooth.types import Positive

FORMAT = 1
CONFIG, WEIGHTS, CARD = "config.json", "model.safetensors", "README.md"
STATES = (".bin", ".ckpt", ".onnx", ".pkl", ".pt", ".pth", ".safetensors")
"""Endings of files of weights."""


@dataclass(frozen=True)
class Part:
    """One network of a model: how to build it, where it comes from, how good it is.

    Attributes:
        network: As for `varsmooth.models.networks.build`.
        options: Keyword arguments of the network.
        training: The configuration of the run.
        history: What each epoch reported.
        metrics: What was measured on the network, by split.
    """

    network: str
    options: dict[str, Any] = field(default_factory=dict)
    seed: int | None = None
    training: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    metrics: dict[str, Any] = field(default_factory=dict)
    fingerprint: str = ""


@dataclass(frozen=True)
class Description:
    """What a user needs to know about a model before using it.

    Attributes:
        dataset, root: Where the training images come from.
        resize, center_crop, interpolation: How they were scaled, see `Source`.
        sigma_a: The level that f was trained at, or σ_a', the upper end of its range, if
            `universal`.
        selector_sigma: σ_a of h, an input in its training.
        sigma_t: The target level of h.
        lam_range: The λ that h was trained with.
        recommended: Options chosen on held-out images, any of sigma, lam, sigma_m, clip, levels.
        cascades: The stages chosen there, by rising λ from 0 on.
        single: The single σ with the largest average radius there, as a cascade of one stage.
        tuned: Which images these were, where `varsmooth tune` has chosen.
        image_shape: (channels, height, width) of the training images.
    """

    dataset: str
    class_names: tuple[str, ...]
    sigma_a: Positive
    universal: bool = False
    selector_sigma: Positive | None = None
    sigma_t: Positive | None = None
    lam_range: tuple[float, float] | None = None
    recommended: dict[str, Any] = field(default_factory=dict)
    cascades: tuple[TunedStages, ...] = ()
    single: TunedStages | None = None
    pixel_range: tuple[float, float] = (0.0, 1.0)
    image_shape: tuple[int, int, int] | None = None
    classifier: Part | None = None
    selector: Part | None = None
    version: str = __version__
    format: int = FORMAT
    root: Path | None = None
    resize: int | None = None
    center_crop: int | None = None
    interpolation: Interpolation | None = None
    tuned: Tuned | None = None

    @property
    def source(self) -> Source:
        """The images of its training."""
        scaling = Preprocessing(self.resize, self.center_crop, self.interpolation)
        return Source(data=self.dataset, root=self.root, **scaling._asdict())

    @property
    def samples(self) -> Source:
        """Images like those of its training: of CIFAR-10 the embedded sample."""
        return sample() if self.dataset == "cifar10" else self.source

    @property
    def trained_sigma(self) -> float:
        """The level f was trained for: σ_a, or the middle of the range (0, σ_a']."""
        return self.sigma_a / 2 if self.universal else self.sigma_a

    @property
    def adopted(self) -> bool:
        """Whether no part was trained here: σ_a is then a default, not a level of training."""
        return not any(part and part.training for part in (self.classifier, self.selector))

    @property
    def default_sigma(self) -> float:
        """The one level to smooth f with unless the caller chooses another."""
        return float(self.recommended.get("sigma", self.trained_sigma))

    def untrained_note(self, levels: Iterable[float]) -> str | None:
        """A note on levels f was not trained for: above 2 σ_a, and below σ_a / 2 if not universal.

        None if there are no such levels.
        """
        part = self.classifier
        if part is None or not part.training:  # never trained under noise, or not known
            return None
        lowest = 0.0 if self.universal else self.sigma_a / 2.01
        far = [f"{s:g}" for s in levels if not lowest <= s <= 2.01 * self.sigma_a]
        trained = f"{'up to' if self.universal else 'at'} σ = {self.sigma_a:g}"
        expect = f"expect low accuracy at σ = {', '.join(far)}"
        return f"the classifier was trained {trained}; {expect}" if far else None

    @property
    def trained_on(self) -> tuple[tuple[str, ...], tuple[int, int, int] | None]:
        """Classes and shape of the images: what `varsmooth.data.fitting.fitted` compares with."""
        return self.class_names, self.image_shape

    @property
    def sigma_of_selector(self) -> float:
        """σ_a of h; without an entry of its own, the level f was trained for."""
        return self.selector_sigma or self.trained_sigma


def find(name_or_path: str | Path) -> Path:
    """The folder of a model: a path that has a description, a released name, or hf://owner/name."""
    name_or_path = read("name_or_path", str | Path, name_or_path)
    if str(name_or_path).startswith(PREFIX):
        return fetch(str(name_or_path))
    path = Path(name_or_path).expanduser()
    if (path / CONFIG).is_file():
        return path
    if (_released() / str(name_or_path) / CONFIG).is_file():
        return _released() / str(name_or_path)
    if (other := _not_a_model(str(name_or_path), path)) is not None:
        raise VarsmoothError(f"{name_or_path} is {other}")
    beside = [str(config.parent) for config in path.parent.glob(f"*/{CONFIG}")]
    raise VarsmoothError(
        f"{name_or_path} is neither a folder with a {CONFIG} nor a released model"
        + (
            missing_colon(str(name_or_path))
            or nearest(str(name_or_path), [*released_names(), *sorted(beside)])
        )
    )


def _not_a_model(name: str, path: Path) -> str | None:
    """What a name stands for that is often given for a model's, and what to type instead."""
    if is_code(name):
        return (
            f"code, not a model; run varsmooth adopt {name} first and name the folder that it "
            "writes"
        )
    if path.name in (CONFIG, WEIGHTS) and (path.parent / CONFIG).is_file():
        return f"a file of a model; name its folder, {path.parent}"
    if (path / "run.json").is_file():
        return "a run, not a model; name the folder of the model that made it"
    if path.is_file() or path.suffix in STATES:
        return (
            "a file, and a model is a folder; a file of weights becomes one if a function of "
            "yours loads it: varsmooth adopt package.module:function (training starts from a "
            ".safetensors file too)"
        )
    return None


def released_names() -> list[str]:
    """The models that come with the package."""
    return sorted(path.parent.name for path in _released().glob(f"*/{CONFIG}"))


def is_released(folder: Path) -> bool:
    """Whether this folder belongs to the package, where nothing is ever written."""
    return folder.resolve().is_relative_to(_released().resolve())


def _released() -> Path:
    return Path(__file__).parent / "released"


def describe(name_or_path: str | Path) -> Description:
    """The description of a model, without reading its weights."""
    path = find(name_or_path) / CONFIG
    advice = "varsmooth adopt makes one of a network of your own"  # of transformers, for example
    _, about = read_object(path, Description, FORMAT, "model of varsmooth", advice=advice)
    impossible = f"{path} recommends impossible options"
    with wrap_errors(OptionError, lambda error: f"{impossible}: {error}; copy it again"):
        for name in KINDS.keys() & about.recommended.keys():
            ModelOptions(**{name: about.recommended[name]})
    count = len(about.class_names)
    check_limit("CLASSES", count, f"{path} names {count:,} classes")
    description: Description = about
    return description


def recommend(folder: str | Path, options: Mapping[str, Any]) -> Description:
    """Write recommended options (sigma, lam, sigma_m, clip, levels) into a model's description."""
    return rewrite(folder, replace(describe(folder), recommended=dict(options), tuned=None))


def rewrite(folder: str | Path, description: Description) -> Description:
    """Replace the description of a model in one step; its weights stay as they are."""
    folder = find(folder)
    check(
        not is_released(folder),
        f"{folder.name} is a released model and is never changed; write to a copy of it",
    )
    write(folder, description)
    return describe(folder)


def results_folder(name_or_path: str | Path, out: Path | None, suffix: str) -> Path:
    """The folder that may hold new results about a model: `out`, or its own folder.

    For a released model without `out` it is NAME-suffix in the working directory.
    """
    source = find(name_or_path)
    return out or (Path(f"{source.name}-{suffix}") if is_released(source) else source)


def check_new_model(out: Path) -> None:
    """A folder for a new model is empty, or a killed command wrote weights but no description."""
    whole = (out / CONFIG).exists() and (out / WEIGHTS).exists()
    same = f"{out} holds a model already, as adopt writes it; choose another `out`"
    check(not whole, same)
    unfinished = (out / WEIGHTS).exists() and not (out / CONFIG).exists()
    check_unused(out, *((WEIGHTS, CARD) if unfinished else ()))


def copy_model(name_or_path: str | Path, out: Path | None, suffix: str) -> Path:
    """The same folder, with the model copied into it."""
    source, out = find(name_or_path), results_folder(name_or_path, out, suffix)
    check(not is_released(out), f"{out} belongs to the package; choose another folder")
    if out.resolve() != source.resolve():
        replace_file(out / WEIGHTS, (source / WEIGHTS).read_bytes())
        replace_file(out / CONFIG, (source / CONFIG).read_bytes())
    return out


def write(folder: Path, description: Description) -> None:
    """Write the description into the folder of its model, in one step."""
    text = json.dumps(asdict(description), indent=1, default=str) + "\n"
    replace_file(folder / CONFIG, text.encode())
