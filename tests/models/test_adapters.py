"""Classifiers of other libraries give the same logits through our adapters as by themselves."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from varsmooth.errors import VarsmoothError
from varsmooth.models.adapters import (
    CIFAR10_MEAN,
    CIFAR10_STD,
    CifarResNet,
    NormalisedClassifier,
    from_locuslab,
    from_timm,
    from_transformers,
)
from varsmooth.models.checkpoints import load_checkpoint, save
from varsmooth.models.descriptions import Description, Part

PIXELS = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 3), dtype=np.uint8)
IMAGES = torch.from_numpy(PIXELS).permute(0, 3, 1, 2).float() / 255


def published(depth: int) -> dict[str, Tensor]:
    """Weights as their scripts store them: Sequential(NormalizeLayer, resnet), means not stored."""
    torch.manual_seed(0)
    network = CifarResNet(depth)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean = torch.randn(module.num_features) / 4
    return {f"1.{key}": value for key, value in network.state_dict().items()}


@pytest.mark.parametrize("depth", [20, 110])
def test_checkpoints_of_cohen_et_al(depth: int, tmp_path: Path) -> None:
    weights = published(depth)
    assert len([k for k in weights if k.endswith("conv1.weight")]) == 1 + (depth - 2) // 2
    assert "1.layer2.0.downsample.0.weight" in weights
    content = {"epoch": 90, "arch": f"cifar_resnet{depth}", "state_dict": weights, "optimizer": {}}
    torch.save(content, tmp_path / "checkpoint.pth.tar")
    network = from_locuslab(tmp_path / "checkpoint.pth.tar")
    assert {f"1.{k}" for k in network.state_dict()} == set(weights)
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (CIFAR10_MEAN, CIFAR10_STD))
    theirs = CifarResNet(depth).eval()
    theirs.load_state_dict({k.removeprefix("1."): v for k, v in weights.items()})
    theirs.mean, theirs.std = torch.zeros_like(mean), torch.ones_like(std)
    with torch.no_grad():
        torch.testing.assert_close(network(IMAGES), theirs((IMAGES - mean) / std))
    about = Description(
        "cifar10", tuple("abcdefghij"), 0.25, classifier=Part("cifar-resnet", {"depth": depth})
    )
    save(tmp_path / "ours", about, classifier=network)
    assert load_checkpoint(tmp_path / "ours").classifier is not None


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 no", None])
def test_other_files_are_refused(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    if content is None:
        torch.save({"state_dict": {"1.fc.bias": torch.zeros(10)}}, path)
    else:
        path.write_bytes(content)
    with pytest.raises(VarsmoothError, match="not a CIFAR-10 checkpoint"):
        from_locuslab(path)
    with pytest.raises(VarsmoothError, match="there is no file"):
        from_locuslab(tmp_path / "nowhere")


def test_a_model_of_transformers_sees_what_its_processor_makes() -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        image_size=32, patch_size=8, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, id2label={0: "cat", 1: "dog", 2: "owl"},
    )  # fmt: skip
    model = transformers.ViTForImageClassification(config).train()
    processor = transformers.ViTImageProcessor(
        size={"height": 32, "width": 32},
        rescale_factor=1 / 127.5,
        image_mean=[0.5, 0.4, 0.3],
        image_std=[0.2, 0.3, 0.4],
    )
    f = from_transformers(model, processor)
    assert not any(part.training for part in f.modules())
    with torch.no_grad():
        theirs = model(**processor(list(PIXELS), return_tensors="pt")).logits
        torch.testing.assert_close(f(IMAGES), theirs, rtol=1e-3, atol=1e-4)
    assert (f.class_names, f.image_shape) == (("cat", "dog", "owl"), (3, 32, 32))
    assert f.preprocessing == (32, None, "bilinear")
    config.id2label = {0: "LABEL_0", 1: "LABEL_1", 2: "LABEL_2"}  # placeholders
    assert from_transformers(model, processor).class_names == ()
    for named in (("vit", "vit"), (model, "vit")):
        with pytest.raises(VarsmoothError, match="not their names"):
            from_transformers(*named)


@pytest.mark.parametrize(
    ("entries", "scaling"),
    [
        ({"size": {"shortest_edge": 256}, "crop_size": {"height": 224, "width": 224},
          "do_center_crop": True, "resample": 3}, (256, 224, "bicubic")),
        ({"size": {"shortest_edge": 224}, "crop_pct": 0.875}, (256, 224, None)),
        ({"size": {"height": 224, "width": 224}}, (224, None, None)),
        ({}, (None, None, None)),
    ],
)  # fmt: skip
def test_scaling_is_that_of_the_processor(entries: dict[str, Any], scaling: object) -> None:
    model = nn.Identity()
    model.config = SimpleNamespace()  # type: ignore[assignment]
    processor = SimpleNamespace(rescale_factor=1 / 255, **entries)
    assert from_transformers(model, processor).preprocessing == scaling


def test_one_channel_is_not_normalised_into_three() -> None:
    f = NormalisedClassifier(nn.Flatten(), [0.5] * 3, [0.5] * 3)
    with pytest.raises(VarsmoothError, match=r"takes 3 channels.* x.expand\(-1, 3, -1, -1\)"):
        f(torch.rand(2, 1, 4, 4))
    assert f(torch.rand(2, 1, 4, 4).expand(-1, 3, -1, -1)).shape == (2, 48)


def test_a_model_of_timm_is_normalised_as_its_configuration_says() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 4))
    mean, std = (0.1, 0.2, 0.3), (0.5, 0.6, 0.7)
    network.pretrained_cfg = {"mean": mean, "std": std, "input_size": (3, 32, 32)}  # type: ignore[assignment]
    f = from_timm(network)
    assert not any(part.training for part in f.modules())
    shifted = torch.stack([(IMAGES[:, c] - mean[c]) / std[c] for c in range(3)], dim=1)
    torch.testing.assert_close(f(IMAGES), network(shifted))
    assert (f.image_shape, f.preprocessing) == ((3, 32, 32), (36, 32, None))
    network.pretrained_cfg = SimpleNamespace(mean=mean, std=std, input_size=(3, 32, 32))  # type: ignore[assignment]
    torch.testing.assert_close(from_timm(network)(IMAGES), f(IMAGES))
    with pytest.raises(VarsmoothError, match="no pretrained_cfg"):
        from_timm(nn.Flatten())
