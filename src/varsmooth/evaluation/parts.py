"""Folders that together hold one run: shards that were written to different disks."""

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from varsmooth.errors import VarsmoothError
from varsmooth.evaluation.headers import different_options
from varsmooth.evaluation.records import Run


def open_joined(folders: Iterable[str | Path]) -> list[Run]:
    """The runs in these folders, in order; unfinished ones with the same settings are one run.

    Same settings are the same model, images, options and seed, so that rows of an image are equal
    wherever it was computed.
    """
    groups: list[list[Run]] = []
    for folder in folders:
        run = Run.open(folder)
        alike = (g for g in groups if not different_options(g[0].header, run.header))
        together = (g for g in alike if _is_part(g[0]) and _is_part(run))
        if (group := next(together, None)) is None:
            groups.append([run])
        else:
            group.append(run)
    return [_join(group) for group in groups]


def open_as_one(folders: Iterable[str | Path]) -> Run:
    """The one run that these folders hold together."""
    first, *others = open_joined(folders)
    for other in others:
        different = different_options(first.header, other.header)
        why = "; ".join(different) or "each is complete by itself"
        raise VarsmoothError(f"{first.folder} and {other.folder} are not parts of one run ({why})")
    return first


def _is_part(run: Run) -> bool:
    """Whether images of the run are missing in its folder."""
    size: int = run.header["dataset"]["size"]
    return len({row["id"] for row in run.stored()}) < size


def _join(runs: list[Run]) -> Run:
    first, *others = runs
    if not others:
        return first
    names = [run.header["name"] for run in runs]
    stems = {re.sub(r"[-_. ]*\d+$", "", name) for name in names}  # part-1, part-2, … are `part`
    header = first.header | {"name": stems.pop() or names[0] if len(stems) == 1 else names[0]}
    return replace(first, header=header, parts=tuple(run.folder for run in others))
