"""Models from the Hub, read from its own cache without any network, and the way there."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.small_models import run
from tests.terminal import Terminal
from varsmooth import load
from varsmooth.errors import VarsmoothError
from varsmooth.models.cards import card
from varsmooth.models.descriptions import copy_model, describe, find, write

huggingface_hub = pytest.importorskip("huggingface_hub")
COMMIT = "0123456789012345678901234567890123456789"


@pytest.fixture
def uploaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository in the Hub's cache, as a download leaves it, made by `models export`."""
    cache = tmp_path / "cache"
    snapshot = cache / "models--lab--cat" / "snapshots" / COMMIT
    assert run(f"models export cifar10-0.25 --out {snapshot}") == 0
    (cache / "models--lab--cat" / "refs").mkdir()
    (cache / "models--lab--cat" / "refs" / "main").write_text(COMMIT)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return snapshot


def test_a_model_loads_by_its_address(uploaded: Path) -> None:
    for address in ("hf://lab/cat", f"hf://lab/cat@{COMMIT}"):
        assert find(address).resolve() == uploaded.resolve()
        assert describe(address).classifier == describe("cifar10-0.25").classifier
    assert load("hf://lab/cat", sigma=0.25).classifier is not None


def test_the_export_is_the_model_and_a_card_that_the_hub_reads(uploaded: Path) -> None:
    weights = find("cifar10-0.25") / "model.safetensors"
    assert (uploaded / "model.safetensors").read_bytes() == weights.read_bytes()
    assert describe(uploaded) == describe("cifar10-0.25")
    text = (uploaded / "README.md").read_text()
    assert text.startswith("---\nlicense: mit\nlibrary_name: varsmooth\n")
    assert text.endswith(card(uploaded.name, describe("cifar10-0.25"), released=True))


def test_an_export_does_not_tell_where_the_training_images_were(
    tmp_path: Path, cli: Terminal
) -> None:
    model, out = copy_model("cifar10-0.25", tmp_path / "mine", "export"), tmp_path / "up"
    photos = tmp_path / "private" / "photos"
    write(model, replace(describe(model), dataset=str(photos), root=photos.parent))
    cli(f"models export {model} --out {out}")
    assert describe(out).dataset == "photos"
    written = (out / "config.json").read_text() + (out / "README.md").read_text()
    assert str(tmp_path) not in written


def test_a_verb_takes_the_address_but_a_run_does_not_make_us_fetch_it(
    uploaded: Path, tmp_path: Path, cli: Terminal
) -> None:
    folder = tmp_path / "run"
    words = "certify --model hf://lab/cat --sigma 0.25 --subset :1 --n 20 --n0 10 --out"
    assert f"verify {folder} --model hf://lab/cat" in cli(words, folder).out
    assert "NOT CHECKED" not in cli(f"verify {folder} --model hf://lab/cat").out
    assert "never run or fetched unasked" in cli(f"verify {folder}", code=3).out


@pytest.mark.parametrize("address", ["hf://nobody/nothing", "hf://lab", "hf://a/b/c"])
def test_addresses_that_lead_nowhere(address: str, uploaded: Path) -> None:
    with pytest.raises(
        VarsmoothError, match=r"check the name and the connection|should be hf://owner/name"
    ):
        load(address)
