"""Mistakes in Python: one sentence that says what to do, without the user's network in it."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import varsmooth
from varsmooth import VarsmoothError
from varsmooth.errors import reason
from varsmooth.models import adapters

API: Any = varsmooth  # mypy would notice most of these mistakes
NETWORK: Any = nn.Sequential(nn.Flatten(), nn.Linear(48, 2))
G, X = API.SmoothedClassifier(NETWORK, API.FixedSelector(0.25)), torch.full((1, 3, 4, 4), 0.5)
SIGMA, SAMPLE = API.FixedSelector(0.25), API.load_dataset("cifar10-sample")
CHANNELS = API.SmoothedClassifier(nn.Sequential(nn.Conv2d(3, 2, 4), nn.Flatten()), SIGMA)
CONDITIONAL = API.load("cifar10-universal-0.25", sigma=0.25).classifier


def smooth(selector: Any) -> Any:
    return API.SmoothedClassifier(NETWORK, selector)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: API.certify(G, X, seed="a"), "seed must be a whole number, not 'a'"),
        (lambda: API.predict(G, X, seed=1.5), "seed must be a whole number, not 1.5"),
        (lambda: API.certify(G, X.double()), "most need float32, which x.float() gives"),
        (
            lambda: API.SmoothedClassifier(API.FixedSelector(1), NETWORK),
            "CascadeSelector, not Sequential;",
        ),
        (
            lambda: API.SmoothedClassifier(NETWORK, lambda x: x.mean(dim=(1, 2, 3))),
            "a function of yours goes into MedianSelector(function, sigma_m)",
        ),
        (
            lambda: API.CascadeSelector("0.5,0.25"),
            "levels must be a list of numbers, one for each stage",
        ),
        (lambda: API.SmoothedClassifier(len, SIGMA), "call a function in the forward of one"),
        (lambda: API.SmoothedClassifier(nn.Linear, SIGMA), "an nn.Module, so that its weights"),
        (lambda: API.SmoothedClassifier(G, SIGMA), "give the network inside it, g.classifier"),
        (
            lambda: API.certify(smooth(API.CascadeSelector([0.5], gates=NETWORK)), X),
            "the gate (z, logits, sigma) → scores fails on torch.float32 images of 4×4 pixels",
        ),
        (lambda: API.CascadeSelector([0.5], gates=int), "gates must be a list of numbers"),
        (lambda: API.CascadeSelector([0.5], gates=0.3), "gates must be a list of numbers"),
        (lambda: API.MedianSelector(0.25, 0.25), "the first argument of MedianSelector"),
        (
            lambda: API.predict(smooth(API.MedianSelector(API.CascadeSelector([1]), 0.25)), X),
            "a cascade knows σ only after voting; give it to SmoothedClassifier",
        ),
        (
            lambda: API.predict(smooth(API.LearnedSelector(NETWORK, 0.25, 0.5)), X),
            "the network (x, sigma_a, lam) → σ fails on",
        ),
        (lambda: API.FixedSelector(torch.tensor([0.1, 0.2])), "sigma must be one positive number"),
        (lambda: API.certify_at(G, X, "0.5"), "radius must be ≥ 0 and finite, not '0.5'"),
        (lambda: API.certify_at(G, X, None), "radius must be ≥ 0 and finite, not None"),
        (
            lambda: API.predict(G, SAMPLE.batch([0])),
            "not Batch; give the .images of a batch, as in",
        ),
        (lambda: API.predict(G, X, ids=torch.tensor([0.5])), "ids must be whole numbers"),
        (lambda: API.predict(G, X, ids=7), "ids must be whole numbers"),
        (lambda: API.predict(CHANNELS, torch.rand(1, 8, 8, 3)), "x.permute(0, 3, 1, 2)"),
        (
            lambda: API.pgd(CONDITIONAL, X, torch.zeros(len(X), dtype=torch.long), 0.1),
            "takes σ as an input; attack the SmoothedClassifier around it, or fix a level",
        ),
        (lambda: API.load(5), "name_or_path must be text, or a path, not 5"),
        (lambda: API.load_dataset(["a"]), "name_or_path must be text, or a path, not ['a']"),
        (
            lambda: API.load_dataset("cifar10-sample", resize="big"),
            "resize must be a whole number from 1",
        ),
        (
            lambda: adapters.from_transformers(NETWORK, NETWORK),
            "from_transformers(model, processor)",
        ),
    ],
)
def test_misuse_is_one_sentence(call: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(VarsmoothError) as caught:
        call()
    assert sentence in str(caught.value)
    assert "Linear(" not in str(caught.value)


def test_the_reason_is_what_came_first() -> None:
    error = ImportError("see the log")
    error.__cause__ = RuntimeError("the cause\nand more")
    assert reason(error) == "the cause"


def test_the_package_lists_its_own_names_only() -> None:
    assert {"certify", "load", "__version__"} <= set(dir(varsmooth))
    assert not {"Path", "re", "import_module"} & set(dir(varsmooth))


def test_images_are_chosen_by_a_slice_or_a_list() -> None:
    data: Any = API.load_dataset("cifar10-sample")
    for choose, wrong_ones in (
        (data.batch, (3, range(2000, 2003), None, "cat")),
        (data.__getitem__, (range(2000, 2003), None, "cat")),  # data[3] is one image
    ):
        for wrong in wrong_ones:
            with pytest.raises(VarsmoothError, match=r"a slice or a list such as \[0, 1\]"):
                choose(wrong)
