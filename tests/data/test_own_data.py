"""The user's own images and arrays."""

import hashlib
import io
import os
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from varsmooth._util.untrusted import LIMITS
from varsmooth.data import load_dataset
from varsmooth.data.catalog import has_own, unseen_split
from varsmooth.data.source import Source
from varsmooth.errors import VarsmoothError

RNG = np.random.default_rng(3)


def picture(path: Path, shape: tuple[int, ...] = (6, 8, 3)) -> np.ndarray[Any, Any]:
    pixels = RNG.integers(0, 256, shape, dtype=np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, lossless=True)  # webp asks, the others always are
    return pixels


def test_a_folder_of_class_folders(tmp_path: Path) -> None:
    dog = picture(tmp_path / "dog" / "b.PNG")
    cat_2 = picture(tmp_path / "cat" / "2.bmp")
    cat_1 = picture(tmp_path / "cat" / "1.webp")
    (tmp_path / "cat" / "notes.txt").write_text("not an image")
    (tmp_path / "cat" / "._1.png").write_text("not an image either")
    (tmp_path / ".hidden").mkdir()
    data = load_dataset(tmp_path)
    assert data.class_names == ("cat", "dog")
    assert data.files == ("cat/1.webp", "cat/2.bmp", "dog/b.PNG")
    assert data.labels is not None
    assert data.labels.tolist() == [0, 0, 1]
    assert data.ids.tolist() == [0, 1, 2]
    np.testing.assert_array_equal(data.images, np.stack([cat_1, cat_2, dog]))
    assert data[2:].files == ("dog/b.PNG",)


def test_train_val_and_test_folders_are_splits_not_classes(tmp_path: Path) -> None:
    for split, n in (("train", 3), ("test", 2)):
        for i in range(n):
            picture(tmp_path / split / "cat" / f"{i}.png")
    test = load_dataset(tmp_path)
    assert (test.name, test.split, len(test)) == (tmp_path.name, "test", 2)
    assert test.class_names == ("cat",)
    assert (len(load_dataset(tmp_path, "val")), len(load_dataset(tmp_path, "train"))) == (1, 2)
    picture(tmp_path / "val" / "cat" / "9.png")
    assert load_dataset(tmp_path, "val").files == ("cat/9.png",)
    assert len(load_dataset(tmp_path, "train")) == 3


def test_train_val_and_test_archives_are_splits_too(tmp_path: Path) -> None:
    for split, n in (("train", 10), ("test", 3)):
        labels = np.arange(n) % (2 + (split == "train"))  # classes 0 to 2, and 0 to 1
        np.savez(tmp_path / split, images=np.zeros((n, 4, 4), np.uint8), labels=labels)
    test = load_dataset(tmp_path)
    assert test.class_names == ("0", "1", "2")
    assert (test.name, test.split, len(test)) == (tmp_path.name, "test", 3)
    assert (len(load_dataset(tmp_path, "val")), len(load_dataset(tmp_path, "train"))) == (3, 7)
    source = Source(data=str(tmp_path))
    assert (unseen_split(source), has_own("val", source)) == ("test", False)
    names = {load_dataset(tmp_path, split).name for split in ("train", "val", "test")}
    assert names == {tmp_path.name}
    (tmp_path / "test.npz").rename(tmp_path / "val.npz")
    assert len(load_dataset(tmp_path, "val")) == 3
    with pytest.raises(VarsmoothError, match="no 'test' beside train, val; choose `split='val'`"):
        load_dataset(tmp_path)


@pytest.mark.parametrize("held_out", ["valid", "validation"])
def test_classes_are_numbered_over_all_splits(tmp_path: Path, held_out: str) -> None:
    for name in ("train/a", "train/b", "train/c", f"{held_out}/a", "test/b", "test/c"):
        for i in range(2):
            picture(tmp_path / name / f"{i}.png")
    test, val = load_dataset(tmp_path), load_dataset(tmp_path, "val")
    assert test.class_names == val.class_names == ("a", "b", "c")
    assert (test.known_labels.tolist(), val.known_labels.tolist()) == ([1, 1, 2, 2], [0, 0])
    assert (test[2:].files, val.split) == (("c/0.png", "c/1.png"), "val")
    picture(tmp_path / "val" / "a" / "0.png")
    with pytest.raises(VarsmoothError, match="several of val, valid, validation; keep one"):
        load_dataset(tmp_path, "val")
    (tmp_path / held_out).rename(tmp_path / "extra")
    with pytest.raises(VarsmoothError, match="has extra beside the splits test, train, val; move"):
        load_dataset(tmp_path, "val")


def test_files_that_are_not_read_are_named(tmp_path: Path) -> None:
    picture(tmp_path / "cat" / "1.png")
    picture(tmp_path / "cat" / "deeper" / "2.png")
    (tmp_path / "cat" / "3.gif").write_bytes(b"GIF89a")
    (tmp_path / "README.txt").write_text("about")
    (tmp_path / "cat" / ".DS_Store").write_bytes(b"")
    data = load_dataset(tmp_path)
    assert data.files == ("cat/1.png",)
    assert data.skipped == ("README.txt", "cat/3.gif", "cat/deeper (1 image)")


def test_bare_images_and_a_single_image_are_unlabelled(tmp_path: Path) -> None:
    a = picture(tmp_path / "a.png")
    b = picture(tmp_path / "b.png")
    folder = load_dataset(str(tmp_path))
    assert folder.labels is None
    np.testing.assert_array_equal(folder.images, np.stack([a, b]))
    single = load_dataset(tmp_path / "b.png")
    assert single.labels is None
    assert single.files == ("b.png",)
    np.testing.assert_array_equal(single.images, b[None])
    with pytest.raises(VarsmoothError, match="one image and has no split 'train'"):
        load_dataset(tmp_path / "b.png", "train")


def test_grey_stays_grey_only_if_all_images_are(tmp_path: Path) -> None:
    grey = picture(tmp_path / "a.png", (6, 8))
    np.testing.assert_array_equal(load_dataset(tmp_path).images, grey[None, ..., None])
    picture(tmp_path / "b.png")
    images = load_dataset(tmp_path).images
    assert images.shape == (2, 6, 8, 3)
    np.testing.assert_array_equal(images[0], np.repeat(grey[..., None], 3, axis=2))


def test_a_photo_taken_sideways_is_turned_upright(tmp_path: Path) -> None:
    image = Image.fromarray(RNG.integers(0, 256, (6, 8, 3), dtype=np.uint8))
    exif = image.getexif()
    exif[0x0112] = 6  # orientation: rotate by 90 degrees clockwise
    image.save(tmp_path / "a.png", exif=exif)
    expected = np.rot90(np.asarray(image), k=-1)
    np.testing.assert_array_equal(load_dataset(tmp_path / "a.png").images[0], expected)


def test_mixed_sizes_name_the_first_offending_file(tmp_path: Path) -> None:
    for name, shape in (("a", (6, 8, 3)), ("b", (6, 8, 3)), ("c", (8, 6, 3)), ("d", (9, 9, 3))):
        picture(tmp_path / "k" / f"{name}.png", shape)
    with pytest.raises(VarsmoothError, match=r"c\.png is 6×8 pixels but a\.png is 8×6"):
        load_dataset(tmp_path)


def test_folders_that_cannot_work(tmp_path: Path) -> None:
    with pytest.raises(VarsmoothError, match="no image"):
        load_dataset(tmp_path)
    picture(tmp_path / "cat" / "1.png")
    picture(tmp_path / "loose.png")
    with pytest.raises(VarsmoothError, match="beside its sub-folders"):
        load_dataset(tmp_path)
    with pytest.raises(VarsmoothError, match=r"neither a file.*cifar10, cifar10-sample"):
        load_dataset(tmp_path / "nowhere")
    (tmp_path / "model.pt").write_bytes(b"x")
    with pytest.raises(VarsmoothError, match="not of a known kind"):
        load_dataset(tmp_path / "model.pt")


def png_chunk(kind: bytes, data: bytes) -> bytes:
    check = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)


def png(side: int, bits: int = 8, colour: int = 2, pixels: bytes = b"") -> bytes:
    """A file of a few bytes that claims to be a picture of any size."""
    header = struct.pack(">IIBBBBB", side, side, bits, colour, 0, 0, 0)
    parts = [(b"IHDR", header), (b"IDAT", zlib.compress(pixels)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(png_chunk(*part) for part in parts)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "cannot be read as an image: it is empty"),
        (b"GIF89a" + bytes(100), "cannot be read as an image"),
        (png(8), "cannot be read as an image"),
        (png(8_000), "64,000,000 pixels, above the limit of 50,000,000"),
        (png(10_000), "above the limit of 50,000,000"),
        (png(60_000), "too large"),
        *(
            (png(4, 16, colour, 4 * bytes(1 + 8 * channels)), "8 bits per channel; save it with 8")
            for colour, channels in ((0, 1), (2, 3), (4, 2), (6, 4))
        ),
    ],
)
def test_damaged_and_hostile_images_are_refused(
    content: bytes, sentence: str, tmp_path: Path
) -> None:
    (tmp_path / "x.png").write_bytes(content)
    with pytest.raises(VarsmoothError, match=rf"x\.png.*{sentence}"):
        load_dataset(tmp_path).batch([0])


def test_pipes_and_devices_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.png")
    (tmp_path / "endless.png").symlink_to("/dev/zero")
    for name in ("x.png", "endless.png"):
        with pytest.raises(VarsmoothError, match="neither a file"):
            load_dataset(tmp_path / name)
    with pytest.raises(VarsmoothError, match="a device; give a regular file"):
        load_dataset(tmp_path)
    (tmp_path / "endless.png").unlink()
    with pytest.raises(VarsmoothError, match="a pipe"):
        load_dataset(tmp_path)


def test_more_pixels_than_fit_are_refused_before_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for i in range(3):
        picture(tmp_path / f"{i}.png")
    np.savez(tmp_path / "a.npz", images=np.zeros((3, 6, 8, 3), np.uint8))
    assert 3 * 6 * 8 * 3 == 432
    monkeypatch.setitem(LIMITS, "BYTES", 431)
    for path in (tmp_path, tmp_path / "a.npz"):
        with pytest.raises(VarsmoothError, match="above the limit of 431"):
            _ = load_dataset(path).images
    assert load_dataset(tmp_path).batch([0, 2]).images.shape == (2, 3, 6, 8)


def labelled(tmp_path: Path) -> Path:
    for name, n in (("cat", 10), ("dog", 7), ("owl", 1)):
        for i in range(n):
            picture(tmp_path / name / f"{i}.png")
    return tmp_path


def test_sets_without_splits_are_split_by_a_fixed_rule(tmp_path: Path) -> None:
    folder = labelled(tmp_path / "zoo")
    everything, train, val = (load_dataset(folder, split) for split in ("test", "train", "val"))
    assert (len(everything), len(train), len(val)) == (18, 13, 5)
    assert sorted([*train.files, *val.files]) == sorted(everything.files)
    assert val.labels is not None
    assert np.bincount(val.labels).tolist() == [2, 2, 1]
    assert (train.split, val.split, val.class_names) == ("train", "val", everything.class_names)
    for part in (train, val):  # an image is the same image, with the same noise, in every split
        for i, file in zip(part.ids.tolist(), part.files, strict=True):
            assert everything.files[i] == file
    digests = {f: hashlib.sha256(f.encode()).hexdigest() for f in everything.files}
    cats = sorted((f for f in digests if f.startswith("cat")), key=digests.__getitem__)
    assert {f for f in val.files if f.startswith("cat")} == set(cats[:2])
    with pytest.raises(VarsmoothError, match="no split 'valid'; choose train, val or test"):
        load_dataset(folder, "valid")


def test_one_image_of_each_class_is_too_few_for_a_split(tmp_path: Path) -> None:
    np.savez(tmp_path / "b.npz", images=np.zeros((1, 6, 8, 3), np.uint8))
    with pytest.raises(VarsmoothError, match="too few for a split 'train'"):
        load_dataset(tmp_path / "b.npz", "train")


IMAGES = RNG.integers(0, 256, (5, 6, 8, 3), dtype=np.uint8)
LABELS = np.array([0, 2, 1, 2, 0], dtype=np.int32)


@pytest.mark.parametrize("order", ["HWC", "CHW"])
def test_a_pair_of_arrays(order: str, tmp_path: Path) -> None:
    images = IMAGES if order == "HWC" else IMAGES.transpose(0, 3, 1, 2)
    np.savez(tmp_path / "pair.npz", images=images, labels=LABELS)
    np.save(tmp_path / "pair.npy", images)
    np.save(tmp_path / "pair_labels.npy", LABELS)
    for path in (tmp_path / "pair.npz", tmp_path / "pair.npy"):
        data = load_dataset(path)
        assert data.name == "pair"
        assert data.labels is not None
        assert data.labels.dtype == np.int64
        assert data.labels.tolist() == LABELS.tolist()
        assert data.class_names == ("0", "1", "2")
        batch = data.batch([4, 0]).images
        np.testing.assert_array_equal(
            batch.numpy(), IMAGES[[4, 0]].transpose(0, 3, 1, 2) / np.float32(255)
        )


def test_grey_arrays_need_no_axis_of_channels(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=IMAGES[..., 0])
    np.testing.assert_array_equal(load_dataset(tmp_path / "a.npz").images, IMAGES[..., :1])


def saved(write: Any = np.savez, *arrays: Any, **named: Any) -> bytes:
    """The bytes of a .npz or .npy file."""
    file = io.BytesIO()
    write(file, *arrays, **named)
    return file.getvalue()


def damaged(kind: str) -> bytes:
    """An .npz that is wrong in one way."""
    content = bytearray(saved(np.savez_compressed, images=IMAGES, labels=LABELS))
    central = content.index(b"PK\x01\x02")
    if kind == "encrypted":
        content[6] |= 1
        content[central + 8] |= 1
    elif kind == "unknown method":
        content[8:10] = content[central + 10 : central + 12] = struct.pack("<H", 77)
    elif kind == "broken stream":
        middle = content.index(b"PK\x03\x04", 4) // 2
        content[middle : middle + 20] = bytes(20)
    elif kind == "truncated":
        content = content[: len(content) // 2]
    return bytes(content)


def claiming(shape: str, name: str) -> bytes:
    """A file of a few bytes whose header claims an array of any shape."""
    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    npy = b"\x93NUMPY\x01\x00" + struct.pack("<H", 118) + header.encode() + bytes(10)
    if name.endswith(".npy"):
        return npy
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("images.npy", npy)
    return file.getvalue()


UNREADABLE = "cannot be read as plain arrays"
SHAPES = ("(10**12, 32, 32, 3)", "(1000000000, 3, 32, 32)", "(-1, 2)")
NAMES = ("a.npz", "a.npy")


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        *(
            ("a.npz", saved(images=images), sentence)
            for images, sentence in (
                (IMAGES / 255, r"float64; .* save \(images \* 255\)\.round\(\)\.astype"),
                (IMAGES * 1.0, r"float64; .* save images\.round\(\)\.astype\('uint8'\)"),
                (IMAGES[0], "1 or 3 channels"),
                (np.zeros((2, 5, 5, 5), np.uint8), "1 or 3 channels"),
                (IMAGES[:0], "no image"),
            )
        ),
        *(
            ("a.npz", saved(images=IMAGES, labels=labels), sentence)
            for labels, sentence in (
                (LABELS[:3], "5 images but labels"),
                (LABELS / 2, "should be integers .*; save labels.astype"),
                (np.eye(3)[LABELS], r"\(5, 3\); save labels\.argmax\(1\)"),
                (LABELS.astype(str), "save class numbers, numpy.unique"),
                (LABELS - 1, "from -1"),
                (np.array([{}] * 5), "plain arrays"),
                (LABELS.astype(np.int64) + 2**60, "above the limit of 100,000"),
            )
        ),
        ("a.npz", saved(images=IMAGES, lables=LABELS), "images and labels, not"),
        ("a.npz", saved(x=IMAGES, labels=LABELS), "images and labels, not"),
        ("a.npz", saved(np.save, IMAGES), "not one array"),
        ("b.npy", saved(images=IMAGES), UNREADABLE),
        ("a.npy", saved(np.save, np.array([{}]), allow_pickle=True), UNREADABLE),
        *((n, c, UNREADABLE) for n in NAMES for c in (b"", b"PK\x03\x04 broken", b"\x80\x04N.")),
        *(
            ("a.npz", damaged(kind), UNREADABLE)
            for kind in ("encrypted", "unknown method", "broken stream", "truncated")
        ),
        *((name, claiming(shape, name), r"a\.") for name in NAMES for shape in SHAPES),
    ],
)
def test_arrays_that_cannot_work(name: str, content: bytes, sentence: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(VarsmoothError, match=sentence):
        load_dataset(tmp_path / name)


def test_a_class_folder_needs_a_printable_name(tmp_path: Path) -> None:
    picture(tmp_path / "cat\x1b[2J" / "1.png")
    with pytest.raises(VarsmoothError, match="printable name"):
        load_dataset(tmp_path)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A left half of 0 and a right half of 200, in three sizes; one is grey."""
    for place, (height, width) in enumerate([(20, 30), (64, 40), (17, 17)]):
        pixels = np.zeros((height, width, 3), np.uint8)
        pixels[:, width // 2 :] = 200
        folder = tmp_path / ("cat", "dog")[place % 2]
        folder.mkdir(exist_ok=True)
        Image.fromarray(pixels[..., 0] if place == 1 else pixels).save(folder / f"{place}.png")
    return tmp_path


def test_resize_comes_before_the_sizes_are_compared(photos: Path) -> None:
    with pytest.raises(VarsmoothError, match="resize=32"):
        load_dataset(photos)
    data = load_dataset(photos, resize=8)
    assert data.images.shape == (3, 8, 8, 3)
    assert (data.images[:, :, :2] < 20).all()
    assert (data.images[:, :, 6:] > 180).all()
    assert load_dataset(photos, "train", resize=8).files == ("cat/2.png",)


def test_arrays_and_single_images_are_resized_too(photos: Path, tmp_path: Path) -> None:
    one = load_dataset(photos / "dog" / "1.png", resize=8)
    assert one.images.shape == (1, 8, 8, 1)
    np.savez(tmp_path / "a.npz", images=np.full((2, 5, 9, 3), 7, np.uint8))
    assert (load_dataset(tmp_path / "a.npz", resize=4).images == 7).all()
    assert load_dataset("cifar10-sample", resize=16).images.shape == (1000, 16, 16, 3)
    with pytest.raises(VarsmoothError, match="resize must be a whole number from 1"):
        load_dataset(photos, resize=0)
