"""Shared by all tests: the tally of the fault campaign (`make campaign`)."""

from collections import Counter
from collections.abc import Callable, Iterator

import pytest

TRIED, SURVIVED = Counter[str](), Counter[str]()

Tally = Callable[[str, int], None]


@pytest.fixture
def tally(request: pytest.FixtureRequest) -> Iterator[Tally]:
    """tally(kind, n): n more of this kind were tried; they survived if the test passes."""
    tried = Counter[str]()

    def count(kind: str, n: int) -> None:
        tried[kind] += n

    yield count
    TRIED.update(tried)
    if request.node.stash.get(PASSED, False):
        SURVIVED.update(tried)


PASSED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = yield
    item.stash[PASSED] = call.when == "call" and report.passed  # type: ignore[attr-defined]
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if TRIED:
        terminalreporter.write_line(f"{'':40}{'tried':>9}{'survived':>10}")
    for kind, tried in TRIED.items():
        terminalreporter.write_line(f"{kind:40}{tried:9,}{SURVIVED[kind]:10,}")
