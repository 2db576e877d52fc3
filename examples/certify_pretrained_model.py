"""Certify a classifier from transformers (pip install transformers).

    python examples/certify_pretrained_model.py [FOLDER OR HUB NAME]

The model must take 32×32 images here. Without an argument, a small ResNet is trained for half a
minute under Gaussian noise on the embedded images and saved, a stand-in for a model that you
downloaded and fine-tuned. The rest is the same for any `from_pretrained`.
"""

import sys

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoModelForImageClassification, ResNetConfig

from varsmooth import FixedSelector, SmoothedClassifier, certify, load_dataset, predict

SIGMA = 0.25


class Normalised(nn.Module):
    """Normalisation inside the classifier keeps σ and radius in pixel units."""

    def __init__(self, model: nn.Module, mean: float = 0.47, std: float = 0.25) -> None:
        super().__init__()
        self.model, self.mean, self.std = model, mean, std

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.model((x - self.mean) / self.std).logits
        return logits


def fine_tune_under_noise(model: nn.Module, epochs: int = 8) -> None:
    """A classifier that never saw noise votes almost at random under it."""
    images, labels, _ = load_dataset("cifar10-sample").batch(range(100, 1000))  # few, to be quick
    assert labels is not None
    classifier = Normalised(model).train()
    optimizer = torch.optim.AdamW(classifier.parameters(), lr=2e-3)
    for _ in range(epochs):
        for batch in torch.randperm(len(images)).split(50):
            noisy = images[batch] + SIGMA * torch.randn_like(images[batch])
            loss = functional.cross_entropy(classifier(noisy), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def make_a_model(folder: str) -> str:
    torch.manual_seed(0)
    config = ResNetConfig(
        embedding_size=16, hidden_sizes=[16, 32, 64], depths=[1, 1, 1], layer_type="basic"
    )
    config.num_labels = 10
    model = AutoModelForImageClassification.from_config(config)
    fine_tune_under_noise(model)
    model.save_pretrained(folder)
    return folder


def main(name: str | None = None) -> None:
    model = AutoModelForImageClassification.from_pretrained(name or make_a_model("my-resnet"))
    g = SmoothedClassifier(Normalised(model), FixedSelector(SIGMA))

    images, labels, ids = load_dataset("cifar10-sample").batch(range(8))  # none of the above
    print("labels     ", labels)
    print("predictions", predict(g, images, n=500, ids=ids).prediction)  # −1: abstain
    print(certify(g, images, n0=50, n=500, ids=ids))  # radii rounded down


if __name__ == "__main__":
    main(*sys.argv[1:])
