"""`varsmooth measure`: what a model can do, written into its description and its card."""

from varsmooth.cli.feedback import conclude
from varsmooth.cli.held_out import HeldOut
from varsmooth.models.cards import CARD, plain, write_card
from varsmooth.models.descriptions import CONFIG, describe, own_copy, rewrite
from varsmooth.models.settings import Settings
from varsmooth.typed import Count, Odd, Positive


def measure(
    model: str,
    /,
    *,
    n: Count = 100,
    n_select: Odd = 31,
    levels: list[Positive] | None = None,
    images: HeldOut,
) -> None:
    """Measure a model and write its card (README.md in its folder).

    Accuracy of f without noise and of its vote around σ_a; the levels that h chooses for each λ,
    how much they differ between images, and whether they follow each image's own best level.

    examples:
      varsmooth measure runs/cpu/h-0.25
      varsmooth measure cifar10-0.25 --split test --images 1000 --out my_copy
      varsmooth measure my_model/ --levels 0.25 --n 1000

    Args:
        model: folder of a model, or a released name
        n: votes of f per image and level
        n_select: samples of h per image and λ; odd
        levels: certify f at these levels alone and keep the rest of the card
    """
    images.announce(f"measure {model}", model, n)
    from varsmooth.training.cards import measure as measure_model

    sigma = describe(model).default_sigma
    loaded, g, chosen = images.fit(model, Settings(sigma=sigma))
    if loaded.selector is not None:
        loaded.selector.to(next(g.parameters()).device)
    measured = measure_model(loaded, chosen, n, n_select, images.seed, levels)
    folder = own_copy(model, images.out, "measured")
    text = write_card(folder, rewrite(folder, measured))
    conclude(
        [
            plain(text.partition("<details>")[0]),
            f"written into {folder / CONFIG} and {folder / CARD}",
        ],
        f"varsmooth models {folder}",
    )
