"""What an experiment is: a name, the models it needs, its sizes at each scale, and what it does."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from varsmooth.errors import VarsmoothError, require
from varsmooth.report.outcomes import Outcomes
from varsmooth.report.tables import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from reproduce.context import Context

Verdict = Literal["held", "partly", "not", "untested"]
ScaleName = Literal["cpu", "paper"]


def size(what: str, default: Any) -> Any:
    """A field of a scale: what it counts, in words for captions, and its value."""
    return field(default=default, metadata={"what": what})


@dataclass(frozen=True, kw_only=True)
class Scale:
    """The sizes that every experiment has. Each field can be set: `images=500 sigmas=0.25,0.5`."""

    sigmas: tuple[float, ...] = size("σ_a", (0.12, 0.25, 0.5, 1.0))
    images: int = size("test images", 10_000)
    data: str = size("data", "cifar10")
    seed: int = 0


S = TypeVar("S", bound=Scale)


@dataclass(frozen=True)
class Need:
    """A model by the level of its classifier: `0.25`, or `universal-1.00` for one for all levels.

    selector: whether its selector is needed too.
    """

    level: str
    selector: bool = False

    @classmethod
    def fixed(cls, sigma_a: float, selector: bool = False) -> "Need":
        """The model of a classifier that was trained at one level."""
        return cls(f"{sigma_a:.2f}", selector)

    @property
    def released(self) -> str:
        """The name it is released under."""
        return f"cifar10-{self.level}"

    @property
    def presets(self) -> tuple[tuple[str, str], ...]:
        """(kind, name) of the presets that train it, in order."""
        classifier = (("classifier", f"f-{self.level}"),)
        return classifier + ((("selector", f"h-{self.level}"),) if self.selector else ())


@dataclass(frozen=True)
class Claim:
    """One statement of the paper beside what was measured.

    numbers: the measured values by name, for whoever wants to compute with them.
    """

    statement: str
    source: str
    measured: str
    verdict: Verdict
    why: str
    numbers: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Figure:
    """Plots on axes, `columns` in a row, to be drawn with their caption and the small print.

    legend: as for `report.figures.draw`; height: of one line of plots, in inches.
    """

    name: str
    caption: str
    plots: Sequence[Callable[["Axes"], None]]
    columns: int | None = None
    height: float = 3.6
    legend: str | None = "each"


@dataclass(frozen=True)
class Result:
    """What an experiment found. notes: sentences that every caption needs besides the sizes."""

    figures: Sequence[Figure]
    tables: Sequence[Table]
    claims: Sequence[Claim]
    records: Sequence[Outcomes] = ()
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Experiment(Generic[S]):
    """One figure or table of the paper.

    time: how long it takes at each scale, in words.
    """

    name: str
    paper: str
    title: str
    scales: Mapping[ScaleName, S]
    time: Mapping[ScaleName, str]
    needs: Callable[[S], Sequence[Need]]
    run: Callable[["Context", S], Result]

    def scale(self, name: ScaleName, words: Sequence[str] = ()) -> S:
        """The sizes at a scale, with those that are asked for as `key=value` changed."""
        return resized(self.scales[name], words)


def resized(scale: S, words: Sequence[str]) -> S:
    """The scale with `key=value` words applied; a value reads as the field's own kind.

    >>> resized(Scale(), ["images=100", "sigmas=0.25,0.5"]).sigmas
    (0.25, 0.5)
    """
    known = [entry.name for entry in fields(scale)]
    changes: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.partition("=")
        require(bool(equals), f"a size is written key=value, not {word!r}")
        require(key in known, f"there is no size {key!r}; known are {', '.join(known)}")
        try:
            changes[key] = _read(text, getattr(scale, key))
        except ValueError:
            raise VarsmoothError(f"the value of {word!r} cannot be read") from None
    return replace(scale, **changes)


def _read(text: str, like: Any) -> Any:
    if isinstance(like, tuple):
        parts = [part.strip() for part in text.strip("[]()").split(",") if part.strip()]
        return tuple(_read(part, like[0]) for part in parts)
    return type(like)(text)


def reductions(scale: Scale, full: Scale) -> list[str]:
    """Where a scale differs from the paper's, in words.

    >>> reductions(Scale(images=250), Scale())
    ['test images: 250 (paper: 10000)']
    """
    mine, theirs = asdict(scale), asdict(full)
    return [
        f"{entry.metadata['what']}: {_shown(mine[name])} (paper: {_shown(theirs[name])})"
        for entry in fields(scale)
        if "what" in entry.metadata and mine[name := entry.name] != theirs[name]
    ]


def _shown(value: Any) -> str:
    if isinstance(value, tuple) and len(value) > 8:
        return f"{len(value)} from {_shown(value[0])} to {_shown(value[-1])}"
    if isinstance(value, tuple):
        return ", ".join(_shown(item) for item in value) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)
