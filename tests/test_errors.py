"""Mistakes in Python: one sentence that says what to do, without the user's network in it."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import varsmooth
from varsmooth import VarsmoothError
from varsmooth.models import adapters

API: Any = varsmooth  # mypy would notice most of these mistakes
NETWORK: Any = nn.Sequential(nn.Flatten(), nn.Linear(48, 2))
G, X = API.SmoothedClassifier(NETWORK, API.FixedSelector(0.25)), torch.full((1, 3, 4, 4), 0.5)


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


def test_one_image_is_asked_for_as_a_list() -> None:
    data: Any = API.load_dataset("cifar10-sample")
    for choose in (data.batch, data.__getitem__):
        with pytest.raises(TypeError, match=r"a slice or a list such as \[3\]"):
            choose(3)
