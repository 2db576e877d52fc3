"""Certify a classifier from transformers (pip install transformers).

    python examples/certify_pretrained_model.py [FOLDER OR HUB NAME]

The model must take 32×32 images here. Without an argument, a small ResNet is trained for half a
minute under Gaussian noise on the embedded images and saved in a temporary folder, in place of a
model that you downloaded and fine-tuned. The rest is the same for any `from_pretrained`.
"""

import sys
from tempfile import TemporaryDirectory

import torch
from torch import nn
from torch.nn import functional
from transformers import (
    AutoImageProcessor,
    AutoModelForImageClassification,
    ResNetConfig,
    ViTImageProcessor,
)

from varsmooth import FixedSelector, Options, SmoothedClassifier, certify, load_dataset, predict
from varsmooth.models.adapters import from_transformers

SIGMA = 0.25


def fine_tune_under_noise(classifier: nn.Module, epochs: int = 8) -> None:
    """A classifier that never saw noise votes almost at random under it."""
    images, labels, _ = load_dataset("cifar10-sample").batch(range(100, 1000))  # few, to be quick
    assert labels is not None
    classifier.train()
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
    size = {"height": 32, "width": 32}
    processor = ViTImageProcessor(size=size, image_mean=[0.47] * 3, image_std=[0.25] * 3)
    fine_tune_under_noise(from_transformers(model, processor))
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


def main(name: str | None = None) -> None:
    with TemporaryDirectory() as folder:
        name = name or make_a_model(folder)
        model = AutoModelForImageClassification.from_pretrained(name)
        processor = AutoImageProcessor.from_pretrained(name)
    # Normalisation inside the classifier keeps σ and radius in pixel units.
    g = SmoothedClassifier(from_transformers(model, processor), FixedSelector(SIGMA))

    images, labels, ids = load_dataset("cifar10-sample").batch(range(8))  # none of the above
    print("labels     ", labels)
    print("predictions", predict(g, images, n=500, ids=ids).prediction)  # −1: abstain
    print(certify(g, images, n=500, ids=ids, options=Options(n0=50)))  # radii rounded down


if __name__ == "__main__":
    main(*sys.argv[1:])
