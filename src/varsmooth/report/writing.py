"""Runs → a folder with the page, the figures and the tables."""

from collections.abc import Sequence
from pathlib import Path

from varsmooth.errors import require
from varsmooth.report.figures import require_matplotlib
from varsmooth.report.outcomes import Envelope, Outcomes
from varsmooth.report.page import html_page
from varsmooth.report.sections import report_sections

PAGE = "report.html"


def write_report(
    runs: Sequence[Outcomes],
    out: Path,
    envelopes: Sequence[Envelope] = (),
    radii: Sequence[float] | None = None,
) -> Path:
    """Write `report.html`, every figure as .png and .svg, every table as .md, .tex and .csv.

    Returns the page. Files of the same names are replaced.
    """
    require(len(runs) > 0, "a report needs at least one run")
    require_matplotlib()
    sections = report_sections(runs, envelopes, radii)
    files: dict[str, bytes] = {PAGE: html_page(runs, sections).encode()}
    for section in sections:
        for picture in section.pictures:
            files[f"{picture.name}.png"] = picture.png
            files[f"{picture.name}.svg"] = picture.svg.encode()
        for table in section.tables:
            if table is not None:
                files[f"{table.name}.md"] = table.to_markdown().encode()
                files[f"{table.name}.tex"] = table.to_latex().encode()
                files[f"{table.name}.csv"] = table.to_csv().encode()
    out.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (out / name).write_bytes(content)
    return out / PAGE
