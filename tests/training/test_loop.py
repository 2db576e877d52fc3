"""Training on the embedded sample: it learns, is reproducible, and reports errors."""

import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from tools.snapshot import snapshot
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from tests.terminal import write_photos
from varsmooth._util.fingerprints import fingerprint
from varsmooth._util.processes import Engine
from varsmooth.data import load_dataset
from varsmooth.errors import VarsmoothError
from varsmooth.losses import consistency_loss
from varsmooth.models.checkpoints import load_checkpoint
from varsmooth.models.descriptions import Description, Part, describe, recommend
from varsmooth.models.names import NETWORKS, SELECTORS
from varsmooth.models.networks import ConfidenceSelector, Conv4, DenoisedClassifier, build
from varsmooth.training import (
    ClassifierConfig,
    SelectorConfig,
    loop,
    train_classifier,
    train_selector,
)
from varsmooth.training.loop import Batches, crop_and_flip, suited
from varsmooth.training.optimizers import Muon, optimizers, orthogonalise
from varsmooth.training.state import save_state
from varsmooth.training.tasks import ClassifierTask, SelectorTask, network_options, pass_output

TINY = {"widths": [8, 8, 16, 16]}


def classifier_config(output: Path, **changes: Any) -> ClassifierConfig:
    """A few seconds of training on real images; nothing is ever chosen from the outcome."""
    small = ClassifierConfig(
        out=output,
        sigma=0.25,
        data="cifar10-sample",
        train_split="test",
        network_options=TINY,
        epochs=2,
        images_per_epoch=200,
        batch_size=50,
        held_out_images=20,
        n=16,
        device="cpu",
    )
    return replace(small, **changes)


def selector_config(output: Path, classifier: Path, **changes: Any) -> SelectorConfig:
    small = SelectorConfig(
        out=output,
        classifier=str(classifier),
        data="cifar10-sample",
        train_split="test",
        epochs=1,
        images_per_epoch=100,
        batch_size=50,
        selector_samples=3,
        classifier_samples=4,
        held_out_images=20,
        device="cpu",
    )
    return replace(small, **changes)


class Trained(NamedTuple):
    """What training leaves: the model's description, and the network that was trained."""

    folder: Path
    about: Description
    part: Part
    network: nn.Module

    @property
    def losses(self) -> list[float]:
        return [epoch["loss"] for epoch in self.part.history]


def train(config: ClassifierConfig | SelectorConfig) -> Trained:
    if isinstance(config, ClassifierConfig):
        folder, role = train_classifier(config), "classifier"
    else:
        folder, role = train_selector(config), "selector"
    model = load_checkpoint(folder)
    network, part = getattr(model, role), getattr(model.description, role)
    return Trained(folder, model.description, part, network)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = tmp_path_factory.mktemp("trained")
    return train(classifier_config(folder, epochs=4, images_per_epoch=1000))


def weights(config: ClassifierConfig) -> str:
    return fingerprint(train(config).network)


def test_classifier_learns_and_describes_itself(trained: Trained) -> None:
    assert trained.losses[-1] < trained.losses[0] - 0.1
    assert trained.part.history[-1]["accuracy"] > 0.2
    assert set(trained.part.metrics["val"]["smoothed_accuracy"]) >= {"0.125", "0.25", "0.5"}
    assert (trained.about.sigma_a, trained.about.universal) == (0.25, False)
    assert len(trained.about.class_names) == 10


def test_same_seed_same_weights_other_seed_other_weights(tmp_path: Path) -> None:
    first, again, other = (
        weights(classifier_config(tmp_path / name, seed=seed))
        for name, seed in (("first", 0), ("again", 0), ("other", 1))
    )
    assert first == again != other


def test_universal_classifier_is_conditional(tmp_path: Path) -> None:
    model = train(classifier_config(tmp_path, universal=True))
    assert model.network.conditional
    assert model.about.universal


class Watch(torch.nn.Module):
    """Remembers the levels it is called with; its logits favour class 0 by 2."""

    conditional = True

    def forward(self, x: torch.Tensor, sigma: torch.Tensor) -> torch.Tensor:
        self.sigma = sigma
        return torch.tensor([2.0, 0, 0, 0]).expand(len(x), 4)


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_levels_and_targets_of_training(tmp_path: Path, power: float) -> None:
    """P(σ ≤ σ_a'/2) = 2^(−1/power); a smoothed target adds ε times the mean of the other losses."""
    shown = Watch()
    config = classifier_config(
        tmp_path, universal=True, sigma=1.0, sigma_power=power, label_smoothing=0.1
    )
    labels = torch.zeros(4000, dtype=torch.long)
    loss, _ = ClassifierTask(shown, config).loss(torch.zeros(4000, 1, 1, 1), labels, labels, (0, 0))
    assert (shown.sigma <= 0.5).float().mean().item() == pytest.approx(0.5 ** (1 / power), abs=0.03)
    right, wrong = -torch.tensor([2.0, 0, 0, 0]).log_softmax(0)[:2]
    assert loss.item() == pytest.approx((0.925 * right + 0.075 * wrong).item(), rel=1e-5)


def test_consistency_training_runs_over_copies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    losses = train(classifier_config(tmp_path, copies=2, consistency=5.0, epochs=1)).losses
    first = capsys.readouterr().err.splitlines()[0]  # what training is followed by is known before
    measured = "20 images (held_out_images), 16 votes each (n) at 7 noise levels"
    assert first == f"measured after training: {measured}"
    assert losses[0] > 0


class Noisy(torch.nn.Module):
    """Logits that noise moves; remembers them and the levels."""

    conditional = True

    def forward(self, x: torch.Tensor, sigma: torch.Tensor) -> torch.Tensor:
        self.logits, self.sigma = torch.outer(x.flatten(), torch.tensor([1.0, -1.0, 2.0])), sigma
        return self.logits


@pytest.mark.parametrize("power", [0.0, 1.0])
def test_weight_of_consistency_follows_the_level(tmp_path: Path, power: float) -> None:
    """At level σ it is η · (σ / sigma)^power."""
    module, labels = Noisy(), torch.zeros(50, dtype=torch.long)
    config = classifier_config(
        tmp_path, universal=True, sigma=2.0, copies=2, consistency=5.0, consistency_power=power
    )
    loss, _ = ClassifierTask(module, config).loss(torch.zeros(50, 1, 1, 1), labels, labels, (0, 0))
    per_image = [
        consistency_loss(module.logits.view(2, 50, 3)[:, i : i + 1], 5.0 * (level / 2.0) ** power)
        for i, level in enumerate(module.sigma[:50].tolist())
    ]
    cross_entropy = nn.functional.cross_entropy(module.logits, labels.repeat(2))
    torch.testing.assert_close(loss, cross_entropy + torch.cat(per_image).mean())


def test_pass_is_an_output_of_training_alone(tmp_path: Path) -> None:
    """It is there in every state, also of a resumed run, and not in the model."""
    config = classifier_config(tmp_path / "f", universal=True, passing=0.5, copies=2, epochs=1)
    classifier = train(config).network
    assert isinstance(classifier, Conv4)
    assert classifier.linear.out_features == 10
    state = torch.load(tmp_path / "f" / "state.pt", weights_only=True)["parts"]["module"]
    assert len(state["linear.weight"]) == len(state["linear.bias"]) == 11
    assert state["linear.weight"][10].abs().sum() > 0
    assert torch.equal(classifier.linear.weight, state["linear.weight"][:10])
    assert torch.equal(classifier.linear.bias, state["linear.bias"][:10])
    train(replace(config, out=tmp_path / "on", initial=str(tmp_path / "f"), consistency=5.0))
    refused = pytest.raises(VarsmoothError, match='Linear cannot be trained with "pass"')
    with refused, pass_output(torch.nn.Linear(2, 3)):
        pass


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"passing": 0.5}, "passing needs `universal` true"),
        ({"network": "denoised"}, "belong together"),
        ({"network": "denoised", "frozen": "cifar10-0.25"}, "takes σ as an input"),
    ],
)
def test_options_that_need_others(changes: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(VarsmoothError, match=sentence):
        classifier_config(tmp_path, **changes)


def test_fine_tuning_starts_from_the_given_weights(tmp_path: Path, trained: Trained) -> None:
    initial = {"initial": str(trained.folder), "epochs": 1}
    on = train(classifier_config(tmp_path / "on", learning_rate=1e-6, **initial))
    assert on.losses[0] == pytest.approx(trained.losses[-1], abs=0.25)
    with pytest.raises(
        VarsmoothError, match=r"do not fit the network Conv4; start from one with the same options"
    ):
        train(classifier_config(tmp_path / "off", network_options={}, **initial))


@pytest.mark.parametrize("network", ["attention", "confidence"])
@pytest.mark.parametrize("scheme", ["gv", "gvstar"])
def test_gradients_reach_all_of_h_and_none_of_f(
    trained: Trained, network: str, scheme: str
) -> None:
    classifier, module = trained.network, build(network)
    before = fingerprint(classifier)
    if network == "confidence":
        module.attach(classifier)  # type: ignore[operator]
    config = selector_config(Path(), trained.folder, scheme=scheme)
    task = SelectorTask(module, classifier, 0.25, config)
    images, labels, ids = load_dataset("cifar10-sample", "val").batch(range(8))
    assert labels is not None
    loss, report = task.loss(images, labels, ids, (0, 0, 0))
    torch.autograd.backward(loss, inputs=list(module.parameters()))
    assert all(p.grad is not None and p.grad.isfinite().all() for p in module.parameters())
    assert all(p.grad is None and p.requires_grad for p in classifier.parameters())
    assert fingerprint(classifier) == before
    assert 0 < report["sigma_min"] <= report["sigma_mean"] <= report["sigma_max"]


@pytest.mark.parametrize("network", ["attention", "confidence"])
def test_selector_learns_the_target_and_leaves_f_alone(
    tmp_path: Path, trained: Trained, network: str
) -> None:
    changes = {"network": network, "lam": 0.9, "epochs": 6, "learning_rate": 0.01}
    model = train(selector_config(tmp_path, trained.folder, **changes))
    classifier = load_checkpoint(tmp_path).classifier
    assert classifier is not None
    assert fingerprint(classifier) == fingerprint(trained.network)
    assert model.losses[-1] < model.losses[0] - 0.05
    # The KL pulls the levels from σ_a = 0.25 toward σ_t = 0.5.
    assert model.part.history[0]["sigma_mean"] < 0.4 < model.part.history[-1]["sigma_mean"]
    assert model.about.sigma_t == 0.5


def test_the_objective_decides_what_a_selector_learns(tmp_path: Path, trained: Trained) -> None:
    biases = []
    for name in ("radius", "variational"):
        changes = {"objective": name, "network": "confidence", "lam": 1.0}
        network = train(selector_config(tmp_path / name, trained.folder, **changes)).network
        assert isinstance(network, ConfidenceSelector)
        biases.append(network.output.bias.item())
    assert biases[0] != pytest.approx(biases[1], rel=0.05)


def test_selector_of_a_universal_classifier_is_told_the_middle(tmp_path: Path) -> None:
    f = train(classifier_config(tmp_path / "f", universal=True, sigma=1.0, epochs=1))
    about = train(selector_config(tmp_path / "h", f.folder, scheme="gv")).about
    assert (about.selector_sigma, about.sigma_t) == (0.5, 1.0)
    assert about.recommended["sigma_m"] == 0.5


def test_a_run_whose_state_is_lost_continues_its_schedule(tmp_path: Path, trained: Trained) -> None:
    rates: list[float] = []

    def log(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        rates.append(optimizer.param_groups[0]["lr"] / optimizer.defaults["lr"])

    changes = {"epochs": 4, "first_epoch": 2, "warmup": 0.0, "hold": 0.75}
    hook = register_optimizer_step_post_hook(log)
    try:
        on = train(classifier_config(tmp_path / "on", initial=str(trained.folder), **changes))
    finally:
        hook.remove()
    # Four steps an epoch: the new optimiser warms up over the first one; the last one anneals.
    assert rates == pytest.approx([1e-3, 0.25, 0.5, 0.75, 1, 0.853553, 0.5, 0.146447], abs=1e-6)
    assert [entry["epoch"] for entry in on.part.history] == [3, 4]


def test_killed_run_resumes_to_the_same_weights(tmp_path: Path) -> None:
    config = classifier_config(tmp_path / "killed", epochs=5, images_per_epoch=400)
    script = (
        "import json, sys; from varsmooth.training import *; "
        "train_classifier(ClassifierConfig(**json.loads(sys.argv[1])))"
    )
    arguments = [sys.executable, "-c", script, json.dumps(vars(config), default=str)]
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("epoch 2/"):
                process.send_signal(signal.SIGKILL)
                break
    assert process.returncode == -signal.SIGKILL
    assert not (tmp_path / "killed" / "config.json").exists()
    assert weights(config) == weights(replace(config, out=tmp_path / "through"))


@pytest.mark.parametrize("passing", [0.0, 0.5])
def test_a_snapshot_is_the_model_so_far(tmp_path: Path, passing: float) -> None:
    config = classifier_config(tmp_path / "f", epochs=1, universal=True, passing=passing)
    model = train(config).network
    (tmp_path / "f" / "config.json").unlink()  # as if it were still running
    assert snapshot(str(tmp_path / "f"), str(tmp_path / "now")).universal
    now = load_checkpoint(tmp_path / "now").classifier
    assert now is not None
    for before, after in zip(model.parameters(), now.parameters(), strict=True):
        assert torch.equal(before.half().float(), after)


def test_a_full_disk_is_a_sentence_and_the_same_command_resumes(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    config = classifier_config(tmp_path / "parts")
    most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, most[1]))
    try:
        with pytest.raises(VarsmoothError, match=r"cannot be written.*rerun the command"):
            train_classifier(config)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, most)
    assert not list((tmp_path / "parts").glob("*.part"))
    assert weights(config) == weights(classifier_config(tmp_path / "whole"))


def test_run_resumes_within_an_epoch(
    tmp_path: Path,
    trained: Trained,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """To the same weights; what it was measured as before training is not measured again."""
    changes = {"ema": 0.9, "muon": 0.05, "initial": str(trained.folder)}
    config = classifier_config(tmp_path / "stopped", **changes)  # four steps an epoch
    through = train(replace(config, out=(tmp_path / "through")))
    saves = []

    def save_and_stop(*arguments: Any) -> None:
        save_state(*arguments)
        saves.append(arguments)
        if len(saves) == 8:  # the end of the first epoch was the sixth
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(loop, "SAVE_EVERY", 0.0)
        patched.setattr(loop, "save_state", save_and_stop)
        with pytest.raises(KeyboardInterrupt):
            train(config)
    assert "measured before and after training: " in capsys.readouterr().err
    resumed = train(config)
    output = capsys.readouterr().err
    assert "resuming after epoch 1 and step 2/4 from " in output
    assert output.count("measuring 20 images") == 1
    assert fingerprint(resumed.network) == fingerprint(through.network)
    assert resumed.losses == through.losses
    before, first = (each.part.metrics["val"]["before"] for each in (resumed, through))
    assert before == first
    assert before["plain_accuracy"] == trained.part.metrics["val"]["plain_accuracy"]


def test_what_was_measured_before_training_outlives_an_interruption(
    tmp_path: Path,
    trained: Trained,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = classifier_config(tmp_path / "f", epochs=1, initial=str(trained.folder))

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(loop._Run, "train_epoch", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train(config)
    assert capsys.readouterr().err.count("measuring 20 images") == 1
    assert "before" in train(config).part.metrics["val"]
    assert capsys.readouterr().err.count("measuring 20 images") == 1, "after training alone"


def test_finished_model_is_the_moving_average(tmp_path: Path) -> None:
    steps: list[torch.Tensor] = []

    def remember(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        steps.append(optimizer.param_groups[-1]["params"][-1].detach().clone())

    hook = register_optimizer_step_post_hook(remember)
    try:
        classifier = train(classifier_config(tmp_path, epochs=1, ema=0.75)).network
    finally:
        hook.remove()
    average = steps[0]
    for step in steps[1:]:
        average = 0.75 * average + 0.25 * step
    assert isinstance(classifier, Conv4)
    torch.testing.assert_close(classifier.linear.bias.detach(), average)
    assert not torch.equal(average, steps[-1])


def test_muon_turns_kernels_by_the_learning_rate() -> None:
    """Whatever the gradient's size and the kernel's length, and all directions equally."""
    generator = torch.Generator().manual_seed(0)
    kernel = torch.nn.Parameter(7 * torch.randn(16, 8, 3, 3, generator=generator))
    before, optimizer = kernel.detach().clone(), Muon([kernel], lr=0.1)
    kernel.grad = 1e-3 * torch.randn(kernel.shape, generator=generator)
    optimizer.step()
    cosine = torch.cosine_similarity(before.flatten(), kernel.detach().flatten(), dim=0)
    assert torch.tan(torch.acos(cosine)).item() == pytest.approx(0.1, rel=0.2)
    torch.testing.assert_close(kernel.detach().norm(), before.norm())
    assert (kernel.detach() - before).mul(kernel.grad).sum() < 0


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_muon_turns_kernels_the_same_way_in_the_precision_of_training(
    tmp_path: Path, precision: str
) -> None:
    steps = []
    for config in (classifier_config(tmp_path), classifier_config(tmp_path, precision=precision)):
        torch.manual_seed(0)
        network = torch.nn.Conv2d(32, 48, 3)
        before = network.weight.detach().clone()
        _, muon = optimizers(network, replace(config, muon=0.1))
        network.weight.grad = torch.randn(before.shape)
        muon.step()
        steps.append((network.weight.detach() - before).flatten())
        assert network.weight.dtype == torch.float32
    assert torch.cosine_similarity(steps[0], steps[1], dim=0) > 0.999
    assert torch.equal(*steps) == (precision == "float32")


def test_orthogonalised_matrix_has_equal_singular_values() -> None:
    matrix = torch.randn(12, 40, generator=torch.Generator().manual_seed(0))
    for wide in (matrix, matrix.T, 100 * matrix):
        values = torch.linalg.svdvals(orthogonalise(wide))
        assert 0.6 < values.min() <= values.max() < 1.3
        left, _, right = torch.linalg.svd(wide, full_matrices=False)
        overlap = (orthogonalise(wide) * (left @ right)).sum() / len(values)
        assert overlap == pytest.approx(1, abs=0.3)


def test_muon_takes_the_kernels_and_adamw_the_rest(tmp_path: Path) -> None:
    network = build("conv4", TINY)
    adamw, muon = optimizers(network, classifier_config(tmp_path, muon=0.1))
    kernels, rest = (
        {id(p) for group in optimizer.param_groups for p in group["params"]}
        for optimizer in (muon, adamw)
    )
    assert kernels == {id(p) for p in network.parameters() if p.ndim == 4}
    assert kernels | rest == {id(p) for p in network.parameters()}
    assert not kernels & rest


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_precision_of_training_is_not_that_of_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    dtypes: dict[bool, set[torch.dtype]] = {True: set(), False: set()}
    forward = Conv4.forward

    def watched(module: Conv4, *inputs: torch.Tensor) -> torch.Tensor:
        logits = forward(module, *inputs)
        dtypes[module.training].add(logits.dtype)
        return logits

    monkeypatch.setattr(Conv4, "forward", watched)
    classifier = train(classifier_config(tmp_path, epochs=1, precision=precision)).network
    assert dtypes == {True: {getattr(torch, precision)}, False: {torch.float32}}
    assert {p.dtype for p in classifier.parameters()} == {torch.float32}


def test_resuming_another_run_is_refused(tmp_path: Path) -> None:
    train_classifier(classifier_config(tmp_path, epochs=1))
    with pytest.raises(VarsmoothError, match="`epochs=1` there, 2 now; `seed=0` there, 5 now"):
        train_classifier(classifier_config(tmp_path, seed=5))
    (tmp_path / "state.pt").write_bytes(b"no state")
    (tmp_path / "config.json").unlink()
    with pytest.raises(VarsmoothError, match="not a training state"):
        train_classifier(classifier_config(tmp_path, epochs=1))
    train_classifier(classifier_config(tmp_path, epochs=1, resume=False))


def test_a_finished_run_leaves_its_model_as_it_is(tmp_path: Path) -> None:
    """What `tune` has written since, for one."""
    config = classifier_config(tmp_path / "f", epochs=1)
    folder = train_classifier(config)
    recommend(folder, {"sigma": 0.1})
    train_classifier(config)
    assert describe(folder).recommended == {"sigma": 0.1}
    pair = selector_config(tmp_path / "h", folder)
    recommend(train_selector(pair), {"lam": 0.3})
    train_selector(pair)
    assert describe(tmp_path / "h").recommended == {"lam": 0.3}


def test_a_model_of_other_origin_is_not_overwritten(tmp_path: Path) -> None:
    folder = train_classifier(classifier_config(tmp_path, epochs=1))
    (folder / "state.pt").unlink()  # as in a model that was adopted or exported
    before = (folder / "model.safetensors").read_bytes()
    for changes in ({"epochs": 2}, {"epochs": 2, "resume": False}):
        with pytest.raises(VarsmoothError, match="did not train; choose another output folder"):
            train_classifier(classifier_config(folder, **changes))
    assert (folder / "model.safetensors").read_bytes() == before


def test_a_single_class_is_refused_before_training(tmp_path: Path) -> None:
    images = np.zeros((8, 16, 16, 3), np.uint8)
    np.savez(tmp_path / "one.npz", images=images, labels=np.zeros(8, np.int64))
    config = classifier_config(tmp_path / "f", data=str(tmp_path / "one.npz"), train_split="train")
    with pytest.raises(VarsmoothError, match="has one class"):
        train_classifier(config)
    np.savez(tmp_path / "one.npz", images=images)
    with pytest.raises(VarsmoothError, match="or an array `labels` into the"):
        train_classifier(config)


def test_diverging_loss_and_small_batches_are_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(VarsmoothError, match="lower `learning_rate`"):
        train_classifier(
            classifier_config(
                tmp_path, learning_rate=1e9, warmup=0.0, network_options={**TINY, "norm": "none"}
            )
        )
    train_classifier(classifier_config(tmp_path / "few", images_per_epoch=20, epochs=1))
    output = capsys.readouterr().err
    assert "20 images an epoch in batches of 20;" in output
    assert "training steps in all: 1, which may be too few" in output


def test_an_ordinary_network_is_trained_over_the_range(tmp_path: Path) -> None:
    """f(x) sees noise of σ ~ U(0, σ_a') as a conditional f(x, σ) does, without being given σ."""
    seen: list[torch.Tensor] = []

    class Plain(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append(x.flatten(1).std(dim=1))
            return x.flatten(1)[:, :4]

    config = classifier_config(tmp_path / "task", universal=True, sigma=1.0)
    labels = torch.zeros(2000, dtype=torch.long)
    ClassifierTask(Plain(), config).loss(torch.zeros(2000, 3, 16, 16), labels, labels, (0, 0))
    assert (seen[0] <= 0.5).float().mean().item() == pytest.approx(0.5, abs=0.04)
    assert seen[0].max().item() == pytest.approx(1.0, abs=0.1)
    options = {"widths": (8, 8, 8, 8), "conditional": False}
    changes = {"universal": True, "epochs": 1, "network_options": options}
    model = train(classifier_config(tmp_path / "f", **changes))
    assert model.about.universal
    assert not getattr(model.network, "conditional", False)


def test_crops_and_flips_only_move_pixels() -> None:
    images = torch.arange(1, 4 * 6 * 6 * 1 + 1).view(4, 6, 6, 1)
    generator = torch.Generator().manual_seed(0)
    torch.testing.assert_close(crop_and_flip(images, generator, 0, False), images)
    flipped = crop_and_flip(images, generator, 0, True)
    for image, result in zip(images, flipped, strict=True):
        assert torch.equal(result, image) or torch.equal(result, image.flip(1))
    moved = crop_and_flip(images, generator, 2, False)
    for image, result in zip(images, moved, strict=True):
        shifted = [
            torch.nn.functional.pad(image[..., 0], (2, 2, 2, 2))[i : i + 6, j : j + 6]
            for i in range(5)
            for j in range(5)
        ]
        assert any(torch.equal(result[..., 0], candidate) for candidate in shifted)


def test_conv4_is_trained_by_default() -> None:
    assert isinstance(build(ClassifierConfig(out=Path("here"), sigma=1.0).network), Conv4)


@pytest.mark.parametrize(
    ("module", "package", "changes"),
    [
        ("torch.utils.tensorboard", "tensorboard", {"tensorboard": True}),
        ("lightning_fabric", "lightning-fabric", {"devices": 2}),
    ],
)
def test_extras_are_named(
    module: str,
    package: str,
    changes: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(VarsmoothError, match=f"pip install {package}"):
        train_classifier(classifier_config(tmp_path, **changes))


def test_tensorboard_logs(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    train_classifier(classifier_config(tmp_path, tensorboard=True, epochs=1))
    assert list(tmp_path.glob("events.out.tfevents.*"))


def test_some_images_are_the_same_ones_in_every_epoch(tmp_path: Path) -> None:
    data = load_dataset("cifar10-sample", "val")
    config = classifier_config(tmp_path, images=8, batch_size=4)
    batches = Batches(data, config, Engine(torch.device("cpu")))
    epochs = [torch.cat([ids for _, _, ids in batches.of_epoch(epoch)]) for epoch in range(3)]
    step = len(data) // 8
    assert all(sorted(ids.tolist()) == data.ids[: 8 * step : step].tolist() for ids in epochs)
    assert epochs[0].tolist() != epochs[1].tolist()
    with pytest.raises(VarsmoothError, match="images cannot be 99999"):
        Batches(data, classifier_config(tmp_path, images=99_999), Engine(torch.device("cpu")))


def test_fewer_images_than_processes_are_refused(tmp_path: Path) -> None:
    config = classifier_config(tmp_path, devices=5)
    with pytest.raises(VarsmoothError, match="3 images are too few for 5 processes"):
        suited(config, 3)


def test_a_logger_is_a_function_of_the_epoch(tmp_path: Path) -> None:
    entries: list[dict[str, float]] = []
    train_classifier(classifier_config(tmp_path, epochs=2), entries.append)
    assert [entry["epoch"] for entry in entries] == [1, 2]
    part = describe(tmp_path).classifier
    assert part is not None
    assert entries == part.history


def test_a_denoiser_learns_and_the_classifier_behind_it_stays(tmp_path: Path) -> None:
    f = train(classifier_config(tmp_path / "f", network_options={**TINY, "norm": "batch"}))
    options = {"width": 8, "blocks": 1}
    changes = {"frozen": str(f.folder), "network_options": options, "muon": 0.02}
    config = classifier_config(tmp_path / "g", universal=True, network="denoised", **changes)
    denoised = train(config).network
    assert isinstance(denoised, DenoisedClassifier)
    assert fingerprint(denoised.classifier) == fingerprint(f.network)  # its statistics too
    assert (denoised.state_dict()["denoiser.output.gain"] != 0.1).all()


@pytest.mark.parametrize("network", sorted({*NETWORKS} - {"denoised"}))  # has its own test
def test_every_registered_network_gets_what_it_asks_for(network: str, tmp_path: Path) -> None:
    config = (
        selector_config(tmp_path, tmp_path, network=network)
        if network in SELECTORS
        else classifier_config(tmp_path, network=network, network_options={})
    )
    options = network_options(config, load_dataset("cifar10-sample"))
    assert isinstance(build(network, options), torch.nn.Module)


def test_the_classifier_behind_a_denoiser_must_know_the_classes(tmp_path: Path) -> None:
    classes = dict.fromkeys(("apple", "leaf", "sky"), 0)
    data = write_photos(tmp_path / "photos", 10, (32, 32), classes)
    options: dict[str, Any] = {"universal": True, "network": "denoised", "frozen": "cifar10-0.25"}
    options |= {"network_options": {}, "data": str(data), "train_split": "train"}
    with pytest.raises(VarsmoothError, match="apple, leaf, sky, which the model does not know"):
        train_classifier(classifier_config(tmp_path / "out", **options))
    assert not (tmp_path / "out" / "config.json").exists()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, while it compiles
def test_compiled_training_learns_the_same(tmp_path: Path) -> None:
    losses = {}
    for compiled in (False, True):
        config = classifier_config(tmp_path / str(compiled), compile=compiled, epochs=1)
        losses[compiled] = train(config).losses[0]
    assert losses[True] == pytest.approx(losses[False], rel=1e-3)


@pytest.mark.slow
def test_compiling_without_a_compiler_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "nonesuch")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    options = f"--compile true --train-split val --data cifar10-sample --out {tmp_path / 'f'}"
    command = [sys.executable, "-m", "varsmooth", "train", "classifier", "--sigma", "0.5"]
    ended = subprocess.run([*command, *options.split()], capture_output=True, text=True)
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].endswith(
        "; install a C++ compiler, or leave out `compile`"
    )
