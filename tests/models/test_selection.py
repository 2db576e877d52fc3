"""One place decides which selector is meant, and what it decides is what is built."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.small_models import QUICK, run, write_pair
from varsmooth import CascadeSelector, load
from varsmooth.errors import VarsmoothError
from varsmooth.evaluation.build import stored_model
from varsmooth.evaluation.records import Run
from varsmooth.models.checkpoints import load_checkpoint
from varsmooth.models.descriptions import describe, released_names, rewrite
from varsmooth.models.loading import make_selector
from varsmooth.models.options import ModelOptions, TunedStages
from varsmooth.models.selection import resolve_selector, selector_text

STAGES = (TunedStages(0.0, (0.1,), (0.5,)), TunedStages(0.4, (0.5, 0.2), (0.6, 0.5), (0.3, 0.0)))


@pytest.mark.parametrize("name", released_names())
def test_what_is_resolved_is_what_load_builds(name: str) -> None:
    about, selector = describe(name), load(name).selector
    plan = resolve_selector(about, ModelOptions())
    assert plan.kind == ("cascade" if about.cascades else "median" if about.selector else "fixed")
    assert selector_text(plan.about) == selector_text(selector.describe())


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({}, "cascade"),
        ({"lam": 0.2}, "cascade"),
        ({"cascade": "0.5:0.5:0.4,0.1"}, "cascade"),
        ({"cascade": "0.5,0.1"}, "cascade"),
        ({"sigma": 0.3}, "fixed"),
        ({"selector": "fixed"}, "fixed"),
        ({"selector": "median"}, "median"),
        ({"selector": "median", "lam": 0.1}, "median"),
        ({"selector": "learned", "sigma_a": 0.1}, "learned"),
        ({"sigma_a": 0.1}, "median"),
        ({"clip": (0.1, 0.3)}, "median"),
        ({"n_median": 11}, "median"),
    ],
)
def test_the_first_selector_that_the_options_allow(
    tmp_path: Path, options: dict[str, Any], kind: str
) -> None:
    folder = write_pair(tmp_path)
    about = rewrite(folder, replace(describe(folder), cascades=STAGES))
    plan = resolve_selector(about, ModelOptions(**options))
    assert plan.kind == kind
    built = load(folder, **options).selector
    assert built.describe()["selector"] == kind
    again = make_selector(built.describe(), load_checkpoint(folder).selector)
    assert again.describe() == built.describe()


def test_a_tuned_cascade_is_the_default_at_lambda_1(tmp_path: Path) -> None:
    folder = write_pair(tmp_path)
    rewrite(folder, replace(describe(folder), cascades=STAGES))
    default, low = load(folder).selector, load(folder, lam=0.3).selector
    assert isinstance(default, CascadeSelector)
    assert isinstance(low, CascadeSelector)
    assert (len(default.stages.levels), len(low.stages.levels)) == (2, 1)


@pytest.mark.parametrize("name", ["lam", "sigma_m"])
def test_an_option_without_a_selector_is_refused(name: str) -> None:
    with pytest.raises(VarsmoothError, match=f"`{name}` has no effect|no tuned cascade"):
        resolve_selector(describe("cifar10-denoised"), ModelOptions(**{name: 0.5}))  # type: ignore[arg-type]


def test_a_stored_run_keeps_its_selector_when_the_default_changes(tmp_path: Path) -> None:
    model, out = write_pair(tmp_path / "model"), tmp_path / "run"
    words = f"certify --model {model} {QUICK} --subset :2".replace("--n-median 21 ", "")
    assert run(words, "--out", out) == 0
    rewrite(model, replace(describe(model), cascades=STAGES))
    assert stored_model(Run.open(out).header, None, None).selector == "median"
    assert run(f"verify {out} --replay all") == 0
    assert run(words, "--out", out) == 1  # its default is another selector now
