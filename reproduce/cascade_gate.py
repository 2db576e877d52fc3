"""Which gate helps a cascade: none, f's softmax, or a classifier trained to say "don't know".

The third one is f with one more output. It is fine-tuned by the gambler's loss
−log(p_y + p_? / odds): a stake on the right class pays `odds`, what is kept as "don't know" is
returned. The same fine-tuning without that output is the control. Every row is chosen on one half
of the held-out images and measured on the other.

References:
    Liu et al., "Deep Gamblers: Learning to Abstain with Portfolio Theory", 2019.
"""

import copy
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from reproduce.cascade_rules import RADII, least_regret, reach
from reproduce.cascade_votes import CONFIDENCES, VoteScale, keep, kept
from reproduce.harness import Claim, Context, Experiment, Result, size
from varsmooth import FixedSelector, SmoothedClassifier
from varsmooth._util.files import replace_file
from varsmooth.bounds import average_certified_radius
from varsmooth.data import ImageDataset, load_dataset
from varsmooth.defaults import N0
from varsmooth.evaluation.report.statistics import (
    certified_accuracy,
    envelope,
    mean_interval,
    regret,
)
from varsmooth.evaluation.report.tables import Cell, Table
from varsmooth.evaluation.tune import cascade as cascades
from varsmooth.evaluation.tune.cascade import ConfidentVotes, Rule
from varsmooth.models.loading import load
from varsmooth.training.loop import crop_and_flip

BATCH = 128


@dataclass(frozen=True, kw_only=True)
class GateScale(VoteScale):
    """How each classifier is fine-tuned, and the held-out images on which it votes."""

    images: int = size("held-out images, half of them to choose on", 500, stated=False)
    n: int = size("votes N", 400, stated=False)
    levels: tuple[float, ...] = size("levels", (0.707, 0.5, 0.25, 0.125), stated=False)
    odds: tuple[float, ...] = size("odds of the gambler's loss", (1.5, 2.0, 4.0), stated=False)
    epochs: int = size("epochs of fine-tuning", 4, stated=False)
    learning_rate: float = size("learning rate", 1e-3, stated=False)


# The classifiers


class Stakes(nn.Module):
    """Logits of the classes whose largest softmax is 1 − p_?, all that is staked on classes.

    A softmax gate at c on these logits is the gate "stay where p_? ≤ 1 − c" on the network.
    """

    conditional = True

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        logits: Tensor = self.network(x, sigma)
        classes = logits.shape[1] - 1
        staked = 1 - logits.softmax(dim=1)[:, -1:]
        staked = staked.clamp(min=1.001 / classes, max=1 - 1e-6)  # the vote stays the largest
        vote = logits[:, :-1].argmax(dim=1, keepdim=True)
        rest = ((1 - staked) / (classes - 1)).log().expand(-1, classes)
        return rest.scatter(1, vote, staked.log())


def with_unknown(f: nn.Module) -> nn.Module:
    """A copy of f with one more output, "don't know", that starts at 0."""
    network = copy.deepcopy(f)
    old: nn.Linear = network.linear  # type: ignore[assignment]
    network.linear = nn.Linear(old.in_features, old.out_features + 1)
    with torch.no_grad():
        network.linear.weight.zero_()[:-1] = old.weight
        network.linear.bias.zero_()[:-1] = old.bias
    return network


def gamblers_loss(logits: Tensor, y: Tensor, odds: float | None) -> Tensor:
    """−log(p_y + p_? / odds), averaged; cross-entropy without odds."""
    if odds is None:
        return nn.functional.cross_entropy(logits, y)
    log_p = logits.log_softmax(dim=1)
    right = log_p.gather(1, y[:, None])[:, 0]
    return -torch.logaddexp(right, log_p[:, -1] - float(np.log(odds))).mean()


def fine_tune(network: nn.Module, data: ImageDataset, odds: float | None, scale: GateScale) -> None:
    """Adam with a cosine schedule, crops, flips and noise of every level below σ_a′."""
    images, labels = torch.from_numpy(np.array(data.images)), torch.from_numpy(data.known_labels)
    steps = len(images) // BATCH
    optimizer = torch.optim.AdamW(network.parameters(), scale.learning_rate, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, scale.epochs * steps)
    generator = torch.Generator().manual_seed(scale.seed)
    network.train().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    for _ in range(scale.epochs):
        order = torch.randperm(len(images), generator=generator)[: steps * BATCH]
        for rows in tqdm(order.view(steps, BATCH), desc=f"odds {odds}", disable=None):
            x = crop_and_flip(images[rows], generator, 4, True).permute(0, 3, 1, 2) / 255
            sigma = scale.sigmas[0] * torch.rand(len(rows), generator=generator)
            z = x + sigma[:, None, None, None] * torch.randn(x.shape, generator=generator)
            with torch.autocast("cpu", torch.bfloat16):
                logits = network(z, sigma)
            loss = gamblers_loss(logits.float(), labels[rows], odds)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
    network.eval()


def fine_tuned(
    context: Context, f: nn.Module, odds: float | None, scale: GateScale, folder: Path
) -> nn.Module:
    """The fine-tuned classifier, kept in the store."""
    network = copy.deepcopy(f) if odds is None else with_unknown(f)
    path = folder / "weights.pt"
    if path.is_file():
        network.load_state_dict(torch.load(path, weights_only=True))
    else:
        fine_tune(network, load_dataset(scale.data, "train", context.root), odds, scale)
        content = io.BytesIO()
        torch.save(network.state_dict(), content)
        replace_file(path, content.getvalue())
    return network


# Their votes, and what a gate makes of them


def candidates(context: Context, scale: GateScale) -> dict[str, ConfidentVotes]:
    """Votes of every classifier, by its gate: softmax of the classes, or 1 − p_?."""
    name = context.model(scale.need)
    f = load(name, sigma=scale.levels[0]).classifier
    data = load_dataset(scale.data, "val", context.root)[: scale.images]
    sizes = f"{scale.epochs}-{scale.learning_rate:g}-{scale.seed}"
    store = context.store / "gates" / Path(name).name

    def votes(network: nn.Module, folder: Path) -> ConfidentVotes:
        path = folder / f"val-{scale.images}-{scale.n}.npz"
        if not path.is_file():
            g = SmoothedClassifier(network, FixedSelector(scale.levels[0]))
            levels = scale.levels
            keep(path, cascades.tabulate(g, data, levels, scale.n, N0, CONFIDENCES, scale.seed))
        return kept(path, scale, scale.n)

    found = {"f as released, softmax": votes(f, store / "released")}
    folder = store / f"control-{sizes}"
    control = fine_tuned(context, f, None, scale, folder)
    found["f fine-tuned, softmax"] = votes(control, folder)
    for odds in scale.odds:
        folder = store / f"odds-{odds:g}-{sizes}"
        gambler = fine_tuned(context, f, odds, scale, folder)
        found[f"don't know, odds {odds:g}"] = votes(Stakes(gambler), folder)
    return found


def half(table: ConfidentVotes, second: bool) -> ConfidentVotes:
    """Every other image of the table."""
    parts = {name: getattr(table, name)[second::2] for name in ("counts", "selection", "labels")}
    return replace(table, **parts)


def measured(rule: Rule, table: ConfidentVotes, single: Sequence[Rule]) -> list[Cell]:
    """A rule on images it was not chosen on, beside the single σ of the same classifier."""
    found = reach(table, rule)
    radius = average_certified_radius(found)
    every = [reach(table, one) for one in single]
    best = max(average_certified_radius(one) for one in every)
    below = regret(found, envelope(every), RADII)
    at_zero = float(certified_accuracy(found, [0.0])[0])
    return [
        Cell(f"{at_zero:.3f}", at_zero),
        Cell.mean_radius(radius, mean_interval(np.maximum(found, 0))),
        Cell(f"{radius / best:.3f}", radius / best),
        Cell(f"{below:.3f}", below),
    ]


def rows(name: str, table: ConfidentVotes) -> list[list[Cell]]:
    """λ = 1 and the least regret, without and with the gate."""
    fit, rest = half(table, False), half(table, True)
    every = list(cascades.rules(fit, len(table.levels)))
    plain = [rule for rule in every if rule.gate == 0]
    single = [rule for rule in plain if len(rule.columns) == 1]
    chosen = {
        "λ = 1, no gate": cascades.choose(plain, [1.0])[0][1],
        "least regret, no gate": least_regret(fit, plain, False),
        "largest radius, gate": max((r for r in every if r.gate), key=lambda r: r.radius),
        "least regret, gate": least_regret(fit, every, True),
    }
    return [
        [Cell.of(name), Cell.of(label), *measured(rule, rest, single)]
        for label, rule in chosen.items()
    ]


def cascade_gate(context: Context, scale: GateScale) -> Result:
    """The same choice of rules for every classifier and gate."""
    tables = candidates(context, scale)
    table = Table(
        "cascade-gate",
        f"Cascades of up to {len(scale.levels)} stages without and with a gate, N = {scale.n}; "
        f"rules chosen on {len(range(0, scale.images, 2))} held-out images and measured on the "
        "other half. Ratio and regret are taken against the single σ of the same classifier.",
        ["classifier and gate", "rule", "r = 0", "average radius", "/ best σ", "regret"],
        [cells for name, votes in tables.items() for cells in rows(name, votes)],
    )
    claims: list[Claim] = []
    return Result([], [table], claims)


CASCADE_GATE: Experiment[GateScale] = Experiment(
    name="cascade-gate",
    paper="beyond the paper",
    title="no gate, a softmax gate and a learned one",
    scales={"cpu": GateScale(), "paper": GateScale()},
    time={"cpu": "1 CPU hour", "paper": "minutes on a GPU"},
    run=cascade_gate,
    needs=lambda scale: [replace(scale.need, selector=False)],
)
