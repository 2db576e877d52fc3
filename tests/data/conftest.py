"""A small CIFAR-10 that the package takes for the true one."""

import hashlib

import pytest

from tests.fake_cifar10 import N, make_batches
from varsmooth.data import cifar10
from varsmooth.data.cifar10 import Records


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> dict[str, Records]:
    made = make_batches()
    digests = {
        name: hashlib.sha256(records.tobytes()).hexdigest() for name, records in made.items()
    }
    monkeypatch.setattr(cifar10, "IMAGES_PER_FILE", N)
    monkeypatch.setattr(cifar10, "SHA256", digests)
    return made
