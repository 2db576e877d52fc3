"""Untrusted models: whatever their files hold, they load or raise a one-line error."""

import contextlib
import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conftest import Tally
from varsmooth._util.untrusted import LIMITS
from varsmooth.errors import VarsmoothError
from varsmooth.models.cards import card, plain
from varsmooth.models.checkpoints import load_checkpoint, save
from varsmooth.models.descriptions import Description, Part, describe
from varsmooth.models.networks import Conv4

OPTIONS = {"widths": [8, 8, 8, 8], "classes": 2}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "good"
    about = Description(
        "toy",
        ("cat", "dog"),
        0.25,
        recommended={"sigma": 0.2},
        image_shape=(3, 32, 32),
        classifier=Part("conv4", OPTIONS, history=[{"epoch": 1}]),
    )
    save(folder, about, classifier=Conv4(classes=2, widths=(8, 8, 8, 8)))
    return folder


def altered(model: Path, folder: Path, **changes: Any) -> Path:
    folder.mkdir(exist_ok=True)
    values = json.loads((model / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**values, **changes}))
    (folder / "model.safetensors").write_bytes((model / "model.safetensors").read_bytes())
    return folder


ODD: dict[str, list[Any]] = {
    "dataset": [3, None, [], {"a": 1}, "\0", "\ud800"],
    "root": ["\0", 3],
    "cascades": [[{"lam": 5, "levels": [0.5], "thresholds": [0.5]}], [{"lam": 0}], 3],
    "class_names": [3, None, [1, 2], [["cat"]], {"cat": 0}],
    "sigma_a": ["x", None, [], True, 0, -1, float("nan"), float("inf")],
    "universal": [0, "yes", None],
    "selector_sigma": ["x", 0, [1], 1e300],
    "lam_range": [0.5, [0], [0, 1, 2], ["a", "b"]],
    "recommended": [[], 3, {"sigma": "x"}, {"clip": [1]}, {"lam": []}],
    "pixel_range": [1, None, [0]],
    "image_shape": [[3, 32], [3, 32.5, 32], "3"],
    "classifier": [
        *("conv4", [], 3, {}, {"network": 4}, {"network": "conv4", "seed": "x"}),
        *({"network": "conv4", name: 7} for name in ("options", "history", "metrics")),
    ],
    "version": [1],
    "format": ["1", None],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in ODD.items() for value in values]
)
def test_odd_entries_are_one_sentence(name: str, value: Any, model: Path, tmp_path: Path) -> None:
    with pytest.raises(VarsmoothError) as caught:
        load_checkpoint(altered(model, tmp_path / "odd", **{name: value}))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "metrics",
    [
        *(7, {}, {"images": 1}, {"images": 1, "sigma": 3, "samples": 1}),
        {"images": 1, "votes": 1, "smoothed_accuracy": {"x": 1.0}},
        {"images": 1, "votes": 1, "smoothed_accuracy": {"0.5": "y"}},
        {"images": 1, "votes": 1, "smoothed_accuracy": {"0.5": 1.0}, "certified": [1]},
    ],
)
def test_odd_metrics_make_no_card(metrics: Any, model: Path, tmp_path: Path) -> None:
    part = {"network": "conv4", "options": OPTIONS, "metrics": {"test": metrics}}
    about = describe(altered(model, tmp_path / "odd", classifier=part))
    with pytest.raises(VarsmoothError, match="the metrics of odd cannot be read"):
        card("odd", about)


def test_names_that_look_like_tables_are_shown(model: Path, tmp_path: Path) -> None:
    names = ["cat\n| a | b |\n| c |", "dog"]
    about = describe(altered(model, tmp_path / "odd", class_names=names))
    assert "c" in plain(card("odd", about))


@pytest.mark.parametrize(
    "options",
    [
        {"widths": [10**9] * 4},
        {"classes": 10**12},
        {"classes": -3},
        {"widths": [8, 8, 8, -8]},
        {"widths": "8888"},
        {"channels": 2**70},
        {"norm": {"a": []}},
        {"widths": [50_000] * 4},
    ],
)
def test_options_ask_for_no_memory(options: dict[str, Any], model: Path, tmp_path: Path) -> None:
    part = {"network": "conv4", "options": OPTIONS | options, "fingerprint": ""}
    with pytest.raises(VarsmoothError):
        load_checkpoint(altered(model, tmp_path / "greedy", classifier=part))


def test_deep_and_long_descriptions_are_refused(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = altered(model, tmp_path / "deep")
    (folder / "config.json").write_text("[" * 100_000)
    with pytest.raises(VarsmoothError, match="not readable as JSON"):
        describe(folder)
    within: dict[str, Any] = {}
    for _ in range(300):
        within = {"more": [within]}
    with pytest.raises(VarsmoothError, match="nested too deeply"):
        describe(altered(model, folder, recommended=within))
    monkeypatch.setitem(LIMITS, "TEXT", 100)
    with pytest.raises(VarsmoothError, match="above the limit of 100"):
        describe(model)


def test_weights_that_are_not_a_file(model: Path, tmp_path: Path) -> None:
    folder = altered(model, tmp_path / "pipe")
    (folder / "model.safetensors").unlink()
    os.mkfifo(folder / "model.safetensors")
    with pytest.raises(VarsmoothError, match="a pipe"):
        load_checkpoint(folder)


def test_a_header_that_claims_more_than_the_file(model: Path, tmp_path: Path) -> None:
    folder = altered(model, tmp_path / "claims")
    tensor = {"dtype": "F32", "shape": [10**6, 10**6], "data_offsets": [0, 4 * 10**12]}
    header = json.dumps({"classifier.x": tensor}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    with pytest.raises(VarsmoothError, match="truncated or not a safetensors"):
        load_checkpoint(folder)
    for dtype, shape in (("F4", [0]), ("F8_E8M0", [0]), ("F16", [0, 2**62, 2**62])):
        tensor = {"dtype": dtype, "shape": shape, "data_offsets": [0, 0]}
        header = json.dumps({"classifier.x": tensor}).encode()
        (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
        with pytest.raises(VarsmoothError, match="truncated or not a safetensors"):
            load_checkpoint(folder)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", 2**60) + b"{}")
    with pytest.raises(VarsmoothError, match="truncated or not a safetensors"):
        load_checkpoint(folder)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4)
    ),
    max_leaves=8,
)
ENTRIES = st.sampled_from([*Description.__dataclass_fields__, "surprise"])


@pytest.mark.slow
@pytest.mark.campaign
@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(changes=st.dictionaries(ENTRIES, JSON, min_size=1, max_size=3))
def test_any_description_loads_or_is_one_sentence(
    changes: dict[str, Any], model: Path, tmp_path: Path, tally: Tally
) -> None:
    tally("hostile models", 1)
    folder = altered(model, tmp_path / "any", **changes)
    with contextlib.suppress(VarsmoothError):  # anything else fails
        load_checkpoint(folder)


@pytest.mark.slow
@pytest.mark.campaign
@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_any_damage_to_the_weights_is_one_sentence(
    data: st.DataObject, model: Path, tmp_path: Path, tally: Tally
) -> None:
    tally("hostile models", 1)
    folder = altered(model, tmp_path / "damaged")
    content = bytearray((model / "model.safetensors").read_bytes())
    for _ in range(data.draw(st.integers(1, 8))):
        content[data.draw(st.integers(0, min(len(content) - 1, 4000)))] = data.draw(
            st.integers(0, 255)
        )
    cut = data.draw(st.integers(0, len(content)))
    changed = bytes(content[:cut] if data.draw(st.booleans()) else content)
    (folder / "model.safetensors").write_bytes(changed)
    with contextlib.suppress(VarsmoothError):  # anything else fails
        load_checkpoint(folder)
