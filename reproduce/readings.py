"""Three readings under which a noise level per image could gain (beyond the paper).

Does h gain if it knows more than f, if it sees the image without noise (Algorithm 1 writes h(x, λ),
the architecture x + ε), or if pixels are normalised, so that σ = 0.12 and 0.25 are 0.03 and 0.06 of
the range of a pixel? Training h through f is the expensive part, and is left out: f is tabulated at
a grid of levels, and h is a head on frozen features that minimises the paper's loss between them.
It learns on images that f has not seen, so that it cannot learn what f has memorised.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from reproduce.comparisons import beside_mean
from reproduce.figures import PAIRED, Figure, Gaps, plot_gaps
from reproduce.harness import Context, Experiment, Result, digest, gap_cell
from reproduce.records import outcomes_of
from reproduce.scales import Need, Scale, size
from reproduce.statistics import Differences
from varsmooth._util.progress import Progress
from varsmooth.data import ImageDataset, load_dataset
from varsmooth.evaluation.report.outcomes import Outcomes
from varsmooth.evaluation.report.tables import Cell, Table
from varsmooth.losses import gaussian_kl
from varsmooth.models.adapters import in_precision
from varsmooth.models.checkpoints import load_checkpoint
from varsmooth.models.descriptions import CONFIG, released_names
from varsmooth.noise import keyed_generator
from varsmooth.smoothing import evaluation_mode
from varsmooth.training import ClassifierConfig, train_classifier

STRONG = "cifar10-strong"
BLOCK = 16
"""Images that are tabulated together."""
READERS = {
    f"{knows}, {noise}": (knows, noise)
    for knows in ("h knows as much as f", "h knows more than f")
    for noise in ("with noise", "without noise")
}


@dataclass(frozen=True, kw_only=True)
class ReadingsScale(Scale):
    """h reads features of f itself, or of a stronger network, at x + ε or at x."""

    sigmas: tuple[float, ...] = size("σ_a", (0.03, 0.06, 0.25), stated=False)
    lams: tuple[float, ...] = size("λ", (0.0, 0.2, 0.4), stated=False)
    multiples: tuple[float, ...] = size(
        "levels / σ_a", tuple(round(0.4 * 1.18**k, 3) for k in range(11)), stated=False
    )
    n: int = size("votes N", 1000, stated=False)
    held_out: int = size("held-out images that train h", 5000, stated=False)
    draws: int = size("draws of f behind the loss", 32, stated=False)
    epochs: int = size("epochs of an f that is not released", 25, stated=False)


def network_of(context: Context, scale: ReadingsScale, sigma_a: float) -> nn.Module:
    """The released f of this level; trained in the store if there is none."""
    need = Need.fixed(sigma_a)
    folder: str | Path = need.released
    if need.released not in released_names():
        settings: dict[str, Any] = {
            "sigma": sigma_a,
            "epochs": scale.epochs,
            "data": scale.data,
            "n": 10,
            "held_out_images": 100,
            "seed": scale.seed,
            "train_split": "train",
        }
        content = context.content(scale.data, "train")
        folder = context.store / "readings" / digest(settings | content)
        if not (folder / CONFIG).is_file():
            device = "cpu" if context.device == "cpu" else "auto"
            where: dict[str, Any] = {"out": folder, "root": context.root, "device": device}
            train_classifier(ClassifierConfig(**settings, **where))
    network = load_checkpoint(str(folder)).classifier
    assert network is not None
    return network


def features_of(network: nn.Module, z: Tensor, sigma: float) -> Tensor:
    """What the last layer of a classifier sees (B, width)."""
    seen: list[Tensor] = []
    linear = network.get_submodule("linear")
    hook = linear.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    levels = (z.new_full((len(z),), sigma),) if getattr(network, "conditional", False) else ()
    with torch.no_grad():
        network(z, *levels)
    hook.remove()
    return seen[0]


def _noise(seed: int, image: int, draws: int, like: Tensor) -> Tensor:
    generator = keyed_generator("cpu", seed, "readings", image)
    return torch.randn((draws, *like.shape), generator=generator)


@dataclass(frozen=True)
class Tabulated:
    """f at every level, and what h may read, for some images.

    votes (n, L, classes), cross_entropy (n, L) of the soft smoothed classifier, features by reader.
    """

    images: ImageDataset
    votes: np.ndarray
    cross_entropy: Tensor
    features: dict[str, Tensor]

    @classmethod
    def of(
        cls,
        networks: tuple[nn.Module, nn.Module],
        images: ImageDataset,
        levels: Sequence[float],
        sigma_a: float,
        draws: int,
        seed: int,
    ) -> "Tabulated":
        """The same draws at every level, so that only the level differs."""
        votes, losses = [], []
        features: dict[str, list[Tensor]] = {reader: [] for reader in READERS}
        f, bar = in_precision(networks[0], "bfloat16"), f"f at {len(levels)} levels"
        with Progress(len(images), bar) as progress, evaluation_mode(f):
            for first in range(0, len(images), BLOCK):
                x, labels, ids = images.batch(range(first, min(first + BLOCK, len(images))))
                assert labels is not None
                noise = torch.stack([_noise(seed, int(i), draws + 1, x[0]) for i in ids])
                each = []
                for s in levels:
                    noisy = (x[:, None] + s * noise[:, 1:]).flatten(0, 1)
                    with torch.no_grad():
                        each.append(f(noisy).float().view(len(x), draws, -1))
                logits = torch.stack(each, dim=1)  # (B, L, draws, classes)
                p = logits.softmax(dim=3).mean(dim=2)  # (B, L, classes)
                losses.append(-p[torch.arange(len(x)), :, labels].clamp_min(1e-6).log())
                chosen = nn.functional.one_hot(logits.argmax(dim=3), logits.shape[3])
                votes.append(chosen.sum(dim=2).numpy())
                for reader, (knows, seen) in READERS.items():
                    network, level = networks["more" in knows], sigma_a * (seen == "with noise")
                    features[reader].append(features_of(network, x + level * noise[:, 0], level))
                progress.add(len(x))
        read = {reader: torch.cat(rows) for reader, rows in features.items()}
        return cls(images, np.concatenate(votes), torch.cat(losses), read)

    def predictions(self, columns: np.ndarray) -> list[int]:
        """The majority at one level for each image."""
        chosen: list[int] = self.votes[np.arange(len(self.votes)), columns].argmax(axis=1).tolist()
        return chosen


class Head(nn.Module):
    """Features (B, width) and λ (B,) → the logarithm of σ, between the ends of the grid."""

    def __init__(self, features: Tensor, levels: Tensor) -> None:
        super().__init__()
        self.mean, self.std = features.mean(dim=0), features.std(dim=0) + 1e-6
        self.low, self.high = (float(levels[end].log()) for end in (0, -1))
        width = features.shape[1]
        self.layers = nn.Sequential(nn.Linear(width + 1, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, features: Tensor, lam: Tensor) -> Tensor:
        scaled = (features - self.mean) / self.std
        share = torch.sigmoid(self.layers(torch.cat([scaled, lam[:, None]], dim=1))[:, 0])
        log_sigma: Tensor = self.low + (self.high - self.low) * share
        return log_sigma


def objective(
    table: Tabulated, rows: Tensor, levels: Tensor, log_sigma: Tensor, lam: Tensor, sigma_a: float
) -> Tensor:
    """(1−λ) CE + λ KL at any level (B,): the cross-entropy is linear in log σ between levels."""
    grid = levels.log()
    right = torch.searchsorted(grid, log_sigma.detach()).clamp(1, len(grid) - 1)
    share = ((log_sigma - grid[right - 1]) / (grid[right] - grid[right - 1])).clamp(0, 1)
    left, above = (table.cross_entropy[rows, at] for at in (right - 1, right))
    cross_entropy = torch.lerp(left, above, share)
    return (1 - lam) * cross_entropy + lam * gaussian_kl(log_sigma.exp(), 2 * sigma_a)


def train_head(
    table: Tabulated, reader: str, levels: Tensor, scale: ReadingsScale, sigma_a: float
) -> Head:
    """Trained on four fifths of the images, stopped where the rest are served best."""
    generator = torch.Generator().manual_seed(scale.seed)
    order = torch.randperm(len(table.votes), generator=generator)
    kept, rest = order[: len(order) * 4 // 5], order[len(order) * 4 // 5 :]
    features = table.features[reader]
    torch.manual_seed(scale.seed)
    head = Head(features[kept], levels)
    optimizer = torch.optim.AdamW(head.parameters(), 1e-3, weight_decay=0.1)
    best, state = np.inf, head.state_dict()
    for _ in range(60):
        for rows in kept[torch.randperm(len(kept), generator=generator)].split(128):  # type: ignore[no-untyped-call]
            lam = torch.rand(len(rows), generator=generator)
            log_sigma = head(features[rows], lam)
            loss = objective(table, rows, levels, log_sigma, lam, sigma_a).mean()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        with torch.no_grad():
            unseen = 0.0
            for value in scale.lams:
                lam = torch.full((len(rest),), value)
                log_sigma = head(features[rest], lam)
                unseen += float(objective(table, rest, levels, log_sigma, lam, sigma_a).mean())
        if unseen < best:
            best, state = unseen, {name: value.clone() for name, value in head.state_dict().items()}
    head.load_state_dict(state)
    return head


@dataclass(frozen=True)
class Reading:
    """The three readings at one σ_a. Everything is computed on first use."""

    context: Context
    scale: ReadingsScale
    sigma_a: float

    @property
    def levels(self) -> tuple[float, ...]:
        return tuple(self.sigma_a * multiple for multiple in self.scale.multiples)

    @cached_property
    def networks(self) -> tuple[nn.Module, nn.Module]:
        strong = load_checkpoint(STRONG).classifier
        assert strong is not None
        return network_of(self.context, self.scale, self.sigma_a).eval(), strong.eval()

    def table(self, split: str, count: int, draws: int) -> Tabulated:
        images = load_dataset(self.scale.data, split, self.context.root).few(count)
        seed = self.scale.seed + (split == "val")
        return Tabulated.of(self.networks, images, self.levels, self.sigma_a, draws, seed)

    @cached_property
    def test(self) -> Tabulated:
        return self.table("test", self.scale.images, self.scale.n)

    @cached_property
    def heads(self) -> dict[str, Head]:
        val, levels = self.table("val", self.scale.held_out, self.scale.draws), self.levels
        args = (torch.tensor(levels), self.scale, self.sigma_a)
        return {reader: train_head(val, reader, *args) for reader in READERS}

    def g(self, column: int) -> Outcomes:
        """One level for all images."""
        return self._outcomes(np.full(len(self.test.votes), column))

    def g_v(self, reader: str, lam: float) -> Outcomes:
        """The level of the grid that is nearest to h."""
        features, head = self.test.features[reader], self.heads[reader]
        with torch.no_grad():
            log_sigma = head(features, torch.full((len(features),), lam))
        gaps = log_sigma[:, None] - torch.tensor(self.levels).log()
        return self._outcomes(gaps.abs().argmin(dim=1).numpy())

    def _outcomes(self, columns: np.ndarray) -> Outcomes:
        images = self.test.images
        chosen = zip(
            images.ids.tolist(),
            images.known_labels.tolist(),
            self.test.predictions(columns),
            columns.tolist(),
            strict=True,
        )
        rows = [
            {"id": i, "label": label, "prediction": p, "sigma": self.levels[c]}
            for i, label, p, c in chosen
        ]
        return outcomes_of("predict", rows, data=images.name, split=images.split)


def readings(context: Context, scale: ReadingsScale) -> Result:
    """Clean accuracy of g_v minus that of g at the same mean level, for every reading."""
    gaps: dict[str, Differences] = {}
    panels = []
    for sigma_a in scale.sigmas:
        one = Reading(context, scale, sigma_a)
        fixed = [
            context.run(f"g, σ_a = {sigma_a:g}, σ_s = {s:.4g}", partial(one.g, column))
            for column, s in enumerate(one.levels)
        ]
        series = []
        for reader in READERS:
            titles = [f"σ_a = {sigma_a:g}, λ = {lam:g}, {reader}" for lam in scale.lams]
            runs = [
                context.run(f"g_v, {title}", partial(one.g_v, reader, lam))
                for title, lam in zip(titles, scale.lams, strict=True)
            ]
            mine = [beside_mean(learned, fixed) for learned in runs]
            gaps |= dict(zip(titles, mine, strict=True))
            series.append(Gaps(reader, scale.lams, mine))
        ylabel, title = "g_v minus g at its mean σ_s (points)", f"σ_a = {sigma_a:g}"
        panels.append(partial(plot_gaps, series=series, ylabel=ylabel, title=title))
    figure = Figure(
        "readings",
        f"Clean accuracy of g_v minus that of g at its mean σ_s, {PAIRED}: h reads features of f "
        "or of a stronger network, with or without noise.",
        panels,
        height=3.6,
        width=max(6.4, 3.6 * len(panels)),
    )
    table = Table(
        "readings",
        "Clean accuracy of g_v minus that of g at its mean σ_s, in percentage points, paired by "
        "image.",
        ["reading", "g_v − g"],
        [[Cell.of(title), gap_cell(gap)] for title, gap in gaps.items()],
    )
    note = (
        f"h is a head on frozen features of f, or of {STRONG}, trained on held-out images; "
        "g is interpolated between the two levels around the mean σ_s"
    )
    return Result([figure], [table], [note])


READINGS: Experiment[ReadingsScale] = Experiment(
    "readings",
    "ours, on §3.1",
    "an h that knows more than f, or sees no noise, and σ relative to normalised pixels",
    {
        "cpu": ReadingsScale(images=2500, n=32, held_out=4000, draws=8, epochs=8),
        "paper": ReadingsScale(),
    },
    {"cpu": "20 min", "paper": "5 h on a GPU"},
    readings,
    lambda scale: [],
    median=False,
)
