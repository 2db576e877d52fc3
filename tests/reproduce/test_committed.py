"""What an interrupted experiment keeps and may use again; that committed results stand."""

import json
from dataclasses import asdict
from functools import partial
from pathlib import Path

import pytest

from reproduce.__main__ import EXPERIMENTS, build_parser, sizes_of
from reproduce.committed import has_claims, result_of, resume, scale_of, small_print_of
from reproduce.harness import Context, Evidence, resized

RESULTS = Path(__file__).parents[2] / "results"
COMMITTED = [
    path.parent for path in sorted(RESULTS.glob("**/claims.json")) if has_claims(path.parent)
]


@pytest.mark.parametrize("folder", COMMITTED, ids=lambda folder: str(folder.relative_to(RESULTS)))
def test_committed_claims_follow_from_their_records(folder: Path) -> None:
    """By this code: run `python -m reproduce claims` after a change of how claims are judged."""
    config, claims = (json.loads((folder / f"{n}.json").read_text()) for n in ("config", "claims"))
    found = result_of(EXPERIMENTS[folder.name], folder, config).claims
    assert json.loads(json.dumps([asdict(claim) for claim in found])) == claims


EVERY = [path.parent for path in sorted(RESULTS.glob("**/claims.json"))]


@pytest.mark.parametrize("folder", EVERY, ids=lambda folder: str(folder.relative_to(RESULTS)))
def test_tables_and_page_have_the_same_small_print(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    said = small_print_of(EXPERIMENTS[config["experiment"]], config)
    for name in ["README", *(table["name"] for table in config["tables"])]:
        assert said in (folder / f"{name}.md").read_text()


@pytest.mark.parametrize("folder", COMMITTED, ids=lambda folder: str(folder.relative_to(RESULTS)))
def test_the_command_beside_a_result_makes_it(folder: Path) -> None:
    """It parses, and its sizes are those that the result records."""
    config = json.loads((folder / "config.json").read_text())
    asked = build_parser().parse_args(config["command"].split()[3:])
    experiment = EXPERIMENTS[asked.name]
    scale = resized(experiment.scales[asked.scale], sizes_of(asked))
    assert scale == scale_of(experiment, config)


def test_facts_are_kept_for_the_same_sizes_and_models(tmp_path: Path) -> None:
    out, computed = tmp_path / "results" / "some", list[str]()

    def asked(about: dict[str, object], *names: str) -> dict[str, object]:
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
    asked(about, "one")
    assert asked(about, "one", "two") == {"one": [0.5, "one"], "two": [0.5, "two"]}
    assert computed == ["one", "two"]
    asked({**about, "models": {"f": "another"}}, "one")
    assert computed == ["one", "two", "one"]
