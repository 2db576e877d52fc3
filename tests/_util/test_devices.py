"""Devices are named as torch names them; a missing device is an error."""

import re
from types import SimpleNamespace

import pytest
import torch

from varsmooth._util.processes import choose_device, launch
from varsmooth.errors import VarsmoothError


def pretend(patch: pytest.MonkeyPatch, count: int) -> None:
    """A torch that sees so many CUDA devices."""
    fake = SimpleNamespace(device_count=lambda: count, is_available=lambda: count > 0)
    plain = torch.get_device_module
    patch.setattr(torch, "get_device_module", lambda d: fake if d.type == "cuda" else plain(d))
    patch.setattr(torch.cuda, "is_available", fake.is_available)


def test_devices_that_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_device("cpu") == torch.device("cpu")
    pretend(monkeypatch, 2)
    assert choose_device("auto") == torch.device("cuda")
    assert choose_device("cuda:1") == torch.device("cuda:1")
    pretend(monkeypatch, 0)
    assert choose_device("auto") == torch.device("cpu")


@pytest.mark.parametrize(
    ("name", "count", "sentence"),
    [
        ("cuda", 0, "torch sees no CUDA device here; choose `device='cpu'`"),
        ("cuda:2", 2, "torch has no device cuda:2; choose `device='cpu'` or cuda:0 to cuda:1"),
        ("banana", 0, "torch knows no device 'banana'; choose `device='cpu'`"),
    ],
)
def test_devices_that_are_not(
    monkeypatch: pytest.MonkeyPatch, name: str, count: int, sentence: str
) -> None:
    pretend(monkeypatch, count)
    with pytest.raises(VarsmoothError) as error:
        choose_device(name)
    assert str(error.value) == sentence


@pytest.mark.parametrize(("name", "end"), [("cuda:1", " or cuda:0"), ("cpu:1", "")])
def test_one_device_is_no_range(monkeypatch: pytest.MonkeyPatch, name: str, end: str) -> None:
    pretend(monkeypatch, 1)
    sentence = f"torch has no device {name}; choose `device='cpu'`{end}"
    with pytest.raises(VarsmoothError, match=f"{re.escape(sentence)}$"):
        choose_device(name)


@pytest.mark.skipif(torch.backends.mps.is_available(), reason="has such a device")
def test_no_apple_device() -> None:
    with pytest.raises(VarsmoothError, match="torch sees no mps device here"):
        choose_device("mps")


def test_one_device_cannot_serve_several_processes() -> None:
    with pytest.raises(VarsmoothError, match="have a device each; choose `device='cuda'`"):
        launch(lambda engine: None, "cuda:1", 2)
