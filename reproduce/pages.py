"""The page of each result: what it shows, the command, its figures, tables, and every case."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from reproduce import comparisons
from reproduce.comparisons import TABLE_2, Committed, Comparison
from reproduce.figures import draw, plot_levels, plot_passes, plot_rows
from reproduce.harness import Figure
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
        lines += [f"This is finished and has left the code; commit `{code}` ran it.", ""]
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
            by_rule = measure.decide(pooled(measure.by_case(results)))
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


# Experiments that are finished: their results stay, their code is in the history


@dataclass(frozen=True)
class Finished:
    """The commit that ran it, and how its figures are drawn from what it found."""

    commit: str
    figures: bool = False


FINISHED = {
    "memorisation": Finished("6adb1b6", figures=True),
    "long-run": Finished("c4ce7aa", figures=True),
    "attack-convergence": Finished("1523985", figures=True),
    "attainable": Finished("b4ae989"),
    "conditioning": Finished("c38cc35", figures=True),
    "ablation": Finished("73f5e76", figures=True),
    "cascade-gate": Finished("d950093"),
    "cascade-attack": Finished("6946d27"),
}


ROWS: dict[str, tuple[Comparison, str, float, float]] = {
    "conditioning": (comparisons.conditioning, "difference in clean accuracy (points)", 0.375, 6.0),
    "attack-convergence": (
        comparisons.converged,
        "difference in robust accuracy (points)",
        0.3,
        7.0,
    ),
}
"""Figures that are one difference a row: what is compared, the axis, the height of a row, width."""


def finished_figures(folder: Path, config: dict[str, Any]) -> list[Figure]:
    """The figures of a finished result, with the captions that it has."""
    evidence = Committed.of(folder)
    captions = {figure["name"]: figure["caption"] for figure in config["figures"]}
    if config["experiment"] in ROWS:
        cases, xlabel, height, width = ROWS[config["experiment"]]
        rows = cases(evidence)
        ((name, caption),) = captions.items()
        plot = partial(plot_rows, rows=rows, xlabel=xlabel)
        return [Figure(name, caption, [plot], height=0.9 + height * len(rows), width=width)]
    if config["experiment"] == "ablation":
        lines: dict[str, list[tuple[float, float, float]]] = {}
        for name, (mean, std) in evidence.facts.items():
            variant, lam = name.removeprefix("σ_s on held-out images: ").rsplit(", λ = ", 1)
            lines.setdefault(variant, []).append((float(lam), mean, std))
        levels = partial(plot_levels, lines=lines, target=2 * evidence.sizes["trained"])
        return [Figure("variants", captions["variants"], [levels], height=3.6, width=6.8)]
    clips = {f"{lam:g}": clip for (s, lam), clip in TABLE_2.items() if s == 0.25}
    plots = [
        partial(plot_passes, study=study, what=what, clips=clips, title=_study_title(name))
        for what in ("width", "gain")
        for name, study in evidence.facts.items()
    ]
    count = len(evidence.facts)
    width = 4.4 * max(2, count)
    (caption,) = captions.values()
    return [Figure("memorisation", caption, plots, columns=count, height=3.1, width=width)]


def _study_title(name: str) -> str:
    """`memorisation, σ_a = 0.25, f batch, 2000 × 100` → what f it was."""
    kinds = {"released": "released f", "overfitted": "overfitted f", "batch": "f with BatchNorm"}
    return f"{name.split(', ')[1]}, {kinds[name.split(', f ')[1].split(',')[0]]}"


def draw_figures(figures: list[Figure]) -> dict[str, bytes]:
    """PNG and SVG of each figure, by file name."""
    files: dict[str, bytes] = {}
    for figure in figures:
        picture = draw(
            figure.name,
            figure.caption,
            *figure.plots,
            columns=figure.columns,
            height=figure.height,
            width=figure.width,
        )
        files |= {f"{figure.name}.png": picture.png, f"{figure.name}.svg": picture.svg.encode()}
    return files
