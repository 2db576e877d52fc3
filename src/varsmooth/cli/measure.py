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
    out: Path | None = None,
    trust: list[str] | None = None,
) -> None:
    """Measure a model and write its card (README.md in its folder).

    Accuracy of f without noise and of its vote around σ_a; the levels that h chooses for each λ,
    how much they differ between images, and whether they follow each image's own best level.

    examples:
      varsmooth measure runs/cpu/h-0.25
      varsmooth measure cifar10-0.25 --split test --images 1000 --out my_copy

    Args:
        model: folder of a model, or a released name
        data: name or path of the data set (default: the one the model was trained on)
        split: images that the model was not trained on
        root: the data directory (default: $VARSMOOTH_DATA, else the platform's usual place)
        images: how many of its images are used
        votes: votes of f per image and level
        samples: samples of h per image and λ; odd
        seed: of the noise
        device: where to compute
        out: folder for a copy of the model with the results (default: the model's own folder,
            or for a released model NAME-measured)
        trust: import paths of your own networks that the model may build
    """
    from varsmooth.data import load_dataset
    from varsmooth.data.fitting import fitted
    from varsmooth.errors import require
    from varsmooth.models.checkpoints import load_checkpoint
    from varsmooth.models.descriptions import CONFIG, own_copy, rewrite
    from varsmooth.models.loading import smoothed
    from varsmooth.models.settings import Settings
    from varsmooth.training import cards

    require(samples % 2 == 1, f"samples must be odd, not {samples}, so that one is the median")
    loaded = load_checkpoint(model, trust or ())
    about = loaded.description
    g = smoothed(loaded, Settings(sigma=about.default_sigma)).to(device)
    if loaded.selector is not None:
        loaded.selector.to(device)
    chosen = load_dataset(data or about.dataset, split, root)[:images]
    chosen = fitted(chosen, g, about.class_names, about.image_shape)
    measured = cards.measure(loaded, chosen, votes, samples, seed)
    folder = own_copy(model, out, "measured")
    text = cards.write_card(folder, rewrite(folder, measured))
    print(text.partition("<details>")[0].rstrip())
    print(f"\nwritten into {folder / CONFIG} and {folder / cards.CARD}")
