"""`varsmooth measure`: what a model can do, written into its description and its card."""

from pathlib import Path

from varsmooth.cli.feedback import announce, conclude
from varsmooth.typed import Count, Device, NonNegative, Odd


def measure(
    model: str,
    /,
    *,
    data: str | None = None,
    split: str = "val",
    root: Path | None = None,
    images: Count = 500,
    n: Count = 100,
    n_select: Odd = 31,
    seed: NonNegative = 0,
    device: Device = "auto",
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
        n: votes of f per image and level
        n_select: samples of h per image and λ; odd
        seed: of the noise
        device: where to compute
        out: folder for a copy of the model with the results (default: the model's own folder,
            or for a released model NAME-measured)
        trust: import paths of your own networks that the model may load: package.module:Class,...
    """
    announce(f"measure {model}", images=f"{images} of {split}", n=n, device=device)
    from varsmooth.data import load_dataset
    from varsmooth.data.fitting import fitted
    from varsmooth.models.checkpoints import load_checkpoint
    from varsmooth.models.descriptions import CONFIG, own_copy, rewrite
    from varsmooth.models.loading import smoothed
    from varsmooth.models.settings import Settings
    from varsmooth.processes import choose_device
    from varsmooth.training import cards

    loaded, where = load_checkpoint(model, trust or ()), choose_device(device)
    about = loaded.description
    g = smoothed(loaded, Settings(sigma=about.default_sigma)).to(where)
    if loaded.selector is not None:
        loaded.selector.to(where)
    chosen = load_dataset(data or about.dataset, split, root)[:images]
    chosen = fitted(chosen, g, about.class_names, about.image_shape)
    measured = cards.measure(loaded, chosen, n, n_select, seed)
    folder = own_copy(model, out, "measured")
    text = cards.write_card(folder, rewrite(folder, measured))
    print(text.partition("<details>")[0].rstrip())
    where_to = f"written into {folder / CONFIG} and {folder / cards.CARD}"
    conclude(["", where_to], f"varsmooth models {folder}")
