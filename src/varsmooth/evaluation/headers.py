"""The header of a run: what produced its rows, and whether two runs were produced by the same."""

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from varsmooth._util.typed import OptionError, as_option, fit
from varsmooth._util.untrusted import check_limit, read_object
from varsmooth.data.source import Interpolation
from varsmooth.defaults import ALPHA_SELECT, BATCH_SIZE
from varsmooth.errors import check, wrap_errors
from varsmooth.types import Count, NonNegative, Positive, Probability

if TYPE_CHECKING:
    from varsmooth.probe import Probe

FORMAT = 1
HEADER = "run.json"

PLACES = ("model", "data", "root", "vote_cache", "name", "out")
EXECUTION = (*PLACES, "batch_size", "device", "devices")
"""Options that change where and how fast, never what: a run may be resumed with others. Model and
data are compared by their fingerprints instead of by their paths."""

SEEN = {
    "seen_in_training": "the model was trained on {}",
    "seen_in_tuning": "the model's options were chosen on {}",
}
"""Entries of a header that count images which the model knew before the run."""


@dataclass(frozen=True)
class _Config:
    model: str | None = None
    data: str | None = None
    root: str | None = None
    resize: Count | None = None
    center_crop: Count | None = None
    interpolation: Interpolation | None = None
    alpha: Probability | None = None
    alpha_select: Probability = ALPHA_SELECT
    batch_size: Count = BATCH_SIZE
    imported: str = ""


@dataclass(frozen=True)
class _Dataset:
    name: str
    split: str
    size: NonNegative
    class_names: list[str]


@dataclass(frozen=True)
class _Selector:
    selector: str = ""
    sigma: Positive | None = None
    n: NonNegative = 0
    inner: "_Selector | None" = None


@dataclass(frozen=True)
class _Header:
    """What every reader of a run relies on. The options of each verb have checks of their own."""

    verb: Literal["certify", "predict", "attack"]
    name: str
    config: _Config
    environment: dict[str, Any]
    fingerprints: dict[str, str]
    dataset: _Dataset
    selector: _Selector
    class_names: list[str] = field(default_factory=list)
    noise_scope: str = ""
    probe: dict[str, Any] | None = None


def header_file(header: Mapping[str, Any]) -> bytes:
    """A header as it is stored; its last entry is the CRC-32 of the others."""
    values = {"format": FORMAT, **header}
    return (json.dumps(values | {"check": _checksum(values)}, indent=1) + "\n").encode()


def as_stored(values: Any) -> Any:
    """Values as JSON gives them back."""
    return json.loads(json.dumps(values))


def read_header(folder: Path) -> dict[str, Any]:
    """The header in a folder."""
    path = folder / HEADER
    missing = f"{folder} does not hold a run: it has no {HEADER}"
    with wrap_errors(
        (FileNotFoundError, NotADirectoryError), f"{missing}; name a folder written by --out"
    ):
        header, _ = read_object(path, _Header, FORMAT, "run", extra="ignore")
    check(
        header.get("check") == _checksum(header),
        f"{path} is damaged or was edited: its checksum is wrong; copy it again",
    )
    return header


def _checksum(header: Mapping[str, Any]) -> str:
    values = {name: value for name, value in header.items() if name != "check"}
    return f"{zlib.crc32(json.dumps(values, sort_keys=True).encode()):08x}"


def different_options(there: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The settings that two headers must share but do not, spelled as options.

    Examples:
        >>> run = {"config": {"n": 100, "clip": [0.1, 1.0]}, "verb": "certify"}
        >>> different_options(run, run | {"config": {"n": 200, "clip": (0.1, 1.0)}})
        ['--n 100 there, 200 now']
    """
    now = as_stored(now)
    if there["verb"] != now["verb"]:
        return [f"{there['verb']} there, {now['verb']} now"]
    differences = _changed(_options(there), _options(now))
    if not differences:  # the options are the same; has what they name changed?
        then = there.get("selector", {})
        differences += _changed(then, now.get("selector", {}), "the selector's ")
    prints, present = (header.get("fingerprints", {}) for header in (there, now))
    same_f = prints.get("classifier") == present.get("classifier")
    if prints != present and not (differences and same_f):  # another selector has another one
        differences.append("the model is another network or has other weights")
    if not differences and (one := stored_probe(there)) and (other := stored_probe(now)):
        differences += [f"the {part}'s outputs differ" for part in one.differences(other)]
    if not differences and there.get("dataset") != now.get("dataset"):
        differences.append("--data holds other images or labels")
    return differences


def stored_probe(header: Mapping[str, Any]) -> "Probe | None":
    """The stored outputs that identify the run's model; None for a run saved without images."""
    if "probe" not in header:
        return None
    from varsmooth.probe import Probe

    with wrap_errors(OptionError, lambda error: f"the probe of the run cannot be read: {error}"):
        probe: Probe = fit(Probe, header["probe"])
    pixels = probe.shape[1] * probe.shape[2]
    check_limit("PIXELS", pixels, f"the run has images of {pixels:,} pixels")
    check_limit("SIZE", probe.shape[0], f"the run has images of {probe.shape[0]:,} channels")
    return probe


def _options(header: Mapping[str, Any]) -> dict[str, Any]:
    config = header["config"].items()
    return {as_option(name): value for name, value in config if name not in EXECUTION}


def _changed(there: Mapping[str, Any], now: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Where two nested settings differ, each named by its last key."""
    differences = []
    for name in sorted(there.keys() | now.keys()):
        one, other = there.get(name), now.get(name)
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            differences += _changed(one, other, prefix)
        elif one != other:
            differences.append(f"{prefix}{name} {_short(one)} there, {_short(other)} now")
    return differences


def _short(value: Any) -> str:
    text = "unset" if value is None else json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "…"
