"""The service of the guide "Deploy", started as the guide says and queried over HTTP."""

import io
import json
import os
import re
import socket
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import numpy as np
import pytest
from PIL import Image

from varsmooth import cli, load_dataset

GUIDE = Path(__file__).parent.parent / "docs" / "guides" / "deploy.md"
BLOCKS = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
SAMPLE = load_dataset("cifar10-sample")


def png(place: int) -> bytes:
    pixels = SAMPLE.batch([place]).images[0].permute(1, 2, 0).mul(255).round().byte()
    return encoded(Image.fromarray(pixels.numpy()))


def encoded(image: Image.Image) -> bytes:
    content = io.BytesIO()
    image.save(content, "png")
    return content.getvalue()


def claiming(width: int, height: int) -> bytes:
    """A PNG whose header claims this size, and which has no pixels."""
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    checksum = struct.pack(">I", zlib.crc32(header))
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + header + checksum


DEEP = encoded(Image.fromarray(np.full((32, 32), 40_000, np.uint16)))
UNREADABLE = "the body of the request is not an image file that can be read"
BAD = {
    "not an image": (b"no image", UNREADABLE),
    "empty": (b"", UNREADABLE),
    "DecompressionBombError": (claiming(60_000, 60_000), UNREADABLE),
    "SyntaxError": (png(0)[:8] + b"\x00\x00\x00\x0dJUNK" + png(0)[16:], UNREADABLE),
    "truncated": (png(0)[:200], UNREADABLE),
    "damaged": (png(0)[:60] + bytes(40) + png(0)[100:], UNREADABLE),
    "16 bits": (DEEP, "more than 8 bits per channel; save it with 8 bits"),
}


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


def refused(address: str, body: bytes, code: int = 400) -> str:
    """The error of a refused request."""
    with pytest.raises(HTTPError) as caught:
        ask(address, body)
    assert caught.value.code == code
    return str(json.load(caught.value)["error"])


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
    assert answer["name"] == SAMPLE.class_names[answer["class"]]
    assert answer["sigma"] == 0.25
    assert 0 < answer["votes"] < 1000  # it stops early
    for place in range(3):
        answer = ask(f"{address}/classify?radius=0.1", png(place))
        assert answer["certified"] is not answer["abstains"]
    (folder / "certificates-2020-01-01-000000-000000.jsonl").write_text("of an earlier start")
    monkeypatch.chdir(folder)
    names: dict[str, Any] = {}
    exec(compile(BLOCKS[2], str(GUIDE), "exec"), names)
    assert cli.main(["verify", "runs/served"]) in (0, 3)
    assert cli.main(["report", "runs/served"]) == 1  # it needs labels
    exec(compile(BLOCKS[3], str(GUIDE), "exec"), names)
    assert cli.main(["report", "runs/reviewed"]) == 0


@pytest.mark.parametrize("kind", BAD)
def test_a_body_that_cannot_be_read_is_the_clients_mistake(
    kind: str, served: tuple[str, int, Path]
) -> None:
    body, sentence = BAD[kind]
    for query in ("", "?radius=0.1"):
        assert sentence in refused(f"{served[0]}/classify{query}", body)


def test_a_grey_image_is_an_image(served: tuple[str, int, Path]) -> None:
    assert "votes" in ask(f"{served[0]}/classify", encoded(Image.new("L", (40, 30), 90)))


@pytest.mark.parametrize("radius", ["abc", "", "-1", "nan", "inf"])
def test_a_radius_is_a_number(radius: str, served: tuple[str, int, Path]) -> None:
    assert refused(f"{served[0]}/classify?radius={radius}", png(0)).startswith("radius must be")


def test_a_log_that_cannot_be_written_is_not_the_clients_mistake(
    served: tuple[str, int, Path],
) -> None:
    address, _, folder = served
    ask(f"{address}/classify?radius=0.1", png(0))
    log = max(folder.glob("certificates-*.jsonl"))
    kept = log.rename(folder / "kept")
    log.mkdir()
    try:
        sentence = refused(f"{address}/classify?radius=0.1", png(0), 503)
        assert "the log cannot be written" in sentence
    finally:
        log.rmdir()
        kept.rename(log)


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
