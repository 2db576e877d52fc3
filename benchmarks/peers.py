"""What a user would run instead of `certify`, and the limit that none can pass."""

import copy
import math
import warnings
from typing import Any

import numpy as np
import torch
from scipy.stats import beta, norm
from torch import Tensor, nn

from varsmooth.smoothing import constant_weights

N0 = 100
ALPHA = 1e-3


def laid_out(classifier: nn.Module, layout: str) -> nn.Module:
    """A copy of f whose weights lie in memory as named: `default` or `channels-last`."""
    twin = copy.deepcopy(classifier).eval()
    if layout == "channels-last":
        twin.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return twin


class ReferenceLoop:
    """CERTIFY of Cohen et al. (2019) as published: one image at a time, n in batches.

    ĉ from N0 noisy copies, its count in n fresh ones, Clopper–Pearson, σ Φ⁻¹.
    """

    def __init__(
        self, classifier: nn.Module, sigma: float, batch_size: int = 1000, layout: str = "default"
    ) -> None:
        self.classifier, self.layout = laid_out(classifier, layout), layout
        self.sigma, self.batch_size = sigma, batch_size

    def certify(self, images: Tensor, n: int) -> list[float]:
        return [self._certify(x, n) for x in images]

    def _certify(self, x: Tensor, n: int) -> float:
        candidate = self._counts(x, N0).argmax()
        count = self._counts(x, n)[candidate]
        p = beta.ppf(ALPHA, count, n - count + 1) if count else 0.0
        return float(self.sigma * norm.ppf(p)) if p > 0.5 else 0.0

    def _counts(self, x: Tensor, n: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        with torch.no_grad():
            counts = np.zeros(10, dtype=np.int64)
            for _ in range(math.ceil(n / self.batch_size)):
                size = min(self.batch_size, n)
                n -= size
                batch = x.repeat((size, 1, 1, 1))
                if self.layout == "channels-last":
                    batch = batch.contiguous(memory_format=torch.channels_last)
                noise = torch.randn_like(batch) * self.sigma
                for vote in self.classifier(batch + noise).argmax(1).numpy():
                    counts[vote] += 1
            return counts


class Art:
    """Randomized smoothing of the Adversarial Robustness Toolbox, for PyTorch."""

    def __init__(
        self, classifier: nn.Module, sigma: float, batch_size: int = 32, layout: str = "default"
    ) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from art.estimators.certification.randomized_smoothing import (
                PyTorchRandomizedSmoothing,
            )
        self.batch_size = batch_size
        self.smoothing = PyTorchRandomizedSmoothing(
            laid_out(classifier, layout),
            loss=nn.CrossEntropyLoss(),
            input_shape=(3, 32, 32),
            nb_classes=10,
            device_type="cpu",
            sample_size=N0,
            scale=sigma,
            alpha=ALPHA,
        )

    def certify(self, images: Tensor, n: int) -> list[float]:
        _, radii = self.smoothing.certify(images.numpy(), n, self.batch_size)
        return [float(radius) for radius in radii]


class Limit:
    """Bare f in inference mode on a noisy batch that lies ready, N0 + n images each time.

    Its kernels are standardised once, as in `certify`: the limit has no work that could be saved.
    """

    def __init__(
        self, classifier: nn.Module, sigma: float, batch_size: int = 128, layout: str = "default"
    ) -> None:
        self.classifier = laid_out(classifier, layout)
        self.batch = 0.5 + sigma * torch.randn(batch_size, 3, 32, 32)
        if layout == "channels-last":
            self.batch = self.batch.contiguous(memory_format=torch.channels_last)

    def certify(self, images: Tensor, n: int) -> None:
        work = len(images) * (N0 + n)
        with torch.inference_mode(), constant_weights(self.classifier):
            for _ in range(work // len(self.batch)):
                self.classifier(self.batch)
            if rest := work % len(self.batch):
                self.classifier(self.batch[:rest])


def art_is_installed() -> bool:
    """ART comes with the dependency group `bench` only."""
    try:
        import art  # noqa: F401
        import statsmodels  # noqa: F401
    except ImportError:
        return False
    return True
