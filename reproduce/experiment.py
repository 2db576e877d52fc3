"""What an experiment is: a name, the models it needs, its sizes at each scale, and what it does."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from varsmooth.errors import VarsmoothError
from varsmooth.report.tables import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from reproduce.context import Context

Verdict = Literal["held", "not", "partly", "undecided", "trivial", "untested"]
ScaleName = Literal["cpu", "paper"]


def size(what: str, default: Any, stated: bool = True) -> Any:
    """A field of a scale: what it counts, in words for captions, and its value at full scale.

    stated: whether the paper states that value; otherwise it is ours.
    """
    return field(default=default, metadata={"what": what, "stated": stated})


@dataclass(frozen=True, kw_only=True)
class Scale:
    """The sizes that every experiment has. Each field is an option: `--images 500`."""

    sigmas: tuple[float, ...] = size("σ_a", (0.12, 0.25, 0.5, 1.0))
    images: int = size("test images", 10_000, stated=False)
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

    @classmethod
    def universal(cls, sigma_a: float) -> "Need":
        """The pair of a classifier for all levels up to this one."""
        return cls(f"universal-{sigma_a:.2f}", selector=True)

    @property
    def title(self) -> str:
        """`σ_a = 0.25`, or `σ_a′ = 1` of a classifier for all levels up to that one."""
        kind, _, level = self.level.rpartition("-")
        return f"{'σ_a′' if kind else 'σ_a'} = {float(level):g}"

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
    """One statement beside what was measured.

    source: where the paper states it; "ours" if it does not.
    number: the one that matters most; measured: all of them, with intervals; numbers: the same by
    name, for whoever wants to compute with them.
    """

    statement: str
    source: str
    number: str
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
    notes: Sequence[str] = ()


def pair_needs(scale: Scale) -> list[Need]:
    """Classifier and selector of every σ_a."""
    return [Need.fixed(sigma, selector=True) for sigma in scale.sigmas]


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
    run: Callable[["Context", S], Result]
    needs: Callable[[S], Sequence[Need]] = pair_needs


def resized(scale: S, sizes: Mapping[str, str]) -> S:
    """The scale with some sizes changed; a text is read as the field's own kind.

    >>> resized(Scale(), {"images": "100", "sigmas": "0.25,0.5"}).sigmas
    (0.25, 0.5)
    """
    changes: dict[str, Any] = {key: _read(key, text, scale) for key, text in sizes.items()}
    return replace(scale, **changes)


def _read(key: str, text: str, scale: Scale) -> Any:
    like = getattr(scale, key)
    kind, items = type(like), [part.strip() for part in text.split(",")]
    try:
        return tuple(type(like[0])(item) for item in items) if kind is tuple else kind(text)
    except ValueError:
        raise VarsmoothError(f"--{key.replace('_', '-')} cannot be {text!r}") from None


def reductions(scale: Scale, full: Scale) -> list[str]:
    """Where a scale differs from the full one, in words: the paper's value where it states one.

    >>> reductions(Scale(images=250, sigmas=(0.25,)), Scale())
    ['σ_a: 0.25 (paper: 0.12, 0.25, 0.5, 1)', 'test images: 250 (full scale: 10000)']
    """
    mine, theirs = asdict(scale), asdict(full)
    return [
        f"{about['what']}: {_shown(mine[name])} "
        f"({'paper' if about['stated'] else 'full scale'}: {_shown(theirs[name])})"
        for name, about in ((entry.name, entry.metadata) for entry in fields(scale))
        if "what" in about and mine[name] != theirs[name]
    ]


def _shown(value: Any) -> str:
    if isinstance(value, tuple) and len(value) > 8:
        return f"{len(value)} from {_shown(value[0])} to {_shown(value[-1])}"
    if isinstance(value, tuple):
        return ", ".join(_shown(item) for item in value) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)
