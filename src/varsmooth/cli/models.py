"""`varsmooth models` and `measure`: what models there are, what they can do, how to share them."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from varsmooth.cli.feedback import conclude, say
from varsmooth.cli.held_out import HeldOut
from varsmooth.defaults import MODEL
from varsmooth.files import check_unused
from varsmooth.models import descriptions
from varsmooth.models.cards import CARD, card, overview, plain, write_card
from varsmooth.models.descriptions import CONFIG, Description, describe, find, is_released
from varsmooth.models.settings import Settings
from varsmooth.typed import Count, Odd, Positive, fit

HEADER = """\
---
{licence}library_name: varsmooth
pipeline_tag: image-classification
tags: [randomized-smoothing, certified-robustness]
---
"""


def show(names: list[str], /, log: bool = False) -> None:
    """Show the released models in a table, or the cards of some models.

    The table has certified accuracy in percent and the average certified radius of f under one
    fixed σ, where `varsmooth measure` has measured them.

    examples:
      varsmooth models
      varsmooth models cifar10-0.25
      varsmooth models cifar10-0.25 --log true

    Args:
        names: released names or folders of models
        log: show what each epoch of the training reported too
    """
    for name in names:
        say(plain(card(name, describe(name), is_released(find(name)), log)))
    if not names:
        say("\n".join(overview(descriptions.released_names())))
        say(f"\nnext: varsmooth models {MODEL}\nnext: varsmooth demo")


def export(name: str, /, *, out: Path, licence: str | None = None) -> None:
    """Write a model into a folder that can be uploaded to the Hugging Face Hub.

    Weights stay as they are, and so does the description, but of your folders it keeps the names,
    not the paths. The card gets the header that the Hub reads. Load an uploaded model by
    hf://owner/name wherever a model is asked for.

    examples:
      varsmooth models export cifar10-0.25 --out upload/cifar10-0.25

    Args:
        name: a released name or the folder of a model
        out: the new folder
        licence: the licence you give it, as the Hub spells it (default: none is stated; of a
            released model mit)
    """
    check_unused(out)
    folder = descriptions.own_copy(name, out, "export")
    given = licence or ("mit" if is_released(find(name)) else None)
    about = describe(folder)
    shared: Description = fit(Description, _without_folders(asdict(about)))
    if shared != about:
        descriptions.write(folder, shared)
    text = card(folder.resolve().name, shared, is_released(find(name)))
    header = HEADER.format(licence="" if given is None else f"license: {given}\n")
    (folder / CARD).write_text(header + text, encoding="utf-8")
    say(f"{folder} holds {', '.join(sorted(path.name for path in folder.iterdir()))}")
    say(f"next: hf upload OWNER/{folder.resolve().name} {folder}")


def _without_folders(value: Any) -> Any:
    """The same values, each absolute path cut to its last part: the others are private."""
    if isinstance(value, dict):
        return {key: _without_folders(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_folders(inner) for inner in value]
    absolute = isinstance(value, str | Path) and Path(value).is_absolute()
    return Path(value).name if absolute else value


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
    folder = descriptions.own_copy(model, images.out, "measured")
    text = write_card(folder, descriptions.rewrite(folder, measured))
    shown = plain(text.partition("<details>")[0])
    written = f"written into {folder / CONFIG} and {folder / CARD}"
    conclude([shown, written], f"varsmooth models {folder}")
