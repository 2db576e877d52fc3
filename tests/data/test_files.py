"""Image files as a data set: decoded per batch, and only what is needed."""

import os
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from varsmooth.data import Batch, ImageDataset, load_dataset
from varsmooth.data.files import Indices, preprocess
from varsmooth.data.source import Preprocessing, Source
from varsmooth.errors import VarsmoothError

RNG = np.random.default_rng(5)


def photos(folder: Path, count: int, side: int = 6) -> list[Path]:
    paths = []
    for i in range(count):
        path = folder / ("cat", "dog")[i % 2] / f"{i:03d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(RNG.integers(0, 256, (side, side, 3), dtype=np.uint8)).save(path)
        paths.append(path)
    return sorted(paths)


def test_only_the_images_of_a_subset_are_decoded(tmp_path: Path) -> None:
    paths = photos(tmp_path, 6)
    data = load_dataset(tmp_path)
    part = data[1::3]
    for i in (0, 2, 3, 5):
        os.truncate(paths[i], 60)  # the header is whole, the pixels are not
    assert [batch.ids.tolist() for batch in part.batches(1)] == [[1], [4]]
    np.testing.assert_array_equal(part.images[0], np.asarray(Image.open(paths[1])))
    with pytest.raises(VarsmoothError, match=r"001\.png cannot be read as an image.*repair"):
        list(data[3:5].batches(1))
    assert load_dataset(tmp_path).shape == (3, 6, 6)


def test_memory_does_not_grow_with_the_number_of_images(tmp_path: Path) -> None:
    photos(tmp_path, 60, 100)  # 1.8 MB of pixels
    data = load_dataset(tmp_path)
    tracemalloc.start()
    try:
        for batch in data.batches(2):
            assert batch.images.shape == (2, 3, 100, 100)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 60 * 30_000 / 2


def test_the_next_block_is_decoded_while_one_is_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    photos(tmp_path, 6)
    decoded: list[object] = []
    batch = ImageDataset.batch

    def recorded(self: ImageDataset, indices: Indices) -> Batch:
        decoded.append(indices)
        return batch(self, indices)

    monkeypatch.setattr(ImageDataset, "batch", recorded)
    blocks = load_dataset(tmp_path).blocks([[0], [1], [2]])
    assert next(blocks).ids.tolist() == [0]
    deadline = time.monotonic() + 10
    while len(decoded) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert decoded == [[0], [1]]
    assert [block.ids.tolist() for block in blocks] == [[1], [2]]


def test_a_file_that_becomes_another_size_is_named(tmp_path: Path) -> None:
    paths = photos(tmp_path, 2)
    data = load_dataset(tmp_path)
    Image.new("RGB", (7, 6)).save(paths[1])
    with pytest.raises(VarsmoothError, match=r"001\.png has changed since it was listed"):
        data.batch([1])


def test_a_file_that_vanishes_is_named(tmp_path: Path) -> None:
    paths = photos(tmp_path, 2)
    data = load_dataset(tmp_path)
    paths[1].unlink()
    with pytest.raises(VarsmoothError, match=r"dog/001\.png was there .*; put it back, then run"):
        list(data.batches(1))


def test_torch_loads_it(tmp_path: Path) -> None:
    photos(tmp_path, 5)
    data = load_dataset(tmp_path)
    loaded = list(DataLoader(data, batch_size=2))  # type: ignore[arg-type]
    assert [len(labels) for _, labels in loaded] == [2, 2, 1]
    expected = data.batch(slice(None))
    assert torch.equal(torch.cat([images for images, _ in loaded]), expected.images)
    assert torch.cat([labels for _, labels in loaded]).tolist() == data.known_labels.tolist()
    assert len(list(data)) == 5  # type: ignore[call-overload]
    alone = load_dataset(tmp_path / "cat")
    image = alone[-1]
    assert isinstance(image, torch.Tensor)
    assert torch.equal(image, expected.images[2])
    with pytest.raises(IndexError, match="3 images, not one at 3"):
        alone[3]


@pytest.mark.parametrize("shape", [(300, 400), (401, 300), (256, 256), (97, 64)])
@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
def test_scaling_and_cropping_is_that_of_transformers(
    shape: tuple[int, int], interpolation: str
) -> None:
    processors = pytest.importorskip("transformers.models.bit.image_processing_pil_bit")
    pixels = RNG.integers(0, 256, (*shape, 3), dtype=np.uint8)
    resample = {"bilinear": 2, "bicubic": 3}[interpolation]
    processor = processors.BitImageProcessorPil(
        size={"shortest_edge": 64}, crop_size=56, resample=resample, do_normalize=False
    )
    theirs = processor(Image.fromarray(pixels), return_tensors="np")["pixel_values"][0]
    ours = preprocess(pixels, Preprocessing(64, 56, interpolation))  # type: ignore[arg-type]
    np.testing.assert_array_equal(ours.transpose(2, 0, 1), (theirs * 255).round())


def test_scaling_options_that_do_not_go_together() -> None:
    with pytest.raises(VarsmoothError, match=r"center_crop needs a `resize`"):
        load_dataset("cifar10-sample", center_crop=224)
    with pytest.raises(VarsmoothError, match="at least as large"):
        Source(resize=8, center_crop=9)
    with pytest.raises(VarsmoothError, match=r"interpolation belongs to `resize`"):
        Source(interpolation="bicubic")


def test_the_scaling_of_a_model_is_taken_whole() -> None:
    own = Source(data="cifar10-sample", resize=256, center_crop=224, interpolation="bicubic")
    assert Source().with_defaults(own).preprocessing == (256, 224, "bicubic")
    assert Source(resize=64).with_defaults(own).preprocessing == (64, None, None)
