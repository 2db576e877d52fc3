"""Models leave the machine without its paths."""

from dataclasses import replace
from pathlib import Path

from varsmooth.cli import main
from varsmooth.models.descriptions import copy_model, describe, write


def test_an_export_does_not_tell_where_the_training_images_were(tmp_path: Path) -> None:
    model, out = copy_model("cifar10-0.25", tmp_path / "mine", "export"), tmp_path / "up"
    photos = tmp_path / "private" / "photos"
    about = describe(model)
    write(model, replace(about, dataset=str(photos), root=photos.parent))
    assert main(["models", "export", str(model), "--out", str(out)]) == 0
    assert describe(out).dataset == "photos"
    written = (out / "config.json").read_text() + (out / "README.md").read_text()
    assert str(tmp_path) not in written
    assert (out / "model.safetensors").read_bytes() == (model / "model.safetensors").read_bytes()
