"""The outputs of f, h and the gate on fixed images: they identify a model and test its assumptions.

A theorem about votes needs an f whose output is a function of the one image it sees (and of σ), in
the same way at every call. A hash of the weights captures neither this nor other state the code
reads: buffers, attributes, closures. So the model is run once on a few fixed images.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import Tensor, nn

from varsmooth.calling import needs_range_message
from varsmooth.errors import VarsmoothError, check
from varsmooth.noise import NoiseStream, keyed_generator
from varsmooth.smoothing import SmoothedClassifier, evaluation_mode

LEVELS = (0.05, 0.12, 0.25, 0.5, 1.0, 0.05, 0.25, 0.5)
"""The noise levels of the probe images; from 0.12 on, pixels leave [0, 1]."""

COLUMNS = 16
"""Numbers kept of each image's logits; of more classes, so many fixed projections."""

TOLERANCE, HALF_TOLERANCE = 1e-3, 2e-2
"""How far two runs of one model may differ, as a share of the outputs' size, in float32 and in half
precision: threads, batch sizes, processors and versions of torch round differently."""

ROUNDING = 2.0**-20
"""The share of a number that float32 arithmetic may move, however little the numbers vary."""

SPREADS = 10
"""Cap on an output's scale, in multiples of its spread over the images, so that a masked class
(−10⁹) or a common offset cannot hide a change."""

FINITE = 1e30
"""Stands for infinity in what is stored."""

Rows = tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Probe:
    """The outputs on the probe images of one shape.

    Attributes:
        shape: (channels, height, width) of the images.
        half: The parts whose outputs are all bfloat16 or float16 numbers.
        classifier: Logits of f (8, classes), or projections of them (8, COLUMNS).
        selector: Raw levels of h (8, 1), beside them those that a selector of the user's own class
            chooses; empty without h.
        gate: Scores of the gate (8, 8), each image with eight made-up logits; empty without a gate.
    """

    shape: tuple[int, int, int]
    half: tuple[str, ...]
    classifier: Rows
    selector: Rows = ()
    gate: Rows = ()

    def differences(self, other: "Probe", parts: Sequence[str] = ()) -> list[str]:
        """The parts, of `parts` or all, whose outputs are not those of the other, up to rounding.

        A difference below the tolerance changes a vote no more than another processor does.
        """
        names = parts or ("classifier", "selector", "gate")
        return [name for name in names if not self._same(other, name)]

    def _same(self, other: "Probe", name: str) -> bool:
        rows, half = getattr(self, name), name in self.half
        alike = self.shape == other.shape and half == (name in other.half)
        return alike and _close(rows, getattr(other, name), half, _spread(rows))


def probe(g: SmoothedClassifier, like: Tensor) -> Probe:
    """Run g's parts on the probe images of the shape, type and device of `like` (B,C,H,W).

    Raises an error if an output changes with the other images of the batch or from call to call,
    or is finite only where pixels are in [0, 1].
    """
    z, sigma = _images(g, like)
    with evaluation_mode(g), torch.no_grad():
        outputs = _outputs(g, z, sigma, range(len(z)))
        _check_range(g, z, sigma, outputs)
        for rows in ([6, 1, 4], [0]):
            again = _outputs(g, z, sigma, rows)
            for name, whole in outputs.items():
                if not _agree(whole, again[name], rows):
                    repeated = _outputs(g, z, sigma, range(len(z)))[name]
                    same_again = _agree(whole, repeated, range(len(z)))
                    cause = _still_training(g.classifier) if name == "classifier" else ""
                    raise VarsmoothError(_refusal(name, same_again) + cause)
    _CHECKED.setdefault(g.classifier, WeakSet()).add(g.selector)
    shape = (like.shape[1], like.shape[2], like.shape[3])
    half = tuple(name for name, values in outputs.items() if _is_half(values))
    outputs["classifier"] = _projected(outputs["classifier"])
    return Probe(shape, half, **{name: _rows(values) for name, values in outputs.items()})


def check_assumptions(g: SmoothedClassifier, x: Tensor) -> None:
    """Refuse a g whose certificates would mean nothing: once for each classifier and selector.

    Refused are a classifier, selector network or gate whose outputs depend on the other images of
    the batch (BatchNorm without running statistics), are random (dropout that stays active) or are
    finite only where pixels are in [0, 1]: f must be a function of the noisy image. It costs twelve
    forward passes of one image.

    Args:
        g: The smoothed classifier; a plain network f as SmoothedClassifier(f, FixedSelector(σ)).
        x: Images (B,C,H,W) as g will see, for their shape, type and device.
    """
    if g.selector not in _CHECKED.get(g.classifier, ()):
        probe(g, x)


_CHECKED: "WeakKeyDictionary[nn.Module, WeakSet[nn.Module]]" = WeakKeyDictionary()


def _refusal(name: str, same_again: bool) -> str:
    if same_again:
        return (
            f"the output of the {name} for an image depends on the other images of its batch, so "
            "no certificate would hold; give its BatchNorm layers running statistics, and let "
            "nothing else look across the batch"
        )
    return (
        f"the {name} returns different outputs for the same images, even in evaluation mode; "
        "switch off dropout and all other randomness in its forward"
    )


def _check_range(
    g: SmoothedClassifier, z: Tensor, sigma: Tensor, outputs: dict[str, Tensor]
) -> None:
    """Refuse outputs that are NaN or infinite, and finite for the same images clamped to [0, 1]."""
    if all(bool(values.isfinite().all()) for values in outputs.values()):
        return
    for name, values in _outputs(g, z.clamp(0, 1), sigma, range(len(z))).items():
        lost = values.isfinite() & ~outputs[name].isfinite()
        check(not bool(lost.any()), needs_range_message(name, "it returns NaN or infinity"))


def _still_training(classifier: nn.Module) -> str:
    """The end of a refusal where a part of f ignores evaluation mode."""
    training = (name for name, part in classifier.named_modules() if part.training)
    if (name := next(training, None)) is None:
        return ""
    kind = type(classifier.get_submodule(name)).__name__
    part = f"its layer {name} ({kind})" if name else kind
    return f"; {part} stays in training mode: call .eval() on it, or let train(mode) reach it"


def _images(g: SmoothedClassifier, like: Tensor) -> tuple[Tensor, Tensor]:
    """Smooth 8-bit images with noise of LEVELS, the same on every device: (8,C,H,W), (8,)."""
    channels, height, width = like.shape[1:]
    generator = keyed_generator("cpu", 0, "probe")
    coarse = torch.rand(len(LEVELS), channels, 4, 4, generator=generator)
    smooth = nn.functional.interpolate(coarse, (height, width), mode="bilinear")
    x = ((255 * smooth).round() / 255).to(like.dtype)
    sigma = torch.tensor(LEVELS, dtype=like.dtype)
    noise = NoiseStream(0, tuple(range(len(LEVELS))), g.lattice, ("probe",))
    ((_, epsilon),) = noise.batches(x, "probe", 1, len(LEVELS))
    return noise.perturb(x, sigma, epsilon).to(like.device), sigma.to(like.device)


def _outputs(
    g: SmoothedClassifier, z: Tensor, sigma: Tensor, rows: Sequence[int]
) -> dict[str, Tensor]:
    """What the parts of g return for some of the probe images, seen together."""
    z, sigma = z[list(rows)], sigma[list(rows)]
    logits = g.logits(z, sigma)
    outputs = {"classifier": logits}
    respond: Callable[[Tensor], Tensor] | None = getattr(g.selector, "respond", None)
    if respond is not None:
        columns = [respond(z)]
        if not type(g.selector).__module__.startswith("varsmooth."):  # its choice may be its own
            stream = NoiseStream(0, tuple(rows), g.lattice, ("probe",))
            columns.append(g.selector.with_draws(21)(z, stream))
        outputs["selector"] = torch.stack(columns, dim=1)
    if g.gate is not None:
        levels = torch.tensor(g.selector.possible_levels).to(z)
        scores = []
        for k in range(8):
            at = levels[(torch.tensor(rows) + k) % len(levels)]
            scores.append(g.gate_scores(z, _synthetic_logits(logits, rows, k), at))
        outputs["gate"] = torch.stack(scores, dim=1)
    return outputs


def _synthetic_logits(like: Tensor, rows: Sequence[int], k: int) -> Tensor:
    """Logits whose largest softmax goes from 1/classes to 1 over 64 made-up votes."""
    classes = like.shape[1]
    position = torch.tensor([8 * k + row for row in rows])
    confidence = 1 / classes + (1 - 1 / classes) * (position + 0.473) / 64
    logits = torch.zeros(len(rows), classes, dtype=torch.float64)
    top = confidence.double() * (classes - 1) / (1 - confidence.double())
    logits[torch.arange(len(rows)), (5 * position) % classes] = top.log()
    return logits.to(like)


def _projected(logits: Tensor) -> Tensor:
    """The logits, or COLUMNS fixed projections of them if there are more classes."""
    classes = logits.shape[1]
    if classes <= COLUMNS:
        return logits
    generator = keyed_generator("cpu", 0, "projection")
    matrix = torch.randn(classes, COLUMNS, generator=generator, dtype=torch.float64)
    values = _finite(logits).cpu()
    ranges = values.amax(dim=0) - values.amin(dim=0)
    if (most := 1000 * float(ranges.max())) > 0:  # a masked class must not drown the others
        values = torch.where(ranges > 0, values, values.clamp(-most, most))
    projected: Tensor = values @ matrix / classes**0.5
    return projected


def _is_half(values: Tensor) -> bool:
    """Whether every number is a bfloat16, or every one a float16."""
    kinds = (torch.bfloat16, torch.float16)
    return any(torch.equal(values, values.to(kind).to(values)) for kind in kinds)


def _finite(values: Tensor) -> Tensor:
    return values.double().nan_to_num(nan=-FINITE, posinf=FINITE, neginf=-FINITE)


def _rows(values: Tensor) -> Rows:
    """Plain numbers with seven digits."""
    return tuple(tuple(float(f"{v:.7g}") for v in row) for row in _finite(values).tolist())


def _agree(whole: Tensor, again: Tensor, places: Sequence[int]) -> bool:
    """Whether some of the outputs are the same when they are computed again."""
    rows = _rows(whole)
    one = tuple(rows[place] for place in places)
    return _close(one, _rows(again), _is_half(whole), _spread(rows))


def _spread(rows: Rows) -> float:
    """The most that a finite number varies over the images."""
    columns = (
        [v for v in column if abs(v) < FINITE] or [0.0] for column in zip(*rows, strict=True)
    )
    return max((max(column) - min(column) for column in columns), default=0.0)


def _close(one: Rows, other: Rows, half: bool, spread: float) -> bool:
    """Whether no two numbers differ by more than the tolerance.

    Its unit is the largest number of the row, or the median of these if that is larger; at most
    SPREADS times the spread, and the rounding of the number itself.
    """
    if [len(row) for row in one] != [len(row) for row in other]:
        return False
    tolerance, rounding = (HALF_TOLERANCE,) * 2 if half else (TOLERANCE, ROUNDING)
    sizes = [max((abs(v) for v in row if abs(v) < FINITE), default=0.0) for row in one]
    typical = sorted(sizes)[len(sizes) // 2] if sizes else 0.0
    return all(
        abs(a - b) <= tolerance * min(max(size, typical), SPREADS * spread) + rounding * abs(a)
        for size, *rows in zip(sizes, one, other, strict=True)
        for a, b in zip(*rows, strict=True)
    )
