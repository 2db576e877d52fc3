"""From a name and sizes to a folder of results."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reproduce.context import Context
from reproduce.experiment import Experiment, Result, ScaleName
from reproduce.writing import Asked, write_result
from varsmooth.errors import require
from varsmooth.report.figures import require_matplotlib


def run_experiment(
    experiment: Experiment[Any],
    scale_name: ScaleName,
    sizes: Sequence[str],
    context: Context,
    out: Path,
) -> Result:
    """Run an experiment, or continue it, and write what it found."""
    require_matplotlib()
    scale = experiment.scale(scale_name, sizes)
    words = ["python -m reproduce", experiment.name, *sizes]
    words += ["--scale", scale_name] if scale_name != "cpu" else []
    words += ["--variant", context.variant] if context.variant is not None else []
    asked = Asked(experiment, scale_name, scale, " ".join(words))
    if context.train is None:
        lacking = context.lack(asked.needs)
        require(not lacking, f"{experiment.name}: {lacking}")
    result = experiment.run(context, scale)
    write_result(asked, context, result, out)
    return result
