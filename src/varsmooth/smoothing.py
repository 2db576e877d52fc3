"""The one smoothed classifier: hard votes for guarantees, soft scores for gradients."""

import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from varsmooth.calling import call_user_model
from varsmooth.cascade import SOFTNESS, CascadeSelector, Gate
from varsmooth.errors import check, check_counts, check_ids, check_images
from varsmooth.noise import CHUNK, NoiseStream
from varsmooth.selectors import NoiseSelector, check_levels

Selector = NoiseSelector | CascadeSelector
"""A noise-level selector: a function of the image, or the votes of f."""

RETURNED_NAN = "the classifier returned NaN; check its weights and its input"


class SmoothedClassifier(nn.Module):
    """g(x) = argmax_c P[f(x + ε) = c], ε ~ N(0, σ² I), with σ = selector(x).

    g, g_v and g_v* of the paper differ only in the selector: `FixedSelector`, `LearnedSelector`,
    `MedianSelector`. With a `CascadeSelector` the votes of f choose σ.

    Args:
        classifier: f, images (B,C,H,W) in [0,1] → logits (B, classes), or an object with `.logits`.
            Normalisation belongs inside it, so that σ is in pixel units. If it has the attribute
            `conditional = True`, it is called as classifier(x, sigma) with sigma (B,).
        selector: The noise-level selector.
        samples: Noisy copies behind the soft scores, see `forward`.
        temperature: τ of the soft scores.
        lattice: Add noise on the lattice of 8-bit images, exact in floating point; the images must
            then be 8-bit images divided by 255.
    """

    def __init__(
        self,
        classifier: nn.Module,
        selector: Selector,
        *,
        samples: int = 16,
        temperature: float = 1.0,
        lattice: bool = False,
    ) -> None:
        super().__init__()
        check_counts(samples=samples)
        check(temperature > 0, f"temperature must be positive, not {temperature}")
        check(
            isinstance(selector, Selector),
            "selector must be a FixedSelector, LearnedSelector, MedianSelector or "
            f"CascadeSelector, not {type(selector).__name__}; one σ for all images is "
            "FixedSelector(0.25), a function of yours goes into MedianSelector(function, sigma_m)",
        )
        check(
            not isinstance(classifier, SmoothedClassifier),
            "this classifier is smoothed already; give the network inside it, g.classifier",
        )
        check(
            isinstance(classifier, nn.Module),
            "classifier must be an nn.Module, so that its weights identify it, not a "
            f"{type(classifier).__name__}; call a function in the forward of one, and make an "
            "instance of a class",
        )
        self.classifier = classifier
        self.selector = selector
        self.samples = samples
        self.temperature = temperature
        self.lattice = lattice

    def noise(
        self, batch: int, seed: int | None = None, ids: Sequence[int] | Tensor | None = None
    ) -> NoiseStream:
        """The noise streams of a batch of images under this classifier's kind of noise."""
        check_ids(ids, batch)
        return NoiseStream.make(batch, seed, ids, self.lattice)

    def check(self, x: Tensor) -> None:
        """Refuse images that this classifier cannot certify, and say why."""
        check_images(x)
        off_lattice = self.lattice and float((255 * x - (255 * x).round()).abs().max()) > 1e-3
        check(
            not off_lattice,
            "lattice noise needs 8-bit images divided by 255; round them first, "
            "and add √d/510 to the perturbation that the certificate must cover",
        )

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return next((p.device for p in self.parameters()), torch.device("cpu"))

    @property
    def gate(self) -> Gate | None:
        """What turns votes into "pass" votes; only a cascade has one."""
        return self.selector.gate

    def logits(self, z: Tensor, sigma: Tensor) -> Tensor:
        """f at noisy images z (M,C,H,W) whose noise has the levels sigma (M,) → (M, classes)."""
        conditional = getattr(self.classifier, "conditional", False)
        output = call_user_model(
            "classifier", self.classifier, z, *([sigma] if conditional else [])
        )
        logits: Tensor = getattr(output, "logits", output)
        shape = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        check(
            len(shape) == 2 and shape[0] == len(z) and shape[1] >= 2,
            f"the classifier must return one tensor of scores ({len(z)}, classes) for two or more "
            f"classes, not {shape}"
            + "; let its forward return the logits alone"
            * (not isinstance(logits, Tensor)),
        )
        return logits

    def gate_scores(self, z: Tensor, logits: Tensor, sigma: Tensor) -> Tensor:
        """The gate's scores (M,): a vote counts where its score is ≥ 0."""
        assert self.gate is not None
        scores: Tensor = call_user_model(
            "gate (z, logits, sigma) → scores", self.gate, z, logits, sigma
        )
        kind = (
            f"{scores.dtype} {tuple(scores.shape)}" if isinstance(scores, Tensor) else repr(scores)
        )
        check(  # (M, 1) would count every vote M times; of a bool, False is 0 and counts
            isinstance(scores, Tensor) and scores.is_floating_point() and scores.shape == (len(z),),
            f"the gate must return scores, floats of shape ({len(z)},), not {kind}; a vote counts "
            "where its score is ≥ 0",
        )
        return scores  # a vote whose score is NaN does not count

    def forward(self, x: Tensor, noise: NoiseStream | None = None) -> Tensor:
        """Soft scores (B, classes): log (1/S) Σ_k softmax(f(x + ε_k)/τ), S = samples, fresh noise.

        Differentiable in x, in f and, through σ and the median, in h; behaves as logits for any
        loss or attack (its softmax is the mean probability). τ → 0 approaches the vote. Of a
        cascade, the log of the soft mixture of its stages, see `CascadeSelector.mix`.
        """
        stream = noise or self.noise(len(x))
        return self.selector.soft_scores(x, stream, lambda sigma: self.scores(x, sigma, stream))

    def scores(self, x: Tensor, sigma: Tensor, noise: NoiseStream) -> Tensor:
        """The soft scores at levels sigma (B,); a gate weighs each draw by its score's sigmoid."""
        draws = []
        for rows, epsilon in noise.batches(x, "soft", self.samples):
            z = noise.perturb(x[rows], sigma[rows], epsilon)
            logits = self.logits(z, sigma[rows])
            scores = (logits / self.temperature).log_softmax(dim=1)
            if self.gate is not None:
                gate = self.gate_scores(z, logits, sigma[rows]) / SOFTNESS
                scores = scores + nn.functional.logsigmoid(gate)[:, None]
            draws.append(scores)
        per_image = torch.cat(draws).view(len(x), self.samples, -1)  # (B, S, classes)
        return per_image.logsumexp(dim=1) - math.log(self.samples)

    def votes(
        self,
        x: Tensor,
        n: int,
        *,
        sigma: Tensor | None = None,
        noise: NoiseStream | None = None,
        purpose: str = "votes",
        start: int = 0,
        batch_size: int | None = None,
    ) -> Tensor:
        """Hard votes of f for draws start..n-1 of every image: int64 counts (B, classes).

        A gate adds a last column: the votes that it turned into "pass". f runs in evaluation mode
        and is left as it was.

        Args:
            x: Images (B,C,H,W) in [0,1].
            n: The number of draws.
            sigma: Levels (B,); by default the selector chooses.
            noise: The stream to draw from; fresh entropy by default.
            purpose: The purpose of the draws in that stream.
            start: The first draw, if earlier ones were counted already.
            batch_size: Noisy images per forward pass, which bounds memory.
        """
        self.check(x)
        check(n >= 1, f"the number of votes must be at least 1, not {n}")
        check(
            start % CHUNK == 0 and 0 <= start < n,
            f"start must be a multiple of {CHUNK} below n={n}, not {start}; "
            "other draws would be counted twice",
        )
        noise = noise or self.noise(len(x))
        if sigma is None:
            with evaluation_mode(self), torch.no_grad():
                sigma = self.selector(x, noise, batch_size)
        return self.count_votes(x, n, sigma, noise, purpose, start, batch_size)

    def count_votes(
        self,
        x: Tensor,
        n: int,
        sigma: Tensor,
        noise: NoiseStream,
        purpose: str = "votes",
        start: int = 0,
        batch_size: int | None = None,
    ) -> Tensor:
        """`votes` of images that were checked; a subclass that votes otherwise overrides this."""
        with evaluation_mode(self), torch.no_grad():
            sigma, counts = check_levels(sigma).to(x), torch.empty(0)
            has_nan = torch.zeros((), dtype=torch.bool, device=x.device)  # read once, not per batch
            for rows, epsilon in noise.batches(x, purpose, n, batch_size, start):
                z = noise.perturb(x[rows], sigma[rows], epsilon)
                logits = self.logits(z, sigma[rows])  # (M, classes)
                has_nan |= logits.isnan().any()
                vote, columns = logits.argmax(dim=1), logits.shape[1]
                if self.gate is not None:
                    gate = self.gate_scores(z, logits, sigma[rows])
                    vote = torch.where(gate >= 0, vote, columns)
                    columns += 1
                if counts.numel() == 0:
                    counts = torch.zeros(len(x), columns, dtype=torch.int64, device=logits.device)
                counts.index_put_((rows, vote), torch.ones_like(rows), accumulate=True)
        check(not bool(has_nan), RETURNED_NAN)
        return counts


@dataclass
class _InUse:
    """A part of a module that is in use: by how many callers, and how to leave it as it was."""

    training: bool
    weights: AbstractContextManager[None]
    users: int = 0


_IN_USE: dict[int, _InUse] = {}  # by the identity of the part, while it is in use
_LOCK = threading.RLock()


@contextmanager
def constant_weights(module: nn.Module) -> Iterator[None]:
    """Inside, no weight of `module` may change: what follows from weights is computed once.

    A part that computes such things has a method `constant_weights`, a context manager.
    """
    with ExitStack() as stack:
        for part in module.modules():
            stack.enter_context(constant_part(part))
        yield


def constant_part(part: nn.Module) -> AbstractContextManager[None]:
    """The same for one module without its submodules."""
    context: AbstractContextManager[None] = getattr(part, "constant_weights", nullcontext)()
    return context


@contextmanager
def evaluation_mode(module: nn.Module) -> Iterator[None]:
    """Every submodule in eval mode with constant weights inside, afterwards in its own mode.

    Threads may share modules, or parts of them: a part is changed by the first caller that enters
    and left as it was by the last one that leaves.
    """
    parts = list(module.modules())
    with _LOCK:
        for part in parts:
            if id(part) not in _IN_USE:
                weights = constant_part(part)
                weights.__enter__()
                _IN_USE[id(part)] = _InUse(part.training, weights)
            _IN_USE[id(part)].users += 1
        if any(part.training for part in parts):
            module.eval()
    try:
        yield
    finally:
        with _LOCK:
            for part in parts:
                held = _IN_USE[id(part)]
                held.users -= 1
                if held.users == 0:
                    del _IN_USE[id(part)]
                    held.weights.__exit__(None, None, None)
                    part.training = held.training


def check_smoothed(g: object) -> None:
    """Refuse what is not a smoothed classifier."""
    check(
        isinstance(g, SmoothedClassifier),
        f"the first argument must be a SmoothedClassifier, not {type(g).__name__}; "
        "wrap a network as SmoothedClassifier(network, FixedSelector(0.25))",
    )
