"""One HTML page that needs nothing but itself: figures are embedded, nothing is fetched."""

import base64
import html
import json
from collections.abc import Sequence

from varsmooth.report.figures import Picture
from varsmooth.report.outcomes import Outcomes
from varsmooth.report.sections import Section
from varsmooth.report.summaries import selector_text
from varsmooth.report.tables import Table

_STYLE = """
:root { color-scheme: light; --ink: #1f2328; --faint: #667; --line: #e3e6ea; --accent: #0072B2; }
* { box-sizing: border-box; }
body { margin: 0; background: #f6f7f9; color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
main { max-width: 68rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .25rem; letter-spacing: -.01em; }
.lead { color: var(--faint); margin: 0 0 2rem; }
section { background: #fff; border: 1px solid var(--line); border-radius: 10px;
  padding: 1.25rem 1.5rem 1.5rem; margin: 0 0 1.5rem; }
h2 { font-size: 1.2rem; margin: 0 0 .75rem; }
figure { margin: 0 0 1.5rem; }
figure:last-child { margin-bottom: 0; }
figure img { display: block; width: 100%; max-width: 50rem; height: auto; margin: 0 auto; }
figcaption { color: var(--faint); font-size: .9rem; max-width: 50rem; margin: .5rem auto 0; }
.table figcaption { margin: 0 0 .5rem; max-width: none; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; min-width: 60%; font-size: .9rem;
  font-variant-numeric: tabular-nums; }
th, td { padding: .45rem .55rem; text-align: right; border-bottom: 1px solid var(--line);
  vertical-align: top; white-space: nowrap; }
th { white-space: normal; vertical-align: bottom; font-weight: 600;
  color: var(--faint); border-bottom: 2px solid var(--line); }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
td:first-child { font-weight: 600; white-space: normal; min-width: 9rem; }
td small { display: block; color: var(--faint); font-size: .78rem; }
tbody tr:last-child td { border-bottom: 0; }
ul { margin: 0; padding-left: 1.2rem; } li { margin: .35rem 0; }
li::marker { color: var(--accent); }
ul + figure, figure + ul { margin-top: 1rem; }
details { border-top: 1px solid var(--line); padding: .6rem 0; }
summary { cursor: pointer; } summary span { color: var(--faint); font-size: .9rem; }
pre { background: #f6f7f9; border-radius: 6px; padding: .75rem 1rem; overflow-x: auto;
  font-size: .8rem; }
@media print { body { background: #fff; } section { border: 0; padding: 0; } }
"""


def html_page(runs: Sequence[Outcomes], sections: Sequence[Section]) -> str:
    """The report as a page."""
    title = {"certify": "Certified accuracy", "attack": "Accuracy under attack"}.get(
        runs[0].verb, "Predictions"
    )
    lead = "; ".join(dict.fromkeys(_images_text(run) for run in runs))
    body = "\n".join(_section(section) for section in sections)
    origins = "\n".join(_origin(run) for run in runs)
    return (
        "<!doctype html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'>\n"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>\n"
        f"<title>{html.escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>{html.escape(title)}</h1>\n<p class='lead'>{html.escape(lead)}</p>\n"
        f"{body}\n<section><h2>Where the runs come from</h2>\n{origins}\n</section>\n"
        "</main>\n</body>\n</html>\n"
    )


def _images_text(run: Outcomes) -> str:
    dataset = run.header["dataset"]
    subset = f", subset {dataset['subset']}" if dataset.get("subset") else ""
    return f"{dataset['name']}, {dataset['split']}{subset}: {run.expected} images"


def _section(section: Section) -> str:
    items = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in section.sentences)
    parts = [
        f"<h2>{html.escape(section.heading)}</h2>",
        f"<ul>{items}</ul>" if items else "",
        *(_picture(picture) for picture in section.pictures),
        *(_table(table) for table in section.tables if table is not None),
    ]
    return "<section>" + "\n".join(part for part in parts if part) + "</section>"


def _table(table: Table) -> str:
    """A long table is folded."""
    if len(table.rows) <= 16:
        return table.to_html()
    summary = f"<summary>Table of {len(table.rows)} rows</summary>"
    return f"<details>{summary}{table.to_html()}</details>"


def _picture(picture: Picture) -> str:
    data = base64.b64encode(picture.svg.encode()).decode()
    caption = html.escape(picture.caption)
    return (
        f"<figure><img alt='{caption}' src='data:image/svg+xml;base64,{data}'>"
        f"<figcaption>{caption}</figcaption></figure>"
    )


def _origin(run: Outcomes) -> str:
    facts = {k: run.header.get(k) for k in ("config", "environment", "fingerprints", "dataset")}
    text = html.escape(json.dumps(facts, indent=1, ensure_ascii=False))
    selector = html.escape(selector_text(run.header.get("selector") or {}))
    return (
        f"<details><summary>{html.escape(run.name)} <span>{selector}</span></summary>"
        f"<pre>{text}</pre></details>"
    )
