"""Damaged data files of every kind: a data set or one sentence, never anything else."""

import contextlib
import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from tests.conftest import Tally
from varsmooth.data import load_dataset
from varsmooth.errors import VarsmoothError

PIXELS = np.random.default_rng(0).integers(0, 256, (3, 8, 8, 3), dtype=np.uint8)


def contents() -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    for suffix, form in (("png", "PNG"), ("jpg", "JPEG"), ("bmp", "BMP"), ("webp", "WEBP")):
        buffer = io.BytesIO()
        Image.fromarray(PIXELS[0]).save(buffer, form)
        files[suffix] = buffer.getvalue()
    for name, write in (("npz", np.savez), ("npz2", np.savez_compressed)):
        buffer = io.BytesIO()
        write(buffer, images=PIXELS, labels=np.arange(3))
        files[name] = buffer.getvalue()
    buffer = io.BytesIO()
    np.save(buffer, PIXELS)
    return files | {"npy": buffer.getvalue()}


FILES = contents()


@pytest.mark.slow
@pytest.mark.campaign
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", FILES)
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_any_damage_is_one_sentence(
    kind: str, data: st.DataObject, tmp_path: Path, tally: Tally
) -> None:
    tally("hostile data files", 1)
    content = bytearray(FILES[kind])
    for _ in range(data.draw(st.integers(1, 8))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(0, len(content)))]
    path = tmp_path / f"x.{kind.removesuffix('2')}"
    path.write_bytes(content)
    with contextlib.suppress(VarsmoothError):  # anything else fails
        assert len(load_dataset(path)) > 0
