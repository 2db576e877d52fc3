"""Adapters for other libraries' classifiers: pixels in [0,1] in, logits out, normalisation inside.

Nothing here downloads: a model of `transformers` or timm is handed over as it is in memory, a
checkpoint of Cohen et al. as a file.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from varsmooth._util.untrusted import check_regular
from varsmooth.data.source import AS_IS, Interpolation, Preprocessing
from varsmooth.errors import VarsmoothError, check, reason, wrap_errors
from varsmooth.models.options import Precision


class Bfloat16Classifier(nn.Module):
    """The same network with activations in bfloat16 (torch.autocast): another classifier f.

    About twice as fast where the processor has bfloat16. Its votes differ a little from those in
    float32, and its fingerprint too: a certificate is about the one that voted.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.conditional = bool(getattr(network, "conditional", False))

    def forward(self, x: Tensor, *sigma: Tensor) -> Tensor:
        with torch.autocast(x.device.type, torch.bfloat16):
            output = self.network(x, *sigma)
        logits: Tensor = getattr(output, "logits", output)
        return logits.to(x.dtype)


def in_precision(network: nn.Module, precision: Precision) -> nn.Module:
    """f as it is, or with activations in bfloat16."""
    return Bfloat16Classifier(network) if precision == "bfloat16" else network


CIFAR10_MEAN, CIFAR10_STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
"""The normalisation inside the CIFAR-10 classifiers of Cohen et al. (2019)."""


RESAMPLING: dict[Any, Interpolation] = {1: "lanczos", 2: "bilinear", 3: "bicubic"}
"""Pillow's numbers, which processors of `transformers` store."""


class NormalisedClassifier(nn.Module):
    """f(x) = network((scale · x − mean) / std) for images x (B,C,H,W) in [0,1] → logits.

    Args:
        network: Maps normalised images to logits, or to an object with `.logits`.
        mean: One number for each channel.
        std: Likewise.
        scale: What the network's own pipeline makes of a white pixel, usually 1.
        class_names: Its classes, if known; certify and adopt use them.
        image_shape: (channels, height, width) of its training images, if known.
        preprocessing: How photographs are scaled for it; runs do so by default.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        network: nn.Module,
        mean: Sequence[float],
        std: Sequence[float],
        scale: float = 1.0,
        class_names: Sequence[str] = (),
        image_shape: tuple[int, int, int] | None = None,
        preprocessing: Preprocessing = AS_IS,
    ) -> None:
        super().__init__()
        self.network, self.scale = network, scale
        self.class_names, self.image_shape = tuple(class_names), image_shape
        self.preprocessing = preprocessing
        for name, values in (("mean", mean), ("std", std)):
            self.register_buffer(name, torch.tensor(values).view(1, -1, 1, 1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        channels = self.mean.shape[1]
        check(  # else one grey channel would become three
            channels == 1 or x.shape[1] > 1,
            f"the classifier takes {channels} channels, these images have 1; repeat it: "
            f"x.expand(-1, {channels}, -1, -1)",
        )
        output = self.network((self.scale * x - self.mean) / self.std)
        logits: Tensor = getattr(output, "logits", output)
        return logits


def from_transformers(model: nn.Module, processor: Any) -> NormalisedClassifier:
    """An image classifier of `transformers` with the pixel range and scale of its processor.

    It comes back in evaluation mode, and the model inside it too.

    Args:
        model: What `AutoModelForImageClassification.from_pretrained(name)` returns.
        processor: What `AutoImageProcessor.from_pretrained(name)` returns.
    """
    check(
        hasattr(model, "config") and not isinstance(processor, str),
        "from_transformers(model, processor) takes the objects, not their names; load them with "
        "AutoModelForImageClassification.from_pretrained(name) and "
        "AutoImageProcessor.from_pretrained(name)",
    )
    channels = int(getattr(model.config, "num_channels", 3))
    normalise = bool(getattr(processor, "do_normalize", False))
    mean = processor.image_mean if normalise else [0.0] * channels
    std = processor.image_std if normalise else [1.0] * channels
    scale = 255 * float(processor.rescale_factor) if getattr(processor, "do_rescale", True) else 255
    labels = getattr(model.config, "id2label", None) or {}
    size = getattr(processor, "crop_size", None) or getattr(processor, "size", None) or {}
    height, width = (getattr(size, k, None) or dict(size).get(k) for k in ("height", "width"))
    shape = (channels, int(height), int(width)) if height and width else None
    names = [str(labels[key]) for key in sorted(labels, key=int)]
    if all(name == f"LABEL_{i}" for i, name in enumerate(names)):  # placeholders say nothing
        names = []
    scaling = _preprocessing_of(processor)
    return NormalisedClassifier(model, mean, std, scale, names, shape, scaling).eval()


def _preprocessing_of(processor: Any) -> Preprocessing:
    """How a processor of `transformers` scales: shorter side and central crop, or one square.

    A processor that squeezes the whole image into a square becomes the central square.
    """
    size, crop = (dict(getattr(processor, name, None) or {}) for name in ("size", "crop_size"))
    method = RESAMPLING.get(getattr(processor, "resample", None))
    shortest, share = size.get("shortest_edge"), getattr(processor, "crop_pct", None)
    if shortest and getattr(processor, "do_center_crop", False):
        return Preprocessing(int(shortest), int(crop["height"]), method)
    if shortest and share:  # ConvNeXt
        return Preprocessing(int(shortest / share), int(shortest), method)
    side = size.get("height") or shortest
    return Preprocessing(int(side), None, method) if side else AS_IS


def from_timm(model: nn.Module) -> NormalisedClassifier:
    """A classifier of timm in evaluation mode, normalised as its `pretrained_cfg` says."""
    config = getattr(model, "pretrained_cfg", None) or getattr(model, "default_cfg", None)
    if config is None:
        raise VarsmoothError("this model has no pretrained_cfg; wrap it in NormalisedClassifier")
    config = config if isinstance(config, dict) else vars(config)
    channels, height, width = config["input_size"]
    names = config.get("label_names") or ()
    shape, mean, std = (channels, height, width), config["mean"], config["std"]
    method = config.get("interpolation")
    known: Interpolation | None = method if method in get_args(Interpolation) else None
    scaling = Preprocessing(int(height / config.get("crop_pct", 0.875)), height, known)
    return NormalisedClassifier(model, mean, std, 1.0, names, shape, scaling).eval()


class CifarResNet(nn.Module):
    """ResNet-6n+2 for CIFAR-10 in the layout of the checkpoints of Cohen et al. (2019).

    Normalisation by CIFAR10_MEAN and CIFAR10_STD is inside. Names of layers are those of the
    published weights.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, depth: int = 110, classes: int = 10) -> None:
        super().__init__()
        check(depth % 6 == 2 and 8 <= depth <= 1202, f"depth must be 6n + 2, not {depth}")
        blocks = (depth - 2) // 6
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = self._stage(16, 16, blocks)
        self.layer2 = self._stage(16, 32, blocks)
        self.layer3 = self._stage(32, 64, blocks)
        self.fc = nn.Linear(64, classes)
        for name, values in (("mean", CIFAR10_MEAN), ("std", CIFAR10_STD)):
            self.register_buffer(name, torch.tensor(values).view(1, 3, 1, 1), persistent=False)

    @staticmethod
    def _stage(inputs: int, outputs: int, blocks: int) -> nn.Sequential:
        rest = (_Block(outputs, outputs) for _ in range(blocks - 1))
        return nn.Sequential(_Block(inputs, outputs), *rest)

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.bn1(self.conv1((x - self.mean) / self.std)))
        y = self.layer3(self.layer2(self.layer1(y)))
        logits: Tensor = self.fc(y.mean(dim=(2, 3)))
        return logits


class _Block(nn.Module):
    """ReLU(x' + bn(conv(ReLU(bn(conv(x)))))), x' = x, or a 1×1 convolution of stride 2."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        stride = 1 if inputs == outputs else 2
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1:
            shrink = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.downsample = nn.Sequential(shrink, nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return functional.relu(y + (x if self.downsample is None else self.downsample(x)))


def from_locuslab(path: str | Path) -> CifarResNet:
    """The classifier of a `checkpoint.pth.tar` of Cohen et al.: ResNet-110 or -20 for CIFAR-10.

    The file is read without running code. Save the result with
    `varsmooth.models.checkpoints.save` under the network name `cifar-resnet`.
    """
    path = Path(path)
    check(path.is_file(), f"there is no file {path}")
    check_regular(path)
    foreign = f"{path} is not a CIFAR-10 checkpoint in the layout of Cohen et al."
    with wrap_errors(Exception, lambda error: f"{foreign}: {reason(error)}"):  # torch, zip, layout
        state = torch.load(path, map_location="cpu", weights_only=True)["state_dict"]
        weights = {key.removeprefix("1.").removeprefix("module."): state[key] for key in state}
        weights = {key: weights[key] for key in weights if not key.startswith("0.")}
        depth = 6 * (1 + max(int(k.split(".")[1]) for k in weights if k.startswith("layer1."))) + 2
        network = CifarResNet(depth, len(weights["fc.bias"]))
        network.load_state_dict(weights)
    return network.eval()
