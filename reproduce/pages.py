"""The page of each result: what it shows, the command, its figures, tables, and every case."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from reproduce.figures import Figure, draw
from reproduce.statistics import pooled
from reproduce.verdicts import MEASURES, Measure, rows_of

PAGE = "README.md"


def write_page(
    results: Path, folder: Path, config: dict[str, Any], small_print: str, code: str = ""
) -> None:
    """The page of one result. code: the commit that ran it, if the experiment has left."""
    lines = [f"# {config['experiment']}: {config['title']} ({config['paper']})", ""]
    lines += ["```sh", config["command"], "```", "", small_print, ""]
    if code:
        drawn = f", and `{DRAWN}` drew it" if config["figures"] else ""
        lines += [f"This is finished and has left the code; commit `{code}` ran it{drawn}.", ""]
    for figure in config["figures"]:
        lines += [f"![{figure['name']}]({figure['name']}.png)", "", f"*{figure['caption']}*", ""]
    tables = ", ".join(f"[{table['name']}]({table['name']}.md)" for table in config["tables"])
    lines += [f"Tables: {tables}.", ""] if tables else []
    name = str(folder.relative_to(results)) if folder.is_relative_to(results) else ""
    lines += list(case_lines(results, name))
    (folder / PAGE).write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")


def case_lines(results: Path, experiment: str) -> Iterator[str]:
    """What each measure of a result is made of, below the sentence that rests on it."""
    page = results / PAGE
    rows = rows_of(page.read_text(encoding="utf-8")) if page.is_file() else []
    sentences = {
        row.name: f"{row.cells[0]}: {row.cells[2].strip('*')}"
        for row in rows
        if row.experiment == experiment
    }
    mine = {name: MEASURES[name] for name in sentences}
    back = "../" * len(Path(experiment).parts)
    if mine:
        yield "## Cases"
        yield ""
        yield f"Each has its own 95 % interval; [the pooled number decides]({back}{PAGE}#how)."
        yield ""
    for name, measure in mine.items():
        yield f"### {name}"
        yield ""
        yield f"{sentences[name]}. {measure.number(results)}."
        if measure.judged:
            by_rule = measure.decide(measure.estimate(results))
            yield f"By the rule: {by_rule}; but {measure.judged}."
        yield ""
        yield from _table_of_cases(measure, results)


def _table_of_cases(measure: Measure, results: Path) -> Iterator[str]:
    cases = measure.by_case(results)
    if not cases:
        return
    yield f"| case | difference, {measure.unit or 'absolute'} | images |"
    yield "|---|---:|---:|"
    for title, differences in cases.items():
        estimate = pooled([differences])
        text = estimate.text(measure.scale, measure.digits)
        yield f"| {title} | {text} | {estimate.images} |"
    yield ""


FINISHED = {
    "memorisation": "6adb1b6",
    "long-run": "c4ce7aa",
    "attack-convergence": "1523985",
    "attainable": "b4ae989",
    "conditioning": "c38cc35",
    "ablation": "73f5e76",
    "cascade-gate": "d950093",
    "cascade-attack": "6946d27",
}
"""Experiments that have left the code, with the commit that ran them; their results stay."""
DRAWN = "198ad3e"
"""The commit that drew their figures last."""


def draw_figures(figures: Iterable[Figure]) -> dict[str, bytes]:
    """PNG and SVG of each figure, by file name."""
    pictures = [draw(figure) for figure in figures]
    files = {f"{picture.name}.png": picture.png for picture in pictures}
    return files | {f"{picture.name}.svg": picture.svg.encode() for picture in pictures}
