"""The documentation stays true: its code runs and prints the output shown, its commands exist."""

import ast
import contextlib
import io
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from varsmooth import cli
from varsmooth.cli.parser import parse

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]

# `<!-- not run: why -->` before a block is the exception; what a block prints may follow it
# between `<!-- output -->` and `<!-- end -->`, as a table or as a ```text block.
FENCE = re.compile(
    r"(?P<skip><!-- not run: [^>]+ -->\s+)?"
    r"^```(?P<language>\w+)[^\n]*\n(?P<code>.*?)^```$"
    r"(?:\s*<!-- output -->\n(?P<output>.*?)<!-- end -->)?",
    re.MULTILINE | re.DOTALL,
)


class Block(NamedTuple):
    """One fenced block of a page."""

    line: int
    code: str
    output: str | None
    run: bool


def blocks(page: Path, language: str) -> list[Block]:
    text = page.read_text()
    matches = [m for m in FENCE.finditer(text) if m["language"] == language]
    indented = len(re.findall(rf"^[ \t]+```{language}", text, re.MULTILINE))
    assert indented == 0, f"{page} hides {language} blocks by indenting them"
    return [
        Block(
            line=text.count("\n", 0, m.start("code")),
            code=m["code"],
            output=m["output"] and re.sub(r"^```(?:text)?\n", "", m["output"], flags=re.M),
            run=m["skip"] is None,
        )
        for m in matches
    ]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize(
    "page", [page for page in PAGES if "```python" in page.read_text()], ids=name_of
)
def test_python_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of a page are one program, read from top to bottom."""
    monkeypatch.chdir(tmp_path)
    scope: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(page, "python"):
        if not block.run:
            continue
        code = compile("\n" * block.line + block.code, str(page), "exec")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, scope)
        if block.output is not None:
            assert printed.getvalue().strip() == block.output.strip(), f"{page}:{block.line}"


def commands() -> Iterator[tuple[str, list[str]]]:
    """Every command of ours in the pages, as words without comments."""
    for page in PAGES:
        for block in blocks(page, "sh"):
            for line in block.code.replace("\\\n", " ").splitlines():
                words = shlex.split(line, comments=True)
                if words:
                    yield name_of(page), [words[0].removeprefix(".venv/bin/"), *words[1:]]


@pytest.mark.parametrize(("page", "words"), list(commands()), ids=lambda v: str(v))
def test_command_can_be_typed(page: str, words: list[str]) -> None:
    """Every option of ours is read and checked, as when it is typed."""
    if "varsmooth" in words:  # by itself, or by torchrun -m --
        typed = words[words.index("varsmooth") + 1 :]
        if "--help" in typed or "--version" in typed:
            assert cli.main(typed) == 0
        else:
            parse(cli.VERBS, typed)
    else:
        assert words[0] in ("make", "pip", "python", "export"), f"{page}: unknown command {words}"


def sentences() -> set[str]:
    """Every string of the package, … where a value is put in, and its beginnings up to a “;”."""
    strings = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            text = ""
            if isinstance(node, ast.JoinedStr):
                parts = [v.value if isinstance(v, ast.Constant) else "…" for v in node.values]
                text = "".join(str(part) for part in parts)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                text = node.value
            strings |= {text, *(text[: end.start()] for end in re.finditer("; ", text))}
    return strings


def test_errors_that_are_explained_exist() -> None:
    """Whole sentences: a heading is not a part that another text happens to contain."""
    known = sentences()
    faq = (DOCS / "faq.md").read_text()
    headings = re.findall(r"^### `+ ?(.+?) ?`+$", faq, re.MULTILINE)
    assert len(headings) > 20
    missing = [sentence for sentence in headings if sentence not in known]
    assert not missing, f"no error has this text any more: {missing}"


def test_files_that_are_named_exist() -> None:
    """Paths of the repository in backticks: in the documentation, and in the guide beside it."""
    folders = "benchmarks|docs|examples|reproduce|results|src|tests|tools"
    named = re.compile(rf"`((?:{folders})/[\w./-]*)`")
    pages = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "benchmarks" / "README.md"]
    named_files = {
        (name_of(page), path) for page in pages for path in named.findall(page.read_text())
    }
    assert len(named_files) > 20
    assert not [one for one in named_files if "NAME" not in one[1] and not (ROOT / one[1]).exists()]


def test_site_builds_without_warnings_and_loads_nothing_external(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", tmp_path / "site"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) >= len(PAGES) - 1  # all but the README
    for page in pages:
        loaded = re.findall(
            r"<(?:script|img|iframe|link(?![^>]*canonical))[^>]*(?:src|href)=\"?(https?:[^\"> ]+)",
            page.read_text(),
        )
        assert not loaded, f"{page.name} loads {loaded}"
