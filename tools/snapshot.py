"""Write the present weights of a classifier that is still being trained, as a model folder.

    python tools/snapshot.py runs/cpu/strong-long runs/snapshot

Reads the last state that the run has saved and leaves the run alone. The weights are float16 and
those of the last step, not of a moving average; nothing is measured.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch

from varsmooth.data import load_source
from varsmooth.models.checkpoints import save
from varsmooth.models.descriptions import Description
from varsmooth.training.configuration import ClassifierConfig
from varsmooth.training.state import STATE, finished, seeded
from varsmooth.training.tasks import network_options, pass_output


def snapshot(run: str, out: str) -> Description:
    """Write the model of the last state in the folder `run`; returns its description."""
    state: dict[str, Any] = torch.load(Path(run) / STATE, weights_only=True)
    config = ClassifierConfig(out=Path(run), **json.loads(state["config"]))
    data = load_source(config, config.held_out_split)
    implied = {"conditional": True} if config.universal else {}
    options = network_options(config, data, **implied)
    module = seeded(config.network, options, config.seed)
    with pass_output(module, config.passing > 0):
        module.load_state_dict(state["parts"]["module"])
    about = Description(
        **config.entries(),
        class_names=data.class_names,
        sigma_a=config.sigma,
        image_shape=data.shape,
        universal=config.universal,
        classifier=finished(config, options, json.loads(state["progress"])["history"], {}),
    )
    return save(Path(out), about, classifier=module, precision="float16")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    snapshot(*sys.argv[1:])
    print(f"written to {sys.argv[2]}")
