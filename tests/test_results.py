"""Results as a person meets them: printed, in a notebook, with a bar."""

import re

import pytest
import torch

from tests.oracles import Linear, LinearSelector, fixed, point
from varsmooth import (
    MedianSelector,
    Options,
    SmoothedClassifier,
    certify,
    certify_at,
    predict,
)
from varsmooth.certificates import SHOWN


def protected() -> SmoothedClassifier:
    selector = MedianSelector(LinearSelector(0.3, 0.1), 0.5, n=101, levels=[0.25, 0.5])
    return SmoothedClassifier(Linear(), selector)


def test_certificates_print_as_a_short_table() -> None:
    """1001 samples of the selector stand behind each image; none of them is printed."""
    x = torch.cat([point(0.8, 0.5), point(0.5001, 0.5)])
    certificates = certify(protected(), x, n=1000, seed=0, options=Options(n_select=1001))
    head, first, second = str(certificates).splitlines()
    assert head.split() == ["id", "prediction", "sigma", "radius", "guarantee"]
    assert first.split()[:2] == ["0", "0"]
    assert 0 <= certificates[0].radius - float(first.split()[3]) < 1e-4  # rounded down
    assert second.split()[1] == "-1"
    assert len(repr(certificates[0])) < 300
    assert repr(certificates) == str(certificates)


def test_a_level_is_shown_as_it_was_set() -> None:
    predictions = predict(fixed(Linear(), 0.12), point(0.8, 0.5), seed=0)
    assert str(predictions).split()[-1] == "0.1200"  # not 0.1199, which is 0.12 rounded down


def test_a_decision_shows_the_radius_that_was_asked_where_it_is_certified() -> None:
    x = torch.cat([point(0.9, 0.5), point(0.5, 0.5)])
    decisions = certify_at(fixed(Linear()), x, 0.3, seed=0, options=Options(n_max=1000))
    _, yes, no = (line.split() for line in str(decisions).splitlines())
    assert yes == ["0", "0", "0.2500", "0.3000", "certified"]  # not 0.2999, the float rounded down
    assert no == ["1", "-1", "0.2500", "0.0000", "futile"]
    assert decisions.radius.tolist() == [0.3, 0.0]


def test_a_notebook_shows_the_same_table() -> None:
    predictions = predict(fixed(Linear()), point(0.8, 0.5), seed=0)
    html = predictions._repr_html_()
    assert re.findall("<t[hd]>(.*?)</t[hd]>", html) == str(predictions).split()


def test_a_long_batch_is_cut() -> None:
    predictions = predict(fixed(Linear()), point(0.8, 0.5, copies=SHOWN + 1), seed=0)
    assert len(str(predictions).splitlines()) == 1 + SHOWN + 1
    assert f"{SHOWN + 1} images in all" in str(predictions)
    assert f"{SHOWN + 1} images in all" in predictions._repr_html_()


@pytest.mark.parametrize("verb", [certify, predict])
def test_progress_shows_a_bar_and_changes_nothing(
    verb: object, capsys: pytest.CaptureFixture[str]
) -> None:
    assert callable(verb)
    x = torch.cat([point(0.8, 0.5), point(0.3, 0.5), point(0.6, 0.5)])
    plain = verb(protected(), x, n=1000, seed=3, ids=[7, 5, 6])
    assert capsys.readouterr().err == ""
    shown = Options(progress=True)
    assert verb(protected(), x, n=1000, seed=3, ids=[7, 5, 6], options=shown) == plain
    assert "3/3" in capsys.readouterr().err
    fresh = verb(protected(), x, n=1000, options=shown)
    assert len({item.seed for item in fresh}) == 1
    assert [item.id for item in fresh] == [0, 1, 2]
