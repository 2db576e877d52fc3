"""The tables of the README, from the results of the last run."""

from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks import curve, stopping

Results = dict[str, Any]


def tables(results: Results) -> dict[str, str]:
    """The generated parts of the README by name."""
    return {
        "machine": f"{results['processor']}, {results['threads']} thread, "
        f"torch {results['torch']}. Minutes: {_minutes(results['seconds'])}.",
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
        "processes": f"2 processes over 1: {_spread(results['processes']['ratio'])}×.",
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


def fill_template(page: str, parts: dict[str, str]) -> str:
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
