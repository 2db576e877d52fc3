"""A sweep of runs as one curve: the best of them at each radius, chosen with hindsight."""

import glob
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from numpy.typing import ArrayLike

from varsmooth.bounds import Floats
from varsmooth.certificates import Guarantee
from varsmooth.errors import require
from varsmooth.report import statistics
from varsmooth.report.outcomes import Outcomes, open_runs, shared_images


@dataclass(frozen=True)
class Envelope:
    """The pointwise maximum of the certified accuracy of several runs over the same images."""

    label: str
    runs: Sequence[Outcomes]

    @classmethod
    def parse(cls, text: str) -> "Envelope":
        """From "label=run1,run2,..."; a run may be a pattern such as runs/fixed-*."""
        label, equals, listed = (part.strip() for part in text.partition("="))
        folders = [
            Path(match)
            for pattern in listed.split(",")
            for match in (sorted(glob.glob(pattern.strip())) or [pattern.strip()])
        ]
        require(
            bool(label and equals and listed),
            f'an envelope is written "label=run1,run2,...", not {text!r}',
        )
        return cls(label, open_runs(folders))

    def __post_init__(self) -> None:
        first, *others = self.runs
        for run in others:
            pair = shared_images(first, run)
            require(
                pair is not None and len(pair[0]) == len(first) == len(run),
                f"envelope {self.label}: {run.name} and {first.name} are not runs over the "
                "same images; finish them, or certify the same subset",
            )
        require(
            all(run.verb == "certify" for run in self.runs),
            f"envelope {self.label}: only certify runs have a certified accuracy",
        )

    @property
    def guarantee(self) -> Guarantee:
        """The weakest of the runs."""
        words: tuple[Guarantee, ...] = get_args(Guarantee)  # from strongest to weakest
        return max((run.guarantee for run in self.runs if run.guarantee), key=words.index)

    def accuracy(self, radii: ArrayLike) -> Floats:
        return statistics.envelope([run.reach for run in self.runs], radii)
