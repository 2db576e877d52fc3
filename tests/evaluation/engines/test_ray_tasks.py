"""The connection to a Ray cluster; what a cluster computes is tested by contract and faults."""

import socket
import sys
from types import SimpleNamespace

import pytest

from tests.evaluation import Output, Patch
from tests.small_models import QUICK, run


def start_ray(**options: object) -> None:
    pytest.fail("Ray itself would try for minutes")


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_an_address_where_nothing_answers_is_one_sentence_at_once(
    scheme: str, in_tmp: None, capsys: Output, monkeypatch: Patch
) -> None:
    ray = SimpleNamespace(is_initialized=lambda: False, init=start_ray)
    monkeypatch.setitem(sys.modules, "ray", ray)
    with socket.socket() as free:  # bound, so that nobody else listens there
        free.bind(("127.0.0.1", 0))
        address = f"{scheme}127.0.0.1:{free.getsockname()[1]}"
        words = f"certify {QUICK} --model cifar10-0.25 --out run --engine ray --ray-address"
        assert run(words, address) == 1
    sentence = f"Ray at {address} cannot be reached or started ([Errno 111] Connection refused)"
    assert sentence in capsys.readouterr().err
