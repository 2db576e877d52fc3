"""Where images come from: what a model's description and the options of every verb say of them."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from varsmooth._util.typed import OptionError, Typed
from varsmooth.errors import check
from varsmooth.types import Count

NAMES = ("cifar10", "cifar10-sample")
"""Data sets that have a name; all others are paths."""

Interpolation = Literal["lanczos", "bicubic", "bilinear"]
S = TypeVar("S", bound="Source")


class Preprocessing(NamedTuple):
    """How an image of any size becomes one that a model takes; `data.files.preprocess` does it."""

    resize: int | None = None
    center_crop: int | None = None
    interpolation: Interpolation | None = None  # None: lanczos

    def shape_of(self, height: int, width: int) -> tuple[int, int]:
        """(height, width) of an image afterwards."""
        side = self.center_crop or self.resize
        return (height, width) if side is None else (side, side)


def path_of(data: str | Path) -> Path:
    """The path of images that have no name; it must be there."""
    path = Path(data).expanduser()
    names = ", ".join(NAMES)
    here = path.is_file() or path.is_dir()
    unknown = f"{data} is neither a file, a folder nor one of the data sets {names}"
    check(here, f"{unknown}; check the path, or see varsmooth data list")
    return path


AS_IS = Preprocessing()


@dataclass(frozen=True, kw_only=True)
class Source(Typed):
    """Where images come from, whatever their split.

    Args:
        data: a name from `varsmooth data list`, or the path of your own images (default: those
            that the model was trained on)
    """

    data: str | None = None
    root: Path | None = None
    resize: Count | None = None
    center_crop: Count | None = None
    interpolation: Interpolation | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.center_crop is not None and (self.resize is None or self.center_crop > self.resize):
            raise OptionError("center_crop", "needs a `resize` that is at least as large")
        if self.interpolation is not None and self.resize is None:
            raise OptionError("interpolation", "belongs to `resize`; give both or neither")

    @property
    def preprocessing(self) -> Preprocessing:
        return Preprocessing(self.resize, self.center_crop, self.interpolation)

    def with_defaults(self: S, own: "Source") -> S:
        """With the model's own images where none are named; all are scaled as those were."""
        data, root = self.data, self.root
        if data is None:
            data, root = own.data, root or own.root
            check(
                data is None or data in NAMES or Path(data).expanduser().exists(),
                f"the model was trained on {data}, which is not here; name its images with `data`",
            )
        scaling = self.preprocessing if self.resize else own.preprocessing
        return replace(self, data=data, root=root, **scaling._asdict())

    def words(self, split: str) -> str:
        """Its images in a sentence; those of a model that is not fetched yet have no name."""
        return f"the model's own {split} images" if self.data is None else f"{self.data} {split}"

    def absolute(self: S) -> S:
        """The same with paths that hold from anywhere."""
        data, root = self.data, self.root
        if data is not None and data not in NAMES:
            data = str(Path(data).expanduser().resolve())
        return replace(self, data=data, root=root and root.expanduser().resolve())

    def entries(self) -> dict[str, Any]:
        """What the description of a model that is trained on these images says of them."""
        here = self.absolute()
        return {"dataset": here.data, "root": here.root, **here.preprocessing._asdict()}


def sample() -> Source:
    """The embedded images of CIFAR-10."""
    return Source(data="cifar10-sample")


@dataclass(frozen=True)
class Tuned:
    """The images that a model's settings were chosen on.

    Attributes:
        images: At most so many of the split, evenly from all.
        half: Of the split's images at even places alone; the others are left to certify.
        cascade_only: Only the stages of a cascade were chosen there.
    """

    data: str
    split: str
    images: Count
    half: bool
    cascade_only: bool = False
