"""Check a stored run: it is complete, it follows from its evidence, and the evidence repeats.

Checksums detect damage, not forgery. Forged evidence differs from what the recorded seed draws from
this model and these images (`replay`), or disagrees with fresh noise (`resample`).
"""

import secrets
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from varsmooth._util.processes import choose_device
from varsmooth._util.progress import Progress
from varsmooth._util.typed import OptionError
from varsmooth.data import ImageDataset
from varsmooth.data.fitting import outputs_on
from varsmooth.data.source import NAMES
from varsmooth.errors import VarsmoothError, check
from varsmooth.evaluation.audit import audit_row
from varsmooth.evaluation.build import (
    FILES,
    BuiltModel,
    build,
    described,
    load_images,
    seen_before,
    stored_model,
)
from varsmooth.evaluation.engines.shards import unfinished_text
from varsmooth.evaluation.headers import SEEN, different_options
from varsmooth.evaluation.options import DataOptions, ModelOptions, VerifyOptions, recorded
from varsmooth.evaluation.records import Row, Run, key_of, open_as_one
from varsmooth.evaluation.replay import as_sampled, replay
from varsmooth.evaluation.resample import resample
from varsmooth.evaluation.runner import NO_PROBE, labels_or_none, other_environment, other_model

FALSE_ALARM = 1e-3
"""Maximum probability that a faithful run fails `resample`, over all its tests together."""


@dataclass
class Verification:
    """What was checked, what could not be, and everything that is wrong.

    Attributes:
        run: The run, and its rows, none twice.
        replayed: Images whose votes were drawn again.
        resampled: Images with fresh noise.
        notes: What a reader should know of a faithful run.
        p_values: Of what was compared image by image.
        pooled: The p-value of all resampled radii together, see `pooled_p_value`.
    """

    run: Run
    rows: list[Row] = field(repr=False)
    problems: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    replayed: int = 0
    resampled: int = 0
    p_values: dict[str, float] = field(default_factory=dict)
    pooled: float = 1.0

    @property
    def threshold(self) -> float:
        """A p-value of one image below this is an alarm: these tests share half of FALSE_ALARM."""
        return FALSE_ALARM / 2 / max(len(self.p_values), 1)


def verify_run(folder: str | Path, *more: str | Path, **settings: Any) -> Verification:
    """Check a run of `certify`: its model, its images, every row, and some rows once more.

    Every image must have one row. Every radius is derived again from its evidence, digit by
    digit, and the evidence must be what the settings ask for: numbers of draws, levels, classes,
    α ledger, seed. Without the model or the images the rest is checked.

    With `replay`, evidence drawn again from the recorded seed (every count, passes, samples of the
    selector, shares of α) must be the same where versions, platform and device are those of the
    run; elsewhere a vote between two almost equal scores may differ, see `replay.Replayed`.
    With `resample`, every count that a radius uses and the samples of the selector are compared
    with fresh ones image by image, and the radii of all images together by `pooled_p_value`. These
    two kinds share 0.001, so that a faithful run raises one with probability ≤ 0.001.

    Args:
        folder: The run.
        more: Other folders, if it was written into several.
        settings: See `varsmooth.evaluation.options.VerifyOptions`.
    """
    options, run = VerifyOptions(**settings), open_as_one([folder, *more])
    stored = list(run.stored())
    rows = run.certified_rows("verified", stored)
    result = Verification(run, rows)
    try:
        as_sampled(run)
    except OptionError as error:
        result.problems.append(f"the options of the run cannot be read: {error}")
        return result
    built = _model(run, result, options)
    images = _images(run, result, built, options)
    if result.problems:
        return result  # another model or other images: nothing else would mean anything
    repeats, missing = options.replay or options.resample, "; ".join(result.unchecked)
    sequential = run.header["config"].get("at") is not None or run.header["config"].get("until")
    check(
        not (repeats and sequential and run.header.get("saved_from_python")),
        "this run was saved from Python after certify_at or certify_until, and does not record "
        "their radii, so its votes cannot be drawn again; use varsmooth certify --at or --until",
    )
    if repeats and (built is None or images is None):  # said before images are decoded
        raise VarsmoothError(f"replay and resample need the model and the images: {missing}")
    _check_complete(stored, result, images)
    labels = None
    if images is not None:
        _check_pixels(result, images)
        labels = dict(zip(images.ids.tolist(), labels_or_none(images), strict=True))
    classes = _classes(rows, built, images)
    with Progress(len(rows), "check rows", unit="rows") as progress:
        for row in rows:
            wrong = audit_row(run, row, labels, classes)
            result.problems += [f"image {row['id']}: {text}" for text in wrong]
            progress.add(1)
    if repeats and not result.problems and built is not None and images is not None:
        _repeat(result, built, images, options)
    return result


def _repeat(
    result: Verification, built: BuiltModel, images: ImageDataset, options: VerifyOptions
) -> None:
    """Some rows once more: with the noise of the run, and with fresh noise."""
    run, rows = result.run, result.rows
    g, seed = built.g, secrets.randbits(63) if options.seed is None else options.seed
    rng = np.random.default_rng(seed)
    if count := len(rows) if options.replay == "all" else options.replay:
        replayed = replay(run, g, images, rows, count, rng)
        result.replayed, result.problems = replayed.images, replayed.problems
        if replayed.rounded:
            where = other_environment(run.header, g.device)
            result.unchecked.append(
                f"the exact evidence of {len(replayed.rounded)} images: "
                f"{'; '.join(where) or 'their rows record another version or device'}; "
                f"there {100 * replayed.share:.2g} % of the replayed votes differ"
            )
    chosen = [rows[i] for i in sorted(rng.permutation(len(rows))[: options.resample])]
    if not chosen:
        return
    tested = resample(run, g, images, chosen, options.batch_size, rng, seed)
    result.resampled, (result.p_values, result.pooled) = len(chosen), tested
    result.problems += [
        f"{what}: p-value {p:.2g} is below {result.threshold:.2g}"
        for what, p in result.p_values.items()
        if p < result.threshold
    ]
    if result.pooled < FALSE_ALARM / 2:
        result.problems.append(
            f"the radii of {result.resampled} images are together larger than with fresh noise: "
            f"p-value {result.pooled:.2g} is below {FALSE_ALARM / 2:g}"
        )


def _model(run: Run, result: Verification, options: VerifyOptions) -> BuiltModel | None:
    """The run's model, if it is here and may be started."""
    header, device = run.header, choose_device(options.device)
    try:
        built = build(stored_model(header, options.model, options.trust), device)
    except VarsmoothError as error:
        check(options.model is None, str(error))
        result.unchecked.append(f"the model ({error})")
        return None
    result.problems += other_model(header, built.g, built.fingerprint)
    names = header.get("class_names")  # without a name of its own, a class has that of the data
    if names and names not in (list(built.class_names), header["dataset"]["class_names"]):
        result.problems.append("the class names are not those of the model")
    if "probe" not in header:
        result.unchecked.append(NO_PROBE)
    return built


def _images(
    run: Run, result: Verification, built: BuiltModel | None, options: VerifyOptions
) -> ImageDataset | None:
    """Load the run's images, if available, and check them against the header.

    A folder or file that was moved keeps the name it had, and with it the noise; the digest and
    the rows tell whether the images are the same.
    """
    header, moved = run.header, options.data is not None
    if moved and "digest" not in header["dataset"]:
        result.unchecked.append("the images (the run was saved from Python without them)")
        return None
    try:
        then = recorded(DataOptions, header["config"])
        data = replace(then, data=options.data, root=None) if moved else then
        check(data.data is not None, "the run does not record where they are")
        images = load_images(data, built, tuple(header["dataset"]["class_names"]))
    except (VarsmoothError, OSError) as error:
        check(not moved, str(error))
        known = "; give their place with --data" if "digest" in header["dataset"] else ""
        result.unchecked.append(f"the images ({error}{known})")
        return None
    if moved and then.data not in NAMES:
        images = replace(images, name=header["dataset"]["name"])
    now = {**header, "dataset": described(images, data)}
    result.problems += different_options(header, now)
    scope = header.get("noise_scope", images.noise_scope)
    if header.get("saved_from_python") and scope == "" != images.noise_scope:
        result.notes.append(
            "its noise depends on seed and ids alone, as that of other data with the same ids "
            "(saved from Python)"
        )
    elif scope != images.noise_scope:
        result.problems.append("the noise is not that of these images (noise_scope)")
    if "noise_scope" not in header and images.noise_scope:
        result.unchecked.append(
            "whether images of other data sets and splits have this noise (the run was saved from "
            "Python, where only seed and ids keep it apart)"
        )
    if built is not None and not result.problems:
        model = recorded(ModelOptions, header["config"])
        known_as = then.data if moved else None
        for name, count in seen_before(images, data, built.about, model, known_as).items():
            known = SEEN[name].format(f"{count} of these images")
            if name not in header and count > 0:
                result.unchecked.append(f"whether the run says that {known} (it has no entry)")
            elif moved and header.get(name, count) != count:  # other splits may be elsewhere
                here = SEEN[name].format(f"{header[name]} of these images")
                result.unchecked.append(
                    f"whether {here}, as the run says ({data.data} says {count})"
                )
            elif header.get(name, count) != count:
                result.problems.append(f"{known}, not on {header[name]}")
    return images


def _check_pixels(result: Verification, images: ImageDataset) -> None:
    """The images as their rows saw them: their pixels, if they are files."""
    if not result.run.header["dataset"]["digest"].startswith(FILES):  # the digest covers the pixels
        return
    stored = {row["id"]: row for row in result.rows}
    if bare := [i for i, row in stored.items() if not row.get("pixels")]:
        result.unchecked.append(f"the pixels of {len(bare)} images (their rows record none)")
    with Progress(len(images), "check images") as progress:
        for batch in images.batches(32):
            for image, entry in zip(batch.ids.tolist(), images.row_entries(batch), strict=True):
                row = {**entry, **stored.get(image, {})}
                if row["pixels"] != entry["pixels"]:
                    result.problems.append(f"image {image}: {entry['file']} has changed since")
                elif row["file"] != entry["file"]:
                    result.problems.append(f"image {image} is {entry['file']}, not {row['file']}")
            progress.add(len(batch.ids))


def _check_complete(stored: list[Row], result: Verification, images: ImageDataset | None) -> None:
    """One row for each image of the data set; what is missing or contradicts is a problem."""
    run, rows = result.run, result.rows
    own = {"seconds": 0, "environment": None}  # which two processes need not share
    kept = {key_of(row): row | own for row in rows}
    twice = {row["id"] for row in stored if row | own != kept[key_of(row)]}
    result.problems += [f"image {i}: two rows contradict each other" for i in sorted(twice)]
    ids = {row["id"] for row in rows}
    wanted = ids if images is None else set(images.ids.tolist())
    size = run.header["dataset"]["size"] if images is None else len(wanted | ids)
    missing = size - len(ids)
    if missing > 0:
        lacking = f"{missing} of {len(ids) + missing} images have no row{unfinished_text(run)}"
        result.problems.append(f"{lacking}; rerun its certify command to finish it")
    result.problems += [f"image {i} is not in the data set" for i in sorted(ids - wanted)]


def _classes(rows: list[Row], built: BuiltModel | None, images: ImageDataset | None) -> int:
    """The number of classes: that of the model, or else the one that most rows agree on."""
    if built is not None and images is not None:
        return outputs_on(images, built.g)
    votes = (row["evidence"]["votes"] for row in rows)
    sizes = Counter(len(levels[0]["counts"]) for levels in votes if levels)
    return max(sizes, key=lambda size: sizes[size], default=0)
