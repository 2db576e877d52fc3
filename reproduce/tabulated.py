"""g_s from a table of f's answers, so that h can be trained for as long as in the paper.

A step of Algorithm 1 spends nine tenths of its time on f. For one draw of noise, what f says about
a training image is a smooth function of σ; here it is computed once, for a pool of draws at some
levels, and interpolated.
"""

import io
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from varsmooth._util.files import replace_file
from varsmooth._util.progress import Progress
from varsmooth.data import ImageDataset
from varsmooth.noise import NoiseStream, keyed_generator
from varsmooth.smoothing import Selector, SmoothedClassifier, evaluation_mode


def tabulated_answers(
    g: SmoothedClassifier,
    data: ImageDataset,
    levels: Sequence[float],
    draws: int,
    seed: int,
    folder: Path,
) -> Tensor:
    """log softmax f(x_i + s_j ε_ik): (N, levels, draws, classes), in half precision.

    A file for each level; what is in the folder is not computed again.
    """
    found = []
    for level in levels:
        path = folder / f"answers-{level:.4g}.npy"
        if not path.is_file():
            file = io.BytesIO()
            np.save(file, _answers_at(g, data, level, draws, seed).numpy())
            replace_file(path, file.getvalue())
        found.append(torch.from_numpy(np.load(path)))
    return torch.stack(found, dim=1)


def _answers_at(
    g: SmoothedClassifier, data: ImageDataset, level: float, draws: int, seed: int
) -> Tensor:
    """The table at one level (N, draws, classes); levels share their noise."""
    parts = []
    with (
        evaluation_mode(g),
        torch.no_grad(),
        Progress(len(data), f"answers of f at σ = {level:.3g}") as progress,
    ):
        for images, _, ids in data.batches(100):
            x, noise = images.to(g.device), NoiseStream.make(len(images), seed, ids)
            sigma = x.new_full((len(x),), level)
            for rows, epsilon in noise.batches(x, "answers", draws):
                logits = g.logits(noise.perturb(x[rows], sigma[rows], epsilon), sigma[rows])
                parts.append(logits.float().log_softmax(dim=1).half().cpu())
            progress.add(len(images))
    return torch.cat(parts).view(len(data), draws, -1)


class TabulatedClassifier(SmoothedClassifier):
    """Soft scores from the table, log σ interpolated linearly; votes still ask f.

    Each step takes `samples` draws at random from the pool. Beyond the levels of the table the
    scores are those of its ends.
    """

    def __init__(
        self,
        classifier: nn.Module,
        selector: Selector,
        answers: Tensor,
        levels: Sequence[float],
        ids: Sequence[int],
        samples: int,
    ) -> None:
        super().__init__(classifier, selector, samples=samples)
        self.answers = answers  # (N, levels, draws, classes)
        self.logs = torch.tensor(levels).log()
        self.rows = {image: row for row, image in enumerate(ids)}

    def scores(self, x: Tensor, sigma: Tensor, noise: NoiseStream) -> Tensor:
        """log of the mean softmax (B, classes) at levels sigma (B,), differentiable in sigma."""
        logs = self.logs.to(x.device)
        place = sigma.log().clamp(float(logs[0]), float(logs[-1]))
        upper = torch.searchsorted(logs, place.detach()).clamp(1, len(logs) - 1)
        share = (place - logs[upper - 1]) / (logs[upper] - logs[upper - 1])  # (B,)
        generator = keyed_generator("cpu", noise.seed, *noise.scope, "pool")
        pool = torch.rand(len(x), self.answers.shape[2], generator=generator)
        drawn = pool.argsort(dim=1)[:, : self.samples]  # (B, S)
        rows = torch.tensor([self.rows[image] for image in noise.ids])[:, None]
        below, above = (
            self.answers[rows, at.cpu()[:, None], drawn].to(x) for at in (upper - 1, upper)
        )  # (B, S, classes)
        scores = torch.lerp(below, above, share[:, None, None])
        return scores.logsumexp(dim=1) - math.log(self.samples)
