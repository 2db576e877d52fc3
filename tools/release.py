"""Put a trained model among the released ones, in half precision.

    python tools/release.py runs/cpu/h-0.25 cifar10-0.25

What was measured before rounding is kept as it was; the fingerprint is that of the released,
rounded networks.
"""

import sys
from pathlib import Path

from varsmooth.models.cards import write_card
from varsmooth.models.checkpoints import load_checkpoint, save

MODELS = Path(__file__).parent.parent / "src" / "varsmooth" / "models" / "released"


def release(run: str, name: str) -> Path:
    """Write the model of a run as the released model `name`; returns its folder."""
    model = load_checkpoint(run)
    about = save(
        MODELS / name,
        model.description,
        classifier=model.classifier,
        selector=model.selector,
        precision="float16",
    )
    write_card(MODELS / name, about)
    return MODELS / name


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    print(f"released as {release(*sys.argv[1:])}")
