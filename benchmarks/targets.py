"""Every target with what was measured, and the tables of the README."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks import curve, stopping
from benchmarks.memory import growth

Results = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """One target: `measured` must be at least `bound`, or at most if `at_most`.

    spread: it is enough that one round reaches the bound.
    """

    what: str
    bound: float
    measured: float
    low: float
    high: float
    at_most: bool = False
    unit: str = "×"
    spread: bool = False

    @property
    def met(self) -> bool:
        if self.at_most:
            return self.measured <= self.bound
        return (self.high if self.spread else self.measured) >= self.bound

    def cells(self) -> list[str]:
        sign = "≤" if self.at_most else "≥"
        return [
            self.what,
            f"{sign} {self.bound:.3g}{self.unit}" + " within the spread" * self.spread,
            f"{self.measured:.3g}{self.unit}",
            f"{self.low:.3g} … {self.high:.3g}",
            "yes" if self.met else "**no**",
        ]


FIXED = (
    ("art default", 2.0, "faster than ART, its default batch size"),
    ("art best", 1.0, "faster than ART, its best settings"),
    ("loop default", 1.8, "faster than the published loop, batch 1000"),
    ("loop best", 1.0, "faster than the published loop, its best settings"),
    ("limit best", 0.9, "fraction of the limit, bare f"),
)


def rows(results: Results) -> Iterator[Row]:
    """All targets, in the order of the benchmarks."""
    for case in results["fixed"]:
        name = f"{case['network']}, N = {case['n']:,}: "
        for way, bound, what in FIXED:
            if way in case["ratio"]:
                row = _row(name + what, bound, case["ratio"][way])
                yield replace(row, unit="×" * (way != "limit best"), spread=bound == 1)
    for case in results["dual"]:
        name = f"{case['model']}: dual over fixed certificate, "
        bound = case["levels_mean"] + 0.5
        visited = f"{case['levels_mean']:.2f} levels visited"
        yield _row(name + visited, bound, case["ratio"], at_most=True)
    if results["dual"]:
        mean = {
            kind: sum(case["ratio"][kind] for case in results["dual"]) / len(results["dual"])
            for kind in ("median", "low", "high")
        }
        yield _row("dual over fixed certificate, mean of the models", 1.6, mean, at_most=True)
    for case in results["deciding"]:
        if case["n"] == max(other["n"] for other in results["deciding"]):
            what = f"{case['model']}, r = {case['radius']}: fewer samples than N = {case['n']:,}"
            quarter, _, three_quarters = case["samples_quartiles"]
            low, high = case["n"] / three_quarters, case["n"] / quarter
            yield Row(what, 30, case["fewer"], low, high)
            faster = case["seconds_fixed"] / case["seconds_per_decision"]
            yield Row(what.replace("fewer samples", "faster"), 20, faster, faster, faster)
    for case in results.get("precision", []):
        yield _row(f"{case['model']}: votes in bfloat16 over float32", 1.3, case["ratio"])
    refuted = sum(case["refuted"] for case in results["deciding"])
    what = "decisions of certify_at that the fixed N refutes"
    yield Row(what, 0, refuted, refuted, refuted, at_most=True, unit="")
    yield from _curve_rows(results.get("curve", []))
    megabytes = growth(results["memory"], "ours")
    what = "peak memory, growth from the smallest to the largest n"
    yield Row(what, 5, megabytes, megabytes, megabytes, at_most=True, unit=" MB")
    yield _row("2 processes over 1 process", 1.8, results["processes"]["ratio"])


def _curve_rows(cases: Sequence[Results]) -> Iterator[Row]:
    for case in cases:
        quarter, _, three_quarters = case["samples_quartiles"]
        low, high = case["n_max"] / three_quarters, case["n_max"] / quarter
        what = f"{case['case']}, whole curve: fewer samples than N = {case['n_max']:,}"
        yield Row(what, 30, case["fewer"], low, high)
        what = f"{case['case']}, whole curve: fraction of the speed of a fixed N per vote"
        yield Row(what, 0.85, case["speed"], case["speed"], case["speed"], unit="")
        if "lost" in case:
            gaps = [-100 * share for share in case["lost"]]
            what = (
                f"{case['case']}: certified accuracy minus that of N = {case['n_max']:,}, worst r"
            )
            yield Row(what, -0.5, min(gaps), min(gaps), max(gaps), unit=" points")
        for row in case["fixed"]:
            pairs = zip(row["accuracy"], row["accuracy_fixed"], strict=True)
            gaps = [100 * (ours - n) for ours, n in pairs]
            what = f"{case['case']}: accuracy minus that of N = {row['n']:,}, worst r"
            if row["n"] < case["n_max"]:  # so many votes are affordable for a few images only
                yield Row(what, 0.0, min(gaps), min(gaps), max(gaps), unit=" points")
            what = f"{case['case']}: radii that N = {row['n']:,} refutes"
            yield Row(what, 0, row["refuted"], row["refuted"], row["refuted"], True, "")


def _row(what: str, bound: float, ratio: dict[str, float], at_most: bool = False) -> Row:
    return Row(what, bound, ratio["median"], ratio["low"], ratio["high"], at_most)


def tables(results: Results) -> dict[str, str]:
    """The generated parts of the README by name."""
    return {
        "machine": f"{results['processor']}, {results['threads']} thread, "
        f"torch {results['torch']}. Minutes: {_minutes(results['seconds'])}.",
        "targets": _table(
            ["what", "target", "measured", "lowest … highest", "met"],
            [row.cells() for row in rows(results)],
        ),
        "fixed": _table(
            ["network", "N", "way", "ms a sample", "over ours", "best batch size, layout"],
            [
                [
                    case["network"],
                    f"{case['n']:,}",
                    way,
                    f"{milliseconds:.3f}",
                    f"{case['ratio'][way]['median']:.2f}",
                    ", ".join(map(str, case["best"][way.split()[0]])) if "best" in way else "",
                ]
                for case in results["fixed"]
                for way, milliseconds in case["milliseconds_per_sample"].items()
            ],
        ),
        "sweep": "\n\n".join(_sweep(results["fixed"])),
        "dual": _table(
            ["model", "levels of the grid", "levels visited", "over fixed", "share of h"],
            [
                [
                    case["model"],
                    str(case["levels_of_grid"]),
                    f"{case['levels_mean']:.2f} (at most {max(case['levels'])})",
                    _spread(case["ratio"]),
                    _spread(case["share_of_selector"]),
                ]
                for case in results["dual"]
            ],
        ),
        "deciding": _table(
            [
                "model, σ, r",
                "images",
                "of these with N too",
                "against N",
                "samples: mean",
                "quartiles",
                "most",
                "fewer",
                "seconds a decision",
                "fixed N",
                "yes / fixed N's yes",
                "only certify_at / only fixed / refuted",
            ],
            [_decisions(case) for case in results["deciding"]],
        ),
        "precision": _table(
            ["model", "faster than float32", "lowest … highest", "votes that differ"],
            [
                [
                    case["model"],
                    f"{case['ratio']['median']:.2f}×",
                    f"{case['ratio']['low']:.2f} … {case['ratio']['high']:.2f}",
                    f"{100 * case['differ']:.1f} %",
                ]
                for case in results.get("precision", [])
            ],
        ),
        "curve": curve.table(results.get("curve", [])),
        "stopping": stopping.table(results.get("stopping", [])),
        "memory": _table(
            ["tool", "n", "batch size", "peak, MB above the loaded model"],
            [
                [row["tool"], f"{row['n']:,}", str(row["batch_size"]), f"{row['megabytes']:.1f}"]
                for row in results["memory"]
            ],
        ),
        "training": _training(results["training"]),
        "cost": _cost(results["cost"]),
    }


def _sweep(cases: Sequence[Results]) -> Iterator[str]:
    for network in dict.fromkeys(case["network"] for case in cases):
        sweep = next(case["sweep"] for case in cases if case["network"] == network)
        sizes = list(dict.fromkeys(size for size, _, _ in sweep["ours"]))
        lines: dict[tuple[str, str], dict[int, str]] = {}
        for tool, settings in sweep.items():
            for size, layout, milliseconds in settings:
                lines.setdefault((tool, layout), {})[size] = f"{milliseconds:.3f}"
        yield _table(
            [f"{network}: ms a sample", "layout", *(f"batch {size}" for size in sizes)],
            [
                [tool, layout, *(times.get(size, "") for size in sizes)]
                for (tool, layout), times in lines.items()
            ],
        )


def _decisions(case: Results) -> list[str]:
    return [
        f"{case['model']}, {case['sigma']}, {case['radius']}",
        str(case["decided"]),
        str(case["images"]),
        f"{case['n']:,}",
        f"{case['samples_mean']:,.0f}",
        " / ".join(f"{value:,.0f}" for value in case["samples_quartiles"]),
        f"{case['samples_max']:,}",
        f"{case['fewer']:.0f}×",
        f"{case['seconds_per_decision']:.2f}",
        f"{case['seconds_fixed']:.1f}",
        f"{case['yes']} / {case['yes_fixed']}",
        f"{case['only_certify_at']} / {case['only_fixed']} / {case['refuted']}",
    ]


def _training(row: Results) -> str:
    speed = row["images_per_second"]
    return (
        f"{speed['ours']:.0f} images a second against {speed['naive']:.0f}: "
        f"{_spread(row['ratio'])}× (batch {row['batch']}, {row['selector_samples']} samples of h, "
        f"{row['classifier_samples']} of f)."
    )


def _cost(row: Results) -> str:
    line = (
        f"seconds = {row['seconds_per_image']:.4f} · images + {row['seconds_per_sample']:.3g} · "
        f"samples, samples = images · (n0 + levels · N); no point lies further than "
        f"{100 * row['largest_residual']:.1f} % off.\n\n"
    )
    return line + _table(
        ["case", "samples", "seconds", "off the line"],
        [
            [
                point["case"],
                f"{point['samples']:,}",
                f"{point['seconds']:.3f}",
                f"{100 * point['residual']:+.1f} %",
            ]
            for point in row["points"]
        ],
    )


def _spread(ratio: dict[str, float]) -> str:
    return f"{ratio['median']:.2f} ({ratio['low']:.2f} … {ratio['high']:.2f})"


def _minutes(seconds: dict[str, float]) -> str:
    return ", ".join(f"{name} {taken / 60:.1f}" for name, taken in seconds.items())


def _table(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def filled(page: str, parts: dict[str, str]) -> str:
    """The page with each part between its markers `<!-- name -->` and `<!-- end -->`."""
    for name, text in parts.items():
        marker = f"<!-- {name} -->"
        if page.count(marker) != 1:
            raise ValueError(f"the README needs one marker {marker}")
        before, _, rest = page.partition(marker)
        _, end, after = rest.partition("<!-- end -->")
        if not end:
            raise ValueError(f"the marker {marker} has no end")
        page = f"{before}{marker}\n\n{text}\n\n{end}{after}"
    return page
