"""Projected gradient descent, on a plain classifier or through noise, votes and selector."""

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from varsmooth.errors import check, check_counts, check_ids, check_images
from varsmooth.noise import NoiseStream
from varsmooth.smoothing import SmoothedClassifier, evaluation_mode

Norm = Literal["l2", "linf"]


@dataclass(frozen=True)
class PGDOptions:
    """Further options of `pgd`.

    Attributes:
        step_size: A number or (B,); 2.5·eps/steps by default.
        norm: "l2" or "linf".
        restarts: Number of starts.
        samples: Evaluations averaged in each step, with fresh noise (EOT).
    """

    step_size: float | Tensor | None = None
    norm: Norm = "l2"
    restarts: int = 1
    samples: int = 1


DEFAULT = PGDOptions()


def pgd(
    model: Callable[[Tensor], Tensor],
    x: Tensor,
    y: Tensor,
    eps: float | Tensor,
    steps: int = 40,
    *,
    seed: int | None = None,
    ids: Sequence[int] | Tensor | None = None,
    options: PGDOptions = DEFAULT,
) -> Tensor:
    """Adversarial images (B,C,H,W) within eps of x, in [0,1], by projected gradient descent.

    Each step follows the gradient of −log E[softmax(model(x'))]_y and projects onto ball and box.
    The first start is x, further ones are random in the ball. Returned is the point of largest
    loss; under noise (a `SmoothedClassifier`, or samples > 1) only the last point of each start
    counts, because the largest of many noisy losses is mostly noise. The model keeps its parameters
    and its mode.

    Args:
        model: Anything that maps images to scores (B, classes). On f alone this is the paper's weak
            attack; on a `SmoothedClassifier` it goes through f, noise and selector (strong,
            adaptive).
        x: Images (B,C,H,W) in [0,1].
        y: Classes (B,) whose cross-entropy is raised.
        eps: Budget, a number or (B,).
        steps: Gradient steps.
        seed: None takes fresh entropy.
        ids: Image ids, which key the noise (default 0, 1, …).
        options: The rest, as in `PGDOptions(restarts=4, samples=2)`.
    """
    check_images(x)
    norm, samples = options.norm, options.samples
    check(norm in ("l2", "linf"), f"norm must be 'l2' or 'linf', not {norm!r}")
    check_counts(restarts=options.restarts, samples=samples, steps=steps)
    eps = _check_budget(x, eps)
    step_size = 2.5 * eps / steps
    if options.step_size is not None:
        step_size = torch.as_tensor(options.step_size).to(eps).expand(len(x))
    check(
        isinstance(y, Tensor) and y.shape == x.shape[:1] and not y.is_floating_point(),
        f"y must be a tensor of {len(x)} class indices, one for each image",
    )
    check_ids(ids, len(x))
    check(
        not getattr(model, "conditional", False),
        "this classifier takes σ as an input; attack the SmoothedClassifier around it, or fix a "
        "level, as in pgd(lambda z: g.logits(z, torch.full((len(z),), 0.25)), ...)",
    )
    noise = NoiseStream.make(len(x), seed, ids, getattr(model, "lattice", False))
    noisy = samples > 1 or isinstance(model, SmoothedClassifier)
    worst = torch.full((len(x),), -math.inf, dtype=x.dtype, device=x.device)
    best = x.clone()
    with evaluation_mode(model) if isinstance(model, nn.Module) else nullcontext():
        for restart in range(options.restarts):
            stream = noise.scoped(f"pgd-{restart}")
            start = torch.zeros_like(x) if restart == 0 else _random_start(x, eps, norm, stream)
            adversarial = _project(x, start, eps, norm)
            for step in range(steps + 1):
                point = adversarial.detach().requires_grad_()
                with torch.enable_grad():
                    loss = _loss(model, point, y, samples, stream.scoped(f"step-{step}"))
                    (gradient,) = torch.autograd.grad(loss.sum(), point)
                better = (loss.detach() > worst) & (step == steps or not noisy)
                worst = torch.where(better, loss.detach(), worst)
                best = torch.where(_per_image(better), adversarial, best)
                move = _per_image(step_size) * _direction(gradient, norm)
                adversarial = _project(x, adversarial - x + move, eps, norm)
    return best


def _loss(
    model: Callable[[Tensor], Tensor], x: Tensor, y: Tensor, samples: int, noise: NoiseStream
) -> Tensor:
    """−log of the mean probability of y over `samples` evaluations: (B,)."""
    draws = []
    for sample in range(samples):
        if isinstance(model, SmoothedClassifier):
            scores = model(x, noise.scoped(f"sample-{sample}"))
        else:
            output = model(x)
            scores = getattr(output, "logits", output)
        classes = scores.shape[1]
        known = bool(((y >= 0) & (y < classes)).all())
        check(known, f"the classes in y must be numbers from 0 to {classes - 1}")
        draws.append(scores.log_softmax(dim=1))
    mean = torch.stack(draws).logsumexp(dim=0) - math.log(samples)
    return -mean.gather(1, y[:, None])[:, 0]


def _direction(gradient: Tensor, norm: Norm) -> Tensor:
    """The steepest unit step."""
    if norm == "linf":
        return gradient.sign()
    length = gradient.flatten(1).norm(dim=1).clamp_min(torch.finfo(gradient.dtype).tiny)
    return gradient / _per_image(length)


def _project(x: Tensor, delta: Tensor, eps: Tensor, norm: Norm) -> Tensor:
    """x + delta, brought into the ball and then into [0,1]; the box only shortens delta."""
    if norm == "linf":
        delta = delta.clamp(-_per_image(eps), _per_image(eps))
    else:
        length = delta.flatten(1).norm(dim=1).clamp_min(torch.finfo(delta.dtype).tiny)
        delta = delta * _per_image((eps / length).clamp(max=1))
    return (x + delta).clamp(0, 1)


def _random_start(x: Tensor, eps: Tensor, norm: Norm, noise: NoiseStream) -> Tensor:
    """A random point of the ball's surface (ℓ2) or of the ball (ℓ∞)."""
    normal = torch.cat([epsilon for _, epsilon in noise.batches(x, "start", 1)]).to(x.dtype)
    if norm == "linf":
        uniform: Tensor = 2 * torch.special.ndtr(normal) - 1
        return _per_image(eps) * uniform
    return _per_image(eps) * _direction(normal, norm)


def _check_budget(x: Tensor, eps: float | Tensor) -> Tensor:
    """The budget of each image (B,)."""
    budget = torch.as_tensor(eps, dtype=x.dtype, device=x.device)
    check(
        budget.ndim == 0 or budget.shape == x.shape[:1],
        f"eps must be a number or one per image ({len(x)}), not shape {tuple(budget.shape)}",
    )
    check(bool(((budget >= 0) & budget.isfinite()).all()), "eps must be ≥ 0 and finite")
    return budget.expand(len(x))


def _per_image(values: Tensor) -> Tensor:
    """(B,) shaped to broadcast against images."""
    return values.view(-1, 1, 1, 1)
