"""What an interrupted experiment keeps, and what it may use again."""

from functools import partial
from pathlib import Path

from reproduce.committed import resume
from reproduce.harness import Context, Evidence


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
