"""Options of a run as plain values. The command line reads its own from these, without torch."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from varsmooth._util.typed import OptionError, Typed
from varsmooth.data.source import Source
from varsmooth.defaults import (
    ALPHA,
    ALPHA_SELECT,
    BATCH_SIZE,
    N0,
    N_MAX,
    N_SELECT,
    Bound,
    Guarantee,
    N,
)
from varsmooth.models.options import ModelOptions as ModelOptions
from varsmooth.models.options import Precision
from varsmooth.types import (
    Count,
    Device,
    Few,
    NonNegative,
    Odd,
    Positive,
    Probability,
    Rule,
    Share,
    Weight,
)

SLICE = Rule(
    "START:STOP or START:STOP:STEP",
    holds=lambda text: re.fullmatch(r"(-?\d+)?:(-?\d+)?(:(-?[1-9]\d*)?)?", text) is not None,
)


def _is_shard(text: str) -> bool:
    parts = re.fullmatch(r"(\d{1,5})/(\d{1,5})", text)
    return parts is not None and 1 <= int(parts[1]) <= int(parts[2])


SHARD = Rule("I/N with 1 ≤ I ≤ N, as in 3/32", holds=_is_shard)

T = TypeVar("T", bound=Typed)


@dataclass(frozen=True, kw_only=True)
class DataOptions(Source):
    """The images.

    Args:
        data: a name from `varsmooth data list`, or the path of your own images (default: those
            that the model was trained on; for CIFAR-10 its embedded sample)
        split: train, val or test, where the data set has them
        subset: START:STOP:STEP, a Python slice of the split
    """

    split: str = "test"
    subset: Annotated[str, SLICE] | None = None


@dataclass(frozen=True, kw_only=True)
class WorkerOptions(Typed):
    """Where a run is computed; results do not depend on it.

    Args:
        devices: number of processes of a run, each with its own device
        engine: local: processes of this machine or of torchrun; ray: tasks on a Ray cluster, which
            replaces workers that die and keeps all of them busy
        ray_address: the cluster, as in ray://head:10001, or auto: the one that was started on this
            machine (default: $RAY_ADDRESS, else started for this command alone)
        worker_cpus: processor cores of a Ray worker
        worker_gpus: GPUs of a Ray worker, as in 0.25 (default: 1 where the cluster has any)
        shard: I/N, as in 3/32: only part I of N; workers need no connection, and write into one
            folder or into several that `report` and `verify` take together
    """

    devices: Few = 1
    shard: Annotated[str, SHARD] | None = None
    engine: Literal["local", "ray"] = "local"
    ray_address: str | None = None
    worker_cpus: Positive = 1
    worker_gpus: Weight | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.engine == "ray" and self.devices > 1:
            raise OptionError("devices", "belongs to `engine` local; a Ray cluster has its own")
        for name in ("ray_address", "worker_cpus", "worker_gpus"):
            if self.engine != "ray" and getattr(self, name) != getattr(WorkerOptions, name):
                raise OptionError(name, "belongs to `engine` ray; add it, or leave this out")


@dataclass(frozen=True)
class RunOptions(WorkerOptions):
    """Where results go and where they are computed; results do not depend on it.

    Args:
        out: the folder of the run; the same command continues an interrupted one
    """

    out: Path
    name: str | None = None
    batch_size: Count = BATCH_SIZE
    device: Device = "auto"


@dataclass(frozen=True)
class CertifyOptions(Typed):
    """The certificates.

    Args:
        n: votes at each level
        n0: draws that choose class and level
        n_select: draws of the selector behind its bounds
        alpha: maximum probability, per image, that the radius is too large
        alpha_select: the part of alpha spent on the selector
        method: sound: holds against any attack; conditional: if the selector is not
            attacked; paper: the paper's three levels at --distance, heuristic
        distance: D of the paper's method
        every_index: for the paper's method, every sampled level between its bounds
        band: cover the deployed prediction, whose median is empirical
        bound: best: the runner-up by its own votes where a larger radius is expected; cohen: always
            by 1 − p_A
        seed: seed of all noise; with the image's id it determines the result
        vote_cache: a folder of votes that runs share; another λ, clip or D then costs only the
            draws of the selector
        at: radii, as in 0,0.25,0.5: find the largest that can be certified, with few votes
        until: stop voting when n_max votes are predicted to add at most this share to the radius;
            with --at also when the next listed radius is out of reach
        n_max: most votes at a level with --at or --until (default: 100000)
    """

    n: Count = N
    n0: Count = N0
    n_select: Count = N_SELECT
    alpha: Probability = ALPHA
    alpha_select: Probability = ALPHA_SELECT
    method: Literal["sound", "conditional", "paper"] = "sound"
    distance: Weight | None = None
    every_index: bool = False
    band: bool = True
    bound: Bound = "best"
    seed: NonNegative = 0
    vote_cache: Path | None = None
    at: Weight | list[Weight] | None = None
    until: Probability | None = None
    n_max: Count | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_sequential()
        paper = self.method == "paper"
        if paper and self.distance is None:
            raise OptionError("distance", "must be given with `method` paper: the attack budget D")
        for name in ("distance", "every_index"):
            if getattr(self, name) != getattr(CertifyOptions, name) and not paper:
                raise OptionError(name, "belongs to `method` paper; leave it out")

    def _check_sequential(self) -> None:
        if self.at is None and self.until is None:
            if self.n_max is not None:
                raise OptionError("n_max", "belongs to `at` or `until`; give one of them, or `n`")
            return
        if self.n != N:
            raise OptionError("n", "fixes the votes per image; with `at` or `until` give `n_max`")
        if self.method == "paper":
            raise OptionError("method", "cannot be paper with `at` or `until`; leave it out")
        object.__setattr__(self, "n_max", self.n_max or N_MAX)


@dataclass(frozen=True)
class PredictOptions(Typed):
    """The predictions.

    Args:
        n: votes
        alpha: maximum probability of returning a class other than g's most likely one; this does
            not bound misclassification; null: plain majority
        alpha_select: the part of alpha for the deployed median of a protected selector
        seed: seed of all noise (default: fresh entropy, which the guarantee needs in deployment)
    """

    n: Count = N
    alpha: Probability | None = ALPHA
    alpha_select: Probability = ALPHA_SELECT
    seed: NonNegative | None = None


@dataclass(frozen=True)
class AttackOptions(Typed):
    """The attack: projected gradient descent in the ℓ2 ball.

    Args:
        eps: ℓ2 budgets, as in 0.25,0.5,1
        kind: strong: through selector, noise and votes; weak: on f without noise (an f that takes
            σ gets the level chosen for the clean image)
        steps: gradient steps
        samples: noisy copies behind each gradient step (EOT)
        restarts: starts; the first is the image itself, the others are random
        n_median_attack: draws of the selector's median inside the attack, odd
        selector_samples: draws of an unprotected selector behind each gradient step; the noisy
            copies are divided among them
        n: votes before and after the attack
        alpha: abstain unless the votes are significant at this level; null: plain majority
        save_images: keep the adversarial images beside the rows
    """

    eps: Weight | list[Weight] | None = None
    kind: Literal["strong", "weak"] = "strong"
    steps: Count = 20
    samples: Count = 16
    restarts: Count = 1
    n_median_attack: Odd = 11
    selector_samples: Count = 1
    n: Count = N
    alpha: Probability | None = None
    save_images: bool = False
    seed: NonNegative = 0


@dataclass(frozen=True)
class VerifyOptions(Typed):
    """What is recomputed, and how.

    Args:
        replay: number of random images to draw again from the recorded seed, rounded up to whole
            blocks; or all
        resample: number of random images to repeat with fresh noise
        model: where the model is now, if it was moved; needed if it is module:factory, because
            code named by a run is never executed
        data: where the images are now, if they were moved; their split, subset and scaling are
            those of the run, and so must be their pixels
        seed: seed of the fresh noise and the choice of images (default: fresh entropy)
    """

    replay: NonNegative | Literal["all"] = 0
    resample: NonNegative = 0
    model: str | None = None
    data: str | None = None
    trust: list[str] | None = None
    seed: NonNegative | None = None
    batch_size: Count = BATCH_SIZE
    device: Device = "auto"


@dataclass(frozen=True, kw_only=True)
class ImportOptions(Typed):
    """What the file does not say.

    Args:
        sigma: the noise level, if it was one fixed level; the radii are then sound
        guarantee: the guarantee of the radii, if each image had its own noise level
        alpha: the failure probability per image, if known
        n: votes per image, if known; with --alpha, radii too large for n votes are refused
        rounded: how the radii were rounded; from nearest, half a unit of the last digit is
            subtracted, so that none is too large
        data: the data set's name; runs on the same one are compared image by image
        split: the data set's split
    """

    sigma: Positive | None = None
    guarantee: Guarantee | None = None
    alpha: Probability | None = None
    n: Count | None = None
    rounded: Literal["nearest", "down"] = "nearest"
    name: str | None = None
    data: str = "imported"
    split: str = "test"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sigma is None and self.guarantee is None:
            raise OptionError("sigma", "must be given, or `guarantee`, to say what the radii mean")


@dataclass(frozen=True, kw_only=True)
class AdoptOptions(Typed):
    """The images and levels of the trial.

    Args:
        data: a name from `varsmooth data list`, or the path of your own images, labelled
        out: folder for the model; to load it, give the import path to --trust
        split: images that the classifier was not trained on
        resize: crop each image to its central square and scale it to this many pixels per side;
            radii are then those of the scaled image
        levels: noise levels to try (default: 0.06,0.12,0.25,0.5); the proposed training covers
            every level up to the largest
        images: how many images are used, spread over the split
        n: votes per image and level
    """

    data: str
    out: Path
    split: str = "val"
    root: Path | None = None
    resize: Count | None = None
    levels: list[Positive] = field(default_factory=lambda: [0.06, 0.12, 0.25, 0.5])
    images: Count = 100
    n: Count = 100
    seed: NonNegative = 0
    device: Device = "auto"


@dataclass(frozen=True, kw_only=True)
class HeldOut(Source):
    """Images that the model was not trained on.

    Args:
        split: their held-out split
        images: how many of its images are used
        out: folder for a copy of the model with the results (default: the model's own folder; for
            a released model a new one in the working directory)
    """

    split: str = "val"
    images: Count = 1000
    seed: NonNegative = 0
    device: Device = "auto"
    out: Path | None = None
    trust: list[str] | None = None


@dataclass(frozen=True, kw_only=True)
class TuneOptions(Typed):
    """What is tried, and for which goal.

    Args:
        goal: for the selector, clean accuracy, sound certified accuracy at a radius, or average
            certified radius; cascade finds the stages of a cascade, for every λ
        radius: the radius of goal `certified`
        lams: values of λ to try (default: 0,0.1,0.2,0.3,0.4,0.5)
        sigma_ms: values of σ_m to try (default: half, once and twice the selector's σ_a)
        levels: number of geometrically spaced candidate levels from which grids are built
        n: votes of f per image and level
        n_select: samples of h per image and setting
        unclipped: share of the images whose level must lie within the clip range, so that h
            chooses σ, not the clip
        precision: precision of f's activations, as in `varsmooth certify`
    """

    goal: Literal["clean", "certified", "radius", "cascade"] = "radius"
    radius: Weight = 0.0
    lams: list[Share] = field(default_factory=lambda: [0.0, 0.1, 0.2, 0.3, 0.4, 0.5])
    sigma_ms: list[Positive] | None = None
    levels: Few = 9
    n: Count = 300
    n_select: Count = N_SELECT
    unclipped: Share = 0.9
    precision: Precision = "float32"
    batch_size: Count | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.goal == "certified") != (self.radius > 0):
            raise OptionError("radius", "above 0 goes with `goal` certified, which requires it")
        if self.goal == "cascade":
            plain = TuneOptions()
            for name in ("lams", "sigma_ms", "levels", "n_select", "unclipped"):
                if getattr(self, name) != getattr(plain, name):
                    raise OptionError(name, "has no effect on a cascade; leave it out")


def recorded(kind: type[T], config: Mapping[str, Any]) -> T:
    """Options from the values of a stored run; one that it does not have is the default."""
    known = [field.name for field in fields(kind) if field.name in config]  # type: ignore[arg-type]
    return kind(**{name: config[name] for name in known})
