"""A Dataset or a DataLoader goes in wherever images do."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, SubsetRandomSampler, TensorDataset

from varsmooth import (
    FixedSelector,
    Options,
    SmoothedClassifier,
    certify,
    certify_at,
    certify_until,
    load_dataset,
    predict,
)
from varsmooth.batching import BATCH
from varsmooth.errors import VarsmoothError


def smoothed() -> SmoothedClassifier:
    torch.manual_seed(0)
    return SmoothedClassifier(
        nn.Sequential(nn.Flatten(), nn.Linear(3072, 4)), FixedSelector(0.25)
    ).eval()


SAMPLE = load_dataset("cifar10-sample")[:70:2]


@pytest.mark.parametrize(
    "function",
    [
        lambda g, x, **how: certify(g, x, n=30, options=Options(n0=10), **how),
        lambda g, x, **how: certify_at(g, x, 0.05, options=Options(n_max=60, n0=10), **how),
        lambda g, x, **how: certify_until(g, x, 0.5, options=Options(n_max=60, n0=10), **how),
        lambda g, x, **how: predict(g, x, n=30, **how),
    ],
)
def test_results_are_those_of_the_tensor(function: Any) -> None:
    g, (images, labels, ids) = smoothed(), SAMPLE.batch(slice(None))
    assert labels is not None
    expected = list(function(g, images, seed=1, ids=ids))
    assert list(function(g, SAMPLE, seed=1)) == expected
    tensors = TensorDataset(images, labels)
    assert list(function(g, tensors, seed=1, ids=ids)) == expected
    loader: DataLoader[Any] = DataLoader(tensors, batch_size=9)
    assert list(function(g, loader, seed=1, ids=ids)) == expected
    bare: DataLoader[Any] = DataLoader(images, batch_size=9)  # type: ignore[arg-type]
    numbered = list(function(g, bare, seed=1))
    assert numbered == list(function(g, images, seed=1))
    assert [result.id for result in numbered] == list(range(35))


def test_images_share_one_fresh_seed() -> None:
    first = certify(smoothed(), SAMPLE, n=30, options=Options(n0=10))
    again = certify(smoothed(), SAMPLE, n=30, options=Options(n0=10))
    assert len({one.seed for one in first}) == 1
    assert first[0].seed != again[0].seed


def test_what_is_no_source_of_images_is_refused() -> None:
    class Words(TensorDataset):
        def __getitem__(self, index: int) -> tuple[Any, ...]:
            return ("word",)

    data = TensorDataset(torch.rand(3, 3, 32, 32))
    with pytest.raises(VarsmoothError, match="3 images but 2 ids"):
        predict(smoothed(), data, n=20, ids=[0, 1])
    with pytest.raises(VarsmoothError, match="ids has 4 entries for 3 images"):
        predict(smoothed(), data, n=20, ids=[0, 1, 2, 3])
    with pytest.raises(VarsmoothError, match="must be images, or begin with them, not tuple"):
        predict(smoothed(), Words(torch.rand(3, 1)), n=20)
    with pytest.raises(VarsmoothError, match="not dict; let its collate_fn return"):
        predict(smoothed(), DataLoader([{"pixels": SAMPLE[0]}]), n=20)  # type: ignore[arg-type]
    with pytest.raises(VarsmoothError, match="the DataLoader shuffles"):
        predict(smoothed(), DataLoader(data, shuffle=True), n=20)
    for order in ({"sampler": SubsetRandomSampler([2, 0, 1])}, {"batch_sampler": [[2], [0, 1]]}):
        with pytest.raises(VarsmoothError, match="or has a sampler of its own"):
            predict(smoothed(), DataLoader(data, **order), n=20)
    many = TensorDataset(torch.rand(BATCH + 1, 3, 32, 32))
    with pytest.raises(VarsmoothError, match="two images have the same id"):
        predict(smoothed(), many, n=20, ids=[*range(BATCH), 0])
    with pytest.raises(VarsmoothError, match="must be a SmoothedClassifier, not Flatten"):
        predict(nn.Flatten(), data, n=20)  # type: ignore[arg-type]
    numbers: Tensor = torch.rand(2, 3, 32, 32)
    with pytest.raises(VarsmoothError, match="must be a torch tensor"):
        predict(smoothed(), numbers.numpy(), n=20)  # type: ignore[arg-type]
