"""What a command needs several times is read, parsed and hashed once."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.small_models import QUICK, write_pair
from tests.terminal import Terminal
from varsmooth._util import fingerprints
from varsmooth.evaluation.records import Run
from varsmooth.models import checkpoints, descriptions


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was read, parsed and hashed, in order."""
    noted: list[str] = []

    def note(place: Any, name: str, what: Callable[..., str]) -> None:
        function = getattr(place, name)

        def noting(*arguments: Any, **more: Any) -> Any:
            noted.append(what(*arguments))
            return function(*arguments, **more)

        monkeypatch.setattr(place, name, noting)

    note(Run, "_row", lambda *_: "row")
    note(descriptions, "read_object", lambda path, *_: "description")
    for module in (fingerprints, checkpoints):
        note(module, "fingerprint", lambda network, *_: type(network).__name__)
    return noted


def test_a_command_does_costly_work_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Terminal, calls: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_pair(tmp_path / "model")
    calls.clear()
    cli(f"certify {QUICK} --subset 0:3 --model model --vote-cache votes --out run")
    assert calls.count("Conv4") == 1, "the weights of f"
    assert calls.count("description") == 2, "before torch is imported, and by the library"
    calls.clear()
    cli("verify run")
    assert (calls.count("row"), calls.count("Conv4"), calls.count("description")) == (3, 1, 1)
