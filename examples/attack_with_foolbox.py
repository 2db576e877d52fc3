"""Attack a smoothed classifier with another attack library (pip install '.[attacks]').

A `SmoothedClassifier` is an `nn.Module` that returns logits, so any library can attack it; every
evaluation draws fresh noise. Judge the adversarial images by fresh votes, not by the single noisy
evaluation that the library saw.
"""

import os

os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")  # foolbox looks for a git binary

import foolbox
import torch
from torch import nn

from varsmooth import FixedSelector, SmoothedClassifier, load_dataset, pgd, predict


class BrighterHalf(nn.Module):
    """A toy classifier: is the upper half of the image brighter?"""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        upper, lower = x.chunk(2, dim=2)
        score = 50 * (upper.mean(dim=(1, 2, 3)) - lower.mean(dim=(1, 2, 3)))
        return torch.stack([score, -score], dim=1)


def main() -> None:
    images = load_dataset("cifar10-sample").batch(range(100)).images
    g = SmoothedClassifier(BrighterHalf(), FixedSelector(0.25), samples=32).eval()
    labels = predict(g, images, alpha=None).prediction
    budget = 2.0

    attack = foolbox.attacks.L2PGD(steps=20, rel_stepsize=2.5 / 20)
    model = foolbox.PyTorchModel(g, bounds=(0, 1), device="cpu")
    _, theirs, _ = attack(model, images, labels, epsilons=budget)
    ours = pgd(g, images, labels, eps=budget, steps=20)

    for name, adversarial in (("foolbox L2PGD", theirs), ("varsmooth pgd", ours)):
        kept = predict(g, adversarial, alpha=None).prediction == labels
        print(f"{name}: {int(kept.sum())} of {len(images)} predictions survive ℓ2 budget {budget}")


if __name__ == "__main__":
    main()
