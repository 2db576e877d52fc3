"""The sizes of an experiment: fields of a scale, options of the command line, words of captions."""

from collections.abc import Mapping
from dataclasses import Field, asdict, dataclass, field, fields, replace
from typing import Any, ClassVar, Literal, TypeVar

from varsmooth.errors import check


def size(
    what: str,
    default: Any,
    stated: bool = True,
    zero: bool = False,
    odd: bool = False,
    among: tuple[str, ...] = (),
    follows: str = "",
) -> Any:
    """A field of a scale: what it counts, in words for captions, and its value at full scale.

    stated: whether the paper states that value; otherwise it is ours.
    zero, odd, among: what is allowed besides positive numbers: 0, only odd ones, these words.
    follows: another size; where that is given and this is not, this has the same value.
    """
    about = {"what": what, "stated": stated, "zero": zero, "odd": odd, "among": among}
    return field(default=default, metadata=about | {"follows": follows})


@dataclass(frozen=True, kw_only=True)
class Scale:
    """The sizes that every experiment has. Each field is an option: `--images 500`.

    unused: fields that this experiment has no use for; they are neither options nor in captions.
    chosen: fields that no value makes smaller or larger; captions do not call them reductions.
    """

    unused: ClassVar[tuple[str, ...]] = ()
    chosen: ClassVar[tuple[str, ...]] = ()

    @property
    def idle(self) -> tuple[str, ...]:
        """Fields without effect at these values of the others; captions leave them out."""
        return ()

    @property
    def median(self) -> bool:
        """Whether a selector must have been trained with the median, for g_v*."""
        return True

    sigmas: tuple[float, ...] = size("σ_a", (0.12, 0.25, 0.5, 1.0))
    images: int = size("test images", 10_000, stated=False)
    data: str = size("data", "cifar10")
    seed: int = size("seed of every draw", 0, stated=False, zero=True)


def sizes_in_use(scale: Scale) -> list[Field[Any]]:
    """The fields of a scale that are options of its experiment."""
    return [entry for entry in fields(scale) if entry.name not in scale.unused]


@dataclass(frozen=True, kw_only=True)
class VotingScale(Scale):
    """Sizes of experiments whose runs vote: f may compute in bfloat16, in half the time."""

    precision: Literal["float32", "bfloat16"] = size(
        "precision of f", "float32", stated=False, among=("float32", "bfloat16")
    )


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
        check(round(sigma_a, 2) == sigma_a, f"σ_a has two digits, as in 0.25, not {sigma_a:g}")
        return cls(f"{sigma_a:.2f}", selector)

    @classmethod
    def pair(cls, sigma_a: float) -> "Need":
        """The same with its selector."""
        return cls.fixed(sigma_a, selector=True)

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


def pair_needs(scale: Scale) -> list[Need]:
    """Classifier and selector of every σ_a."""
    return [Need.pair(sigma) for sigma in scale.sigmas]


def resized(scale: S, sizes: Mapping[str, str]) -> S:
    """The scale with some sizes changed; a text is read as the field's own kind.

    >>> resized(Scale(), {"images": "100", "sigmas": "0.25,0.5"}).sigmas
    (0.25, 0.5)
    """
    changes: dict[str, Any] = {key: _read(key, text, scale) for key, text in sizes.items()}
    for entry in fields(scale):
        if entry.metadata.get("follows") in changes and entry.name not in changes:
            changes[entry.name] = changes[entry.metadata["follows"]]
    return replace(scale, **changes)


def _read(key: str, text: str, scale: Scale) -> Any:
    """The text of an option as the kind of value that it is, if it is allowed."""
    like, several = getattr(scale, key), isinstance(getattr(scale, key), tuple)
    about = next(entry.metadata for entry in fields(scale) if entry.name == key)
    kind = type(like[0]) if several else type(like)
    try:
        values = [kind(part.strip()) for part in (text.split(",") if several else [text])]
        good = all(_allowed(key, value, about) for value in values)
    except ValueError:
        good = False
    words = f"{_words(key, kind, about)}{', separated by commas' if several else ''}"
    check(good, f"--{key.replace('_', '-')} must be {words}, not {text!r}")
    if not several:
        return values[0]
    return tuple(dict.fromkeys(values if kind is str else sorted(values)))  # smallest first, once


def _allowed(key: str, value: Any, about: Mapping[str, Any]) -> bool:
    if isinstance(value, str):
        return bool(value) and (not about["among"] or value in about["among"])
    if key.endswith("lams"):
        return bool(0 <= value <= 1)
    enough = value > 0 or (value == 0 and about["zero"])
    return bool(enough and not (about["odd"] and value % 2 == 0))


def _words(key: str, kind: type, about: Mapping[str, Any]) -> str:
    """What `_allowed` allows."""
    if kind is str:
        return f"one of {', '.join(about['among'])}" if about["among"] else "a name"
    if key.endswith("lams"):
        return "a number from 0 to 1"
    number = "an odd number" if about["odd"] else "a whole number" if kind is int else "a number"
    return f"{number} {'from 0 on' if about['zero'] else 'above 0'}"


def reductions(scale: Scale, full: Scale) -> list[str]:
    """Where a scale differs from the full one, in words: the paper's value where it states one.

    >>> reductions(Scale(images=250, sigmas=(0.25,)), Scale())
    ['σ_a: 0.25 (paper: 0.12, 0.25, 0.5, 1)', 'test images: 250 (full scale: 10000)']
    """
    mine, theirs = asdict(scale), asdict(full)
    return [
        f"{about['what']}: {shown(mine[name])} "
        f"({'paper' if about['stated'] else 'full scale'}: {shown(theirs[name])})"
        for name, about in ((entry.name, entry.metadata) for entry in sizes_in_use(scale))
        if name not in (*scale.idle, *scale.chosen) and mine[name] != theirs[name]
    ]


def shown(value: Any) -> str:
    """A size in words."""
    if isinstance(value, tuple) and len(value) > 8:
        return f"{len(value)} from {shown(value[0])} to {shown(value[-1])}"
    if isinstance(value, tuple):
        return ", ".join(shown(item) for item in value) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)
