"""`varsmooth models`: what models there are, what they can do, how to share them."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from varsmooth._util.files import only_writer, replace_file
from varsmooth._util.typed import fit
from varsmooth.cli.feedback import say
from varsmooth.defaults import MODEL
from varsmooth.models import descriptions
from varsmooth.models.cards import card, overview, plain
from varsmooth.models.descriptions import (
    CARD,
    WEIGHTS,
    Description,
    check_new_model,
    describe,
    find,
    is_released,
)

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
        log: also show the training log, one line per epoch
    """
    for name in names:
        say(plain(card(name, describe(name), is_released(find(name)), log)))
    if not names:
        say("\n".join(overview(descriptions.released_names())))
        say(f"\nnext: varsmooth models {MODEL}\nnext: varsmooth demo")


def export(name: str, /, *, out: Path, licence: str | None = None) -> None:
    """Write a model into a folder that can be uploaded to the Hugging Face Hub.

    Weights are copied unchanged. In the description, absolute paths are cut to their last part.
    The card gets the header that the Hub reads. Load an uploaded model as hf://owner/name
    wherever a model is expected.

    examples:
      varsmooth models export cifar10-0.25 --out upload/cifar10-0.25

    Args:
        name: a released name or the folder of a model
        out: the new folder
        licence: its licence, as the Hub spells it (default: none; mit for a released model)
    """
    source, about = find(name), describe(name)
    check_new_model(out)
    licence = licence or ("mit" if is_released(source) else None)
    shared: Description = fit(Description, _without_folders(asdict(about)))
    text = card(out.resolve().name, shared, is_released(source))
    header = HEADER.format(licence="" if licence is None else f"license: {licence}\n")
    with only_writer(out):  # the description last: with it the folder is a model
        replace_file(out / WEIGHTS, (source / WEIGHTS).read_bytes())
        replace_file(out / CARD, (header + text).encode())
        descriptions.write(out, shared)
    say(f"{out} holds {', '.join(sorted(path.name for path in out.iterdir()))}")
    for part in (shared.classifier, shared.selector):
        if part is not None and ":" in part.network:
            say(f"note: loading it needs the code of {part.network}, and --trust {part.network}")
    say(f"next: hf upload OWNER/{out.resolve().name} {out}")


def _without_folders(value: Any) -> Any:
    """The same values, each absolute path cut to its last part: the others are private."""
    if isinstance(value, dict):
        return {key: _without_folders(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_folders(inner) for inner in value]
    absolute = isinstance(value, str | Path) and Path(value).is_absolute()
    return Path(value).name if absolute else value
