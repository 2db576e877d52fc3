"""Claims: how a verdict is reached, and the page of all results with the claims on top."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reproduce.catalogue import NAMES
from reproduce.experiment import Verdict
from reproduce.writing import CLAIMS, CONFIG
from varsmooth.errors import require
from varsmooth.report.statistics import LEVEL, Difference

PAGE = "README.md"


def verdict_of(differences: Sequence[Difference]) -> Verdict:
    """Whether "this is better than that" held, from one paired difference for each setting.

    held: somewhere the interval lies above 0, nowhere below; not: somewhere below 0, nowhere
    above, or every difference is ≤ 0; partly: anything between. The more settings, the wider
    the intervals that decide (Bonferroni), so that looking often does not make a claim hold.
    """
    if not differences:
        return "untested"
    level = 1 - (1 - LEVEL) / len(differences)
    above = any(gap.interval(level).low > 0 for gap in differences)
    below = any(gap.interval(level).high < 0 for gap in differences)
    if above and not below:
        return "held"
    if not above and (below or all(gap.value <= 0 for gap in differences)):
        return "not"
    return "partly"


def shown_difference(gap: Difference) -> str:
    """`+1.2 [−0.4, +2.9]` percentage points."""
    low, high = gap.interval()
    return f"{_signed(100 * gap.value)} [{_signed(100 * low)}, {_signed(100 * high)}]"


def shown_radius_gap(gap: Difference) -> str:
    """`+0.038 [+0.021, +0.055]`, a difference of average radii."""
    low, high = gap.interval()
    return f"{_signed(gap.value, 3)} [{_signed(low, 3)}, {_signed(high, 3)}]"


def _signed(value: float, digits: int = 1) -> str:
    return f"{value:+.{digits}f}".replace("-", "−")


RULES = """\
## How verdicts are decided

From paired differences: *held* if somewhere the interval lies on the claimed side of 0 and nowhere
on the other, with wider intervals for more settings (Bonferroni); *not* if the reverse, or if no
difference is on the claimed side; *partly* between; *untested* if the models cannot tell.

The rules for the certification experiments were changed after the first results (σ_a = 0.25, 125
test images) had been seen. Each change made a claim harder to uphold, or one of ours:

- Bonferroni was added. Before, "g_v* without attack on h beats σ_s = σ_a" was *held* on one of five
  radii, +4.8 [+0.4, +9.0] points at r = 0.
- "Worse for large D" is judged at r = D. Before, it was judged beyond the largest D, where nothing
  is certified by definition, and was *held*.
- Methods that agree on every image are *untested*. Before, clipping was *not* helpful there.
- Three levels are compared with the exhaustive certificate at equal spending of α. Before, on a
  trial of 20 images, they were larger in 79 of 240 cases, at least in part because α differed.
- The cost of soundness is judged by its interval. Before, a ratio of 0.901 was *held* against 0.9.
"""


def write_page(results: Path) -> Path:
    """`README.md` of the results folder, from the claims and configurations committed there."""
    found = [name for name in NAMES if (results / name / CONFIG).is_file()]
    require(bool(found), f"{results} holds no result yet; run: python -m reproduce NAME")
    lines = [
        _heading(_read(results / found[0] / CONFIG)["command"]),
        "",
        "Made by `python -m reproduce claims` from the folders beside it; do not edit. Intervals",
        "are 95 % over images, differences are paired by image and in percentage points.",
        *_others(results),
        "",
        "| the paper says | where | we measured | verdict | why |",
        "|---|---|---|---|---|",
    ]
    for name in found:
        for claim in _read(results / name / CLAIMS):
            cells = (claim[k] for k in ("statement", "source", "measured", "verdict", "why"))
            row = [cell.replace("|", "\\|").replace("\n", " ") for cell in cells]
            row[1] = f"{row[1]}, [{name}]({name}/)"
            row[3] = f"**{row[3]}**"
            lines.append("| " + " | ".join(row) + " |")
    lines += ["", *RULES.rstrip().splitlines()]
    for name in found:
        lines += ["", *_section(name, _read(results / name / CONFIG))]
    page = results / PAGE
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return page


def _heading(command: str) -> str:
    variant = command.partition("--variant ")[2]
    return f"# Results with the selectors of `--variant {variant}`" if variant else "# Results"


def _others(results: Path) -> list[str]:
    """Where the same was asked of other selectors (`--variant`)."""
    names = sorted(page.parent.name for page in results.glob(f"*/{PAGE}"))
    links = ", ".join(f"[{name}]({name}/{PAGE})" for name in names)
    return [f"The same with other selectors than the paper's: {links}."] if links else []


def _section(name: str, about: dict[str, Any]) -> list[str]:
    lines = [
        f"## {name}: {about['title']} ({about['paper']})",
        "",
        "```sh",
        about["command"],
        "```",
        "",
        about["small_print"],
    ]
    for figure in about["figures"]:
        picture = f"![{figure['name']}]({name}/{figure['name']}.png)"
        lines += ["", picture, "", f"*{figure['caption']}*"]
    tables = [f"[{table['name']}]({name}/{table['name']}.md)" for table in about["tables"]]
    if tables:
        lines += ["", "Tables: " + ", ".join(tables) + "."]
    return lines


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
