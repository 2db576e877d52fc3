"""Strong PGD against `sound` certificates of a trained classifier and a trained selector."""

import pytest
import torch
from scipy.stats import binom
from torch import Tensor, nn
from torch.nn import functional

from varsmooth import (
    ABSTAIN,
    MedianSelector,
    PGDOptions,
    SmoothedClassifier,
    certify,
    load_dataset,
    pgd,
)
from varsmooth.certificates import Certificates
from varsmooth.noise import keyed_generator

pytestmark = pytest.mark.slow

SIGMA_M, CLIP, LEVELS = 0.25, (0.15, 0.6), 4
CLASSES, IMAGES = 4, 32


class Network(nn.Module):
    """Class scores; pixels are centred inside."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        first, second = (nn.Conv2d(*io, 3, stride=2, padding=1) for io in ((3, 16), (16, 32)))
        last = nn.AvgPool2d(2), nn.Flatten(), nn.Linear(32 * 16, outputs)
        self.body = nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), *last)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.body(2 * (x - 0.5))
        return scores


class Level(Network):
    """h: a positive level."""

    def __init__(self) -> None:
        super().__init__(1)

    def forward(self, x: Tensor) -> Tensor:
        return 0.3 * super().forward(x)[:, 0].clamp(-3, 3).exp()


def fit(network: nn.Module, x: Tensor, target: Tensor, sigma: tuple[float, float]) -> None:
    """Train under noise of levels uniform in `sigma`: for classes, or levels if target is float."""
    generator = keyed_generator("cpu", 1, type(network).__name__)
    optimizer = torch.optim.Adam(network.parameters(), 2e-3)
    for _ in range(900):
        rows = torch.randint(len(x), (64,), generator=generator)
        low, high = sigma
        level = low + (high - low) * torch.rand(64, 1, 1, 1, generator=generator)
        noisy = x[rows] + level * torch.randn(64, 3, 32, 32, generator=generator)
        output, wanted = network(noisy), target[rows]
        loss = (
            functional.mse_loss(output.log(), wanted.log())
            if target.is_floating_point()
            else functional.cross_entropy(output, wanted)
        )
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def best_levels(g: SmoothedClassifier, x: Tensor, y: Tensor) -> Tensor:
    """For every image the level of the grid with the largest (roughly estimated) class radius."""
    levels = torch.tensor([0.15, 0.24, 0.38, 0.6])
    radii = []
    for level in levels.tolist():
        votes = g.votes(x, 96, sigma=torch.full((len(x),), level), noise=g.noise(len(x), seed=1))
        share = (votes.gather(1, y[:, None])[:, 0] + 0.5) / 97
        radii.append(level * torch.special.ndtri(share))
    return levels[torch.stack(radii).argmax(dim=0)]


class Scene:
    """A classifier and a protected selector, both trained on real images, and certificates."""

    def __init__(self) -> None:
        data = load_dataset("cifar10-sample")
        assert data.labels is not None
        batch = data.batch([i for i, label in enumerate(data.labels) if label < CLASSES])
        assert batch.labels is not None
        x, y = batch.images, batch.labels
        with torch.random.fork_rng():
            torch.manual_seed(0)
            f, h = Network(CLASSES), Level()
        fit(f, x, y, CLIP)
        fit(h, x, best_levels(self.smooth(f, h), x, y), (SIGMA_M, SIGMA_M))
        self.g, self.attacked = self.smooth(f, h), self.smooth(f, h, n=11)
        certificates = certify(self.g, x[::6], n=1000, seed=2)
        chosen = [i for i, c in enumerate(certificates) if c.prediction == y[::6][i]][:IMAGES]
        self.x, self.y = x[::6][chosen], y[::6][chosen]
        self.certificates = Certificates(tuple(certificates[i] for i in chosen))

    @staticmethod
    def smooth(f: nn.Module, h: nn.Module, n: int = 1001) -> SmoothedClassifier:
        selector = MedianSelector(h, SIGMA_M, n=n, clip=CLIP, levels=LEVELS)
        return SmoothedClassifier(f, selector, samples=8)

    def attack(self, factor: float) -> Tensor:
        """The worst images within factor × radius, by PGD through f, the noise and the selector."""
        eps = factor * self.certificates.radius
        adversarial = pgd(
            self.attacked, self.x, self.y, eps.float(), steps=20, seed=3,
            options=PGDOptions(restarts=2, samples=2),
        )  # fmt: skip
        # Onto the sphere, just inside it: the best of noisy losses may lie short of the budget,
        # and rounding may have carried a pixel across by 10⁻⁷.
        delta = (adversarial - self.x).double()
        length = delta.flatten(1).norm(dim=1).clamp_min(1e-9)
        delta *= (eps * (1 - 1e-5) / length).view(-1, 1, 1, 1)
        adversarial = (self.x + delta).float().clamp(0, 1)
        distance = (adversarial.double() - self.x.double()).flatten(1).norm(dim=1)
        assert (distance < eps).all()
        assert (distance / eps).median() > 0.9
        return adversarial

    def violations(self, x: Tensor) -> Tensor:
        """Where p(class | x') < ½ at the level selected at x': fresh noise, confirmed at 10⁻⁶."""
        with torch.no_grad():
            sigma = self.g.selector(x, self.g.noise(len(x), seed=4))
        n = 2000
        votes = self.g.votes(x, n, sigma=sigma, noise=self.g.noise(len(x), seed=5))
        count = votes.gather(1, self.y[:, None])[:, 0]
        return torch.from_numpy(binom.cdf(count.numpy(), n, 0.5) < 1e-6)


@pytest.fixture(scope="module")
def scene() -> Scene:
    return Scene()


def test_the_certificates_are_worth_attacking(scene: Scene) -> None:
    assert len(scene.certificates) == IMAGES
    assert scene.certificates.guarantee == "sound"
    assert (scene.certificates.prediction != ABSTAIN).all()
    assert scene.certificates.radius.median() > 0.05
    assert len(set(scene.certificates.sigma.tolist())) > 1  # h does choose


def test_strong_pgd_violates_no_sound_certificate(scene: Scene) -> None:
    assert not scene.violations(scene.x).any()
    assert not scene.violations(scene.attack(1 - 1e-6)).any()


def test_the_same_attack_finds_violations_beyond_the_radius(scene: Scene) -> None:
    """The control: the attack has teeth, moves f and h alike, and the check sees it."""
    adversarial = scene.attack(4.0)
    assert scene.violations(adversarial).sum() >= IMAGES // 4
    with torch.no_grad():
        before, after = (
            scene.g.selector(x, scene.g.noise(IMAGES, seed=4)) for x in (scene.x, adversarial)
        )
    assert (before != after).any()
