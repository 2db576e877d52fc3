"""The service of the guide "Deploy", started as the guide says and asked over HTTP."""

import io
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from PIL import Image

from varsmooth import cli, load_dataset

GUIDE = Path(__file__).parent.parent / "docs" / "guides" / "deploy.md"
BLOCKS = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
SAMPLE = load_dataset("cifar10-sample")


def png(place: int) -> bytes:
    content = io.BytesIO()
    pixels = SAMPLE.batch([place]).images[0].permute(1, 2, 0).mul(255).round().byte()
    Image.fromarray(pixels.numpy()).save(content, "png")
    return content.getvalue()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int, Path]]:
    """The address of the running service, its process and its folder."""
    pytest.importorskip("uvicorn")
    folder = tmp_path_factory.mktemp("service")
    (folder / "service.py").write_text(BLOCKS[0])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["-m", "uvicorn", "service:app", "--port", str(port), "--log-level", "warning"]
    paths = os.pathsep.join(filter(None, sys.path))
    process = subprocess.Popen(
        [sys.executable, *words], cwd=folder, env=os.environ | {"PYTHONPATH": paths}
    )
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            try:
                urlopen(f"{address}/metrics", timeout=5).close()
                break
            except OSError:
                assert process.poll() is None, "the service ended"
                time.sleep(0.2)
        yield address, process.pid, folder
    finally:
        process.terminate()
        process.wait(30)


def ask(address: str, body: bytes | None = None) -> dict[str, Any]:
    with urlopen(address, body, timeout=300) as response:
        answer: dict[str, Any] = json.load(response)
    return answer


def resident(process: int) -> float:
    """Megabytes of memory that a process occupies."""
    text = Path(f"/proc/{process}/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+) kB", text)[0]) / 1024


def test_a_request_gets_a_class_and_a_certificate_that_verify_checks(
    served: tuple[str, int, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, _, folder = served
    answer = ask(f"{address}/classify", png(0))
    assert answer["class"] == SAMPLE.known_labels[0]
    assert answer["sigma"] == 0.25
    assert 0 < answer["votes"] < 1000  # it stops early
    for place in range(3):
        answer = ask(f"{address}/classify?radius=0.1", png(place))
        assert answer["certified"] is not answer["abstains"]
    for wrong in (b"no image", b""):
        with pytest.raises(HTTPError, match="400"):
            ask(f"{address}/classify", wrong)
    with pytest.raises(HTTPError, match="400"):
        ask(f"{address}/classify?radius=-1", png(0))
    monkeypatch.chdir(folder)
    exec(compile(BLOCKS[2], str(GUIDE), "exec"), {})
    assert cli.main(["verify", "runs/served"]) in (0, 3)


def test_200_concurrent_requests_are_all_answered_and_leave_no_memory(
    served: tuple[str, int, Path],
) -> None:
    address, process, _ = served
    bodies = [png(place) for place in range(20)]

    def classify(request: int) -> dict[str, Any]:
        return ask(f"{address}/classify", bodies[request % len(bodies)])

    def burst() -> list[dict[str, Any]]:
        with ThreadPoolExecutor(200) as pool:
            return list(pool.map(classify, range(200)))

    burst()  # buffers grow to the largest batch
    before, used = ask(f"{address}/metrics"), resident(process)
    answers = burst()
    after = ask(f"{address}/metrics")
    assert after["answers"] - before["answers"] == 200
    labels = SAMPLE.known_labels
    right = [a["class"] == labels[i % len(bodies)] for i, a in enumerate(answers)]
    assert sum(right) >= 120
    assert resident(process) < used + 50
