"""What an interrupted experiment keeps and may use again; that committed results stand."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from reproduce.__main__ import EXPERIMENTS, build_parser, sizes_of
from reproduce.attacks import Attacks, AttackScale
from reproduce.committed import FINISHED, results_in, resume, scale_of, small_print_of
from reproduce.harness import Context, Evidence
from reproduce.records import read_records
from reproduce.scales import Need, resized
from varsmooth.evaluation.report.outcomes import Outcomes

RESULTS = Path(__file__).parents[2] / "results"
EVERY = [folder for name, folder in results_in(RESULTS) if name in EXPERIMENTS]


def test_every_result_has_its_experiment_or_the_commit_that_ran_it() -> None:
    for name, folder in results_in(RESULTS):
        assert (name in EXPERIMENTS) != (name in FINISHED)
        if name in FINISHED:
            assert f"commit `{FINISHED[name]}`" in (folder / "README.md").read_text()


@pytest.mark.parametrize("folder", EVERY, ids=lambda folder: str(folder.relative_to(RESULTS)))
def test_tables_and_page_have_the_same_small_print(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    text = small_print_of(EXPERIMENTS[config["experiment"]], config)
    for name in ["README", *(table["name"] for table in config["tables"])]:
        assert text in (folder / f"{name}.md").read_text()


@pytest.mark.parametrize("folder", EVERY, ids=lambda folder: str(folder.relative_to(RESULTS)))
def test_the_command_beside_a_result_makes_it(folder: Path) -> None:
    """It parses, and its sizes are those that the result records."""
    config = json.loads((folder / "config.json").read_text())
    options = build_parser().parse_args(config["command"].split()[3:])
    experiment = EXPERIMENTS[options.name]
    scale = resized(experiment.scales[options.scale], sizes_of(options))
    assert scale == scale_of(experiment, config)


def test_committed_records_stand_for_their_runs(tmp_path: Path) -> None:
    """However options are spelled by now: else every run would be computed again."""
    context = Context(tmp_path, precision="bfloat16")
    config = json.loads((RESULTS / "weak-attack" / "config.json").read_text())
    scale = scale_of(EXPERIMENTS["weak-attack"], config)
    assert isinstance(scale, AttackScale)
    keys: dict[str, str] = {}

    def run(name: str, make: object, key: Callable[[], str]) -> Outcomes:
        keys[name] = key()
        return committed[name]

    committed = read_records(RESULTS / "weak-attack" / "records.csv.gz")
    object.__setattr__(context, "run", run)
    attacks = Attacks(context, scale, 0.3, "weak")
    need = Need.fixed(0.5, selector=True)
    attacks.g(need, 0.5)
    attacks.g_v(need, 0.2)
    strong = Attacks(context, scale_of(EXPERIMENTS["clipping"], config), 0.3)  # type: ignore[arg-type]
    committed |= read_records(RESULTS / "clipping" / "records.csv.gz")
    strong.g_v_star(need, 0.2)
    assert len(keys) == 3
    for name, key in keys.items():
        assert committed[name].header["key"] == key


def test_facts_are_kept_for_the_same_sizes_and_models(tmp_path: Path) -> None:
    out, computed = tmp_path / "results" / "some", list[str]()

    def facts(about: dict[str, object], *names: str) -> dict[str, object]:
        evidence = Evidence()
        context = Context(tmp_path, evidence=evidence)
        resume(evidence, out, about)
        for name in names:
            context.fact(name, partial(compute, name))
        return evidence.facts

    def compute(name: str) -> list[object]:
        computed.append(name)
        return [0.5, name]

    about: dict[str, object] = {"sizes": {"sigmas": (0.25, 0.5)}, "models": {"f": "abc"}}
    facts(about, "one")
    assert facts(about, "one", "two") == {"one": [0.5, "one"], "two": [0.5, "two"]}
    assert computed == ["one", "two"]
    facts({**about, "models": {"f": "another"}}, "one")
    assert computed == ["one", "two", "one"]
