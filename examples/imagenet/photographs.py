"""The 20 ImageNet photographs that foolbox ships, sorted into class folders.

pip install --no-deps foolbox
python photographs.py photographs
"""

import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

NAMES = {
    22: "bald eagle",
    99: "goose",
    129: "spoonbill",
    243: "bull mastiff",
    251: "dalmatian",
    305: "dung beetle",
    317: "leafhopper",
    438: "beaker",
    455: "bottlecap",
    471: "cannon",
    541: "drum",
    559: "folding chair",
    609: "jeep",
    630: "loafer",
    741: "prayer rug",
    853: "thatch",
    915: "yurt",
    949: "strawberry",
    990: "buckeye",
}


def class_name(number: int) -> str:
    """The class of an output of the network, and its folder: the number, and the name if known."""
    return f"{number:03d} {NAMES.get(number, '')}".rstrip()


def copy_photographs(folder: Path) -> int:
    """Copy `imagenet_00_243.jpg` to `243 bull mastiff/00.jpg`, and so on; how many there are."""
    spec = find_spec("foolbox")
    if spec is None or spec.origin is None:
        raise SystemExit("the photographs come with foolbox: pip install --no-deps foolbox")
    photographs = sorted((Path(spec.origin).parent / "data").glob("imagenet_*.jpg"))
    for path in photographs:
        _, number, label = path.stem.split("_")
        target = folder / class_name(int(label)) / f"{number}.jpg"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    return len(photographs)


if __name__ == "__main__":
    print(copy_photographs(Path(sys.argv[1])), "photographs")
