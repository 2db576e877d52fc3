"""Predictions for a data set, or for a few photographs."""

import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor

from varsmooth.api import predict
from varsmooth.certificates import Prediction, Predictions
from varsmooth.data import Batch
from varsmooth.defaults import Options
from varsmooth.errors import check
from varsmooth.evaluation.build import BuiltModel, load_images
from varsmooth.evaluation.headers import HEADER
from varsmooth.evaluation.options import DataOptions, ModelOptions, PredictOptions, RunOptions
from varsmooth.evaluation.records import Row, Run
from varsmooth.evaluation.runner import (
    BLOCK_SIZE,
    Evaluation,
    Setup,
    images_per_block,
    labels_or_none,
    run,
)
from varsmooth.smoothing import SmoothedClassifier


def predict_dataset(
    model: ModelOptions, data: DataOptions, options: PredictOptions, run_options: RunOptions
) -> Run:
    """Predict every image of a data set into the folder of a run; resumes an unfinished run.

    Without a seed the run draws one and records it, so that it can be resumed.
    """
    if options.seed is None:
        check(
            "TORCHELASTIC_RUN_ID" not in os.environ and run_options.shard is None,
            "shards, and processes that torchrun starts, must agree on their noise; choose it with "
            "--seed",
        )
        options = replace(options, seed=_recorded_seed(run_options.out) or secrets.randbits(63))
    return run(Predicting(options), model, data, run_options)


def _recorded_seed(folder: Path) -> int | None:
    """The seed of the predictions in this folder."""
    if not (folder / HEADER).exists():
        return None
    header = Run.open(folder).header
    seed = header["config"].get("seed")
    return seed if header["verb"] == "predict" and isinstance(seed, int) else None


def predict_photos(
    model: BuiltModel, data: DataOptions, options: PredictOptions, batch_size: int
) -> Iterator[tuple[str, Prediction]]:
    """(file name or id, prediction) of every image; nothing is stored."""
    images = load_images(data.with_defaults(model.own), model)
    size = images_per_block(options.n, batch_size)
    device = model.g.device
    for start in range(0, len(images), size):
        block = slice(start, start + size)
        x, _, ids = images.batch(block)
        results = predict_block(model.g, x.to(device), ids, options, batch_size)
        names = images.files[block] or [str(i) for i in ids.tolist()]
        yield from zip(names, results, strict=True)


def predict_block(
    g: SmoothedClassifier, x: Tensor, ids: Tensor, options: PredictOptions, batch_size: int
) -> Predictions:
    """The predictions of a block of images."""
    return predict(
        g,
        x,
        n=options.n,
        alpha=options.alpha,
        seed=options.seed,
        ids=ids,
        options=Options(alpha_select=options.alpha_select, batch_size=batch_size),
    )


@dataclass(frozen=True)
class Predicting(Evaluation):
    """One prediction for each image."""

    options: PredictOptions
    verb = "predict"

    def block(self, batch_size: int) -> int:
        return super().block(batch_size) if self.options.alpha is not None else BLOCK_SIZE

    def rows(self, setup: Setup, batch: Batch) -> list[Row]:
        results = predict_block(setup.g, batch.images, batch.ids, self.options, setup.batch_size)
        return [
            {
                "id": result.id,
                "label": label,
                "prediction": result.prediction,
                "sigma": result.sigma,
                "counts": list(result.counts),
                "samples": result.samples,
            }
            for label, result in zip(labels_or_none(batch), results, strict=True)
        ]
