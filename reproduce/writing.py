"""A result → the folder that is committed: figures, tables, configuration, records, claims.

Nothing in it depends on the machine: no paths, no times.
"""

import csv
import gzip
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from reproduce.context import Context
from reproduce.experiment import Experiment, Need, Result, Scale, ScaleName, reductions
from varsmooth.models.checkpoints import Description, Part
from varsmooth.report.figures import draw
from varsmooth.report.outcomes import Outcomes

CONFIG, CLAIMS, RECORDS = "config.json", "claims.json", "records.csv.gz"


@dataclass(frozen=True)
class Asked:
    """What was asked: an experiment at a scale, with its sizes, as a command of this program."""

    experiment: Experiment[Any]
    scale_name: ScaleName
    scale: Scale
    command: str

    @property
    def needs(self) -> Sequence[Need]:
        return self.experiment.needs(self.scale)


def write_result(asked: Asked, context: Context, result: Result, out: Path) -> list[Path]:
    """Write everything that an experiment found; returns the files."""
    models = {need.level: context.about(need) for need in asked.needs}
    facts = small_print(asked, models, result)
    files: dict[str, bytes] = {}
    for figure in result.figures:
        picture = draw(
            figure.name,
            figure.caption,
            *figure.plots,
            legend=figure.legend,
            height=figure.height,
            columns=figure.columns,
            footnote=f"{figure.caption} {facts}",
        )
        files[f"{picture.name}.png"] = picture.png
        files[f"{picture.name}.svg"] = picture.svg.encode()
    for table in result.tables:
        full = replace(table, caption=f"{table.caption} {facts}")
        files[f"{table.name}.md"] = full.to_markdown().encode()
        files[f"{table.name}.csv"] = full.to_csv().encode()
    files[CONFIG] = _json(configuration(asked, models, result, facts))
    files[CLAIMS] = _json([asdict(claim) for claim in result.claims])
    if result.records:
        files[RECORDS] = compact_records(result.records)
    out.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (out / name).write_bytes(content)
    return [out / name for name in files]


def small_print(asked: Asked, models: dict[str, Description], result: Result) -> str:
    """What a reader must know beside a figure: the scale, each reduction, how models came about."""
    full = asked.experiment.scales["paper"]
    less = reductions(asked.scale, full)
    parts = [f"Scale {asked.scale_name}" + (f": {'; '.join(less)}" if less else "")]
    trained = [f"{level}: {_trained(about)}" for level, about in models.items()]
    if trained:
        parts.append("Models (σ_a: training): " + "; ".join(trained))
    return ". ".join([*parts, *(note.rstrip(".") for note in result.notes)]) + "."


def _trained(about: Description) -> str:
    """`f 25 epochs (paper: 400), h 20 epochs of 10000 images (paper: 200)`."""
    words = []
    for letter, part, full in (("f", about.classifier, 400), ("h", about.selector, 200)):
        if part is not None and part.training:
            epochs, images = part.training["epochs"], part.training.get("images_per_epoch")
            words.append(
                f"{letter}{_unlike_the_paper(part)} {epochs} epochs"
                + (f" of {images} images" if images else "")
                + (f" (paper: {full})" if epochs != full else "")
            )
    return ", ".join(words) or "not told"


def _unlike_the_paper(part: Part) -> str:
    """` (confidence, objective radius)` where h is another network or has another objective."""
    objective = part.training.get("objective", "variational")
    words = [part.network] if part.network == "confidence" else []
    words += [f"objective {objective}"] if objective != "variational" else []
    return f" ({', '.join(words)})" if words else ""


def configuration(
    asked: Asked, models: dict[str, Description], result: Result, facts: str
) -> dict[str, Any]:
    """All that decided the result, as plain values."""
    return {
        "experiment": asked.experiment.name,
        "paper": asked.experiment.paper,
        "title": asked.experiment.title,
        "command": asked.command,
        "scale": asked.scale_name,
        "sizes": asdict(asked.scale),
        "small_print": facts,
        "figures": [{"name": p.name, "caption": p.caption} for p in result.figures],
        "tables": [{"name": t.name, "caption": t.caption} for t in result.tables],
        "models": {
            need.released: {
                part: described.fingerprint
                for part in ("classifier", "selector")
                if (described := getattr(models[need.level], part)) is not None
            }
            for need in asked.needs
        },
        "versions": {name: metadata.version(name) for name in ("varsmooth", "torch", "numpy")},
    }


def compact_records(runs: Sequence[Outcomes]) -> bytes:
    """One line per run and image, every digit: what figures, tables and claims are made of."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = ("id", "label", "prediction", "radius", "sigma", "eps")
    writer.writerow(["run", "guarantee", *columns, "clean_prediction", "clean_sigma"])
    for run in runs:
        values = zip(
            run.ids.tolist(),
            run.labels.tolist(),
            run.predictions.tolist(),
            run.radii.tolist(),
            run.sigmas.tolist(),
            run.eps.tolist(),
            run.clean_predictions.tolist(),
            run.clean_sigmas.tolist(),
            strict=True,
        )
        for row in values:
            cells = ["" if cell != cell else cell for cell in row]  # NaN: not a column of this run
            writer.writerow([run.name, run.guarantee or "", *cells])
    return gzip.compress(text.getvalue().encode(), mtime=0)


def read_records(path: Path) -> list[dict[str, str]]:
    """The lines of compact records, as text."""
    return list(csv.DictReader(io.StringIO(gzip.decompress(path.read_bytes()).decode())))


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()
