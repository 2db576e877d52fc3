"""What a long command says: at once what it is going to do, at the end what to do next."""

import os
import sys
from pathlib import Path
from typing import TextIO

from varsmooth.errors import VarsmoothError
from varsmooth.runs.options import DataOptions


def announce(doing: str, **settings: object) -> None:
    """One line on standard error before the work starts, in the first of several processes."""
    if _is_first():
        said = ", ".join(
            f"{name} {value:,}" if isinstance(value, int) and value >= 10_000 else f"{name} {value}"
            for name, value in settings.items()
            if value is not None
        )
        say(f"{doing}: {said}", sys.stderr)


def warn_of_training_images(model: str | None, data: DataOptions) -> None:
    """Say so if the images are those that the model was trained on: an unsplit folder."""
    from varsmooth.data.splitting import has_splits
    from varsmooth.models.descriptions import describe

    path = Path(data.data).expanduser()
    if model is None or not path.exists() or has_splits(path) or not _is_first():
        return
    try:
        about = describe(model)
    except VarsmoothError:  # module:factory, or a name that the verb itself will refuse
        return
    trained = about.classifier.training.get("train_split") if about.classifier else None
    same = Path(about.dataset).expanduser().resolve() == path.resolve()
    if same and trained and "test" in (trained, data.split):
        say(
            f"warning: {path} is not split, so its {data.split} images include those that "
            f"{model} was trained on; add --split val",
            sys.stderr,
        )


def conclude(result: list[str], *commands: str) -> None:
    """The result on standard output, and the commands that usually follow."""
    if _is_first():
        say("\n".join([*result, *(f"next: {command}" for command in commands)]))


def say(text: str, file: TextIO | None = None) -> None:
    """Print; control characters in names that others chose do not reach the terminal."""
    safe = (c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in text)
    print("".join(safe), file=file, flush=True)


def _is_first() -> bool:
    return os.environ.get("RANK", "0") == "0"
