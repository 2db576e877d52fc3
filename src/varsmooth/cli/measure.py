"""`varsmooth measure`: what a model can do, written into its description and its card."""

from pathlib import Path


def measure(
    model: str,
    data: str | None = None,
    split: str = "val",
    root: Path | None = None,
    images: int = 500,
    votes: int = 100,
    samples: int = 31,
    seed: int = 0,
    device: str = "cpu",
) -> None:
    """Measure a model and write its card (README.md in its folder).

    Accuracy of f without noise and of its vote around σ_a; the levels that h chooses for each λ,
    how much they differ between images, and whether they follow each image's own best level.

    examples:
      varsmooth measure runs/cpu/h-0.25
      varsmooth measure runs/cpu/h-0.25 --split test --images 1000

    Args:
        model: folder of a model
        data: name or path of the data set (default: the one the model was trained on)
        split: images that the model was not trained on
        root: the data directory (default: $VARSMOOTH_DATA, else the platform's usual place)
        images: how many of its images are used
        votes: votes of f per image and level
        samples: samples of h per image and λ; odd
        seed: of the noise
        device: where to compute
    """
    from varsmooth.data import load_dataset
    from varsmooth.errors import require
    from varsmooth.models.checkpoints import CONFIG, find, load_checkpoint, rewrite
    from varsmooth.training import cards

    require(samples % 2 == 1, f"samples must be odd, not {samples}, so that one is the median")
    loaded = load_checkpoint(model)
    for network in (loaded.classifier, loaded.selector):
        if network is not None:
            network.to(device)
    chosen = load_dataset(data or loaded.description.dataset, split, root)[:images]
    folder = find(model)
    about = rewrite(folder, cards.measure(loaded, chosen, votes, samples, seed))
    text = cards.write_card(folder, about)
    print(text.partition("<details>")[0].rstrip())
    print(f"\nwritten into {folder / CONFIG} and {folder / cards.CARD}")
