"""Runs → a page and a folder with its figures and tables."""

import json
import shlex
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from varsmooth._util.files import make_folder, shown, writing_file
from varsmooth._util.typed import as_option
from varsmooth.bounds import Floats
from varsmooth.errors import check
from varsmooth.evaluation import options
from varsmooth.evaluation.headers import EXECUTION, PLACES
from varsmooth.evaluation.report import figures, summaries, summary_text
from varsmooth.evaluation.report.figures import MISSING, Picture, draw, have_matplotlib
from varsmooth.evaluation.report.gallery import Gallery, gallery
from varsmooth.evaluation.report.outcomes import Envelope, Outcomes
from varsmooth.evaluation.report.pages import templates
from varsmooth.evaluation.report.tables import Table
from varsmooth.models.names import is_code
from varsmooth.models.selection import options_for, selector_text

PAGE = "report.html"
OPTIONS = {
    "certify": options.CertifyOptions,
    "predict": options.PredictOptions,
    "attack": options.AttackOptions,
}


@dataclass(frozen=True)
class Section:
    """A heading and its content, in this order; a table without rows is left out."""

    heading: str
    sentences: Sequence[str] = ()
    pictures: Sequence[Picture] = ()
    tables: Sequence[Table] = ()
    gallery: Gallery | None = None


def write_report(
    runs: Sequence[Outcomes],
    out: Path,
    envelopes: Sequence[Envelope] = (),
    radii: Sequence[float] | None = None,
) -> Path:
    """Write `report.html`, every figure as .png and .svg, every table as .md, .tex and .csv.

    Without matplotlib there are no figures. Files of the same names are replaced.

    Args:
        runs: Certify, predict and attack runs; those that share images are compared.
        out: The folder.
        envelopes: Sweeps of certify runs, each shown as the best of its runs at each radius.
        radii: Where tables show certified accuracy.

    Returns:
        The page.
    """
    check(len(runs) > 0, "a report needs at least one run")
    runs = [replace(run, header=_public(run.header)) for run in runs]
    sections = report_sections(runs, envelopes, radii)
    environment = templates("varsmooth.evaluation.report")
    environment.filters |= {
        "command_of": command_of,
        "selector_text": selector_text,
        "json": partial(json.dumps, indent=1, ensure_ascii=False),
    }
    subject, verdict = summary_text.subject_of(runs), summary_text.verdict(runs, radii)
    page = environment.get_template(PAGE).render(
        verdict=verdict, header=subject.header, sections=sections, runs=runs
    )
    files: dict[str, bytes] = {PAGE: page.encode()}
    for section in sections:
        for drawn in section.pictures:
            files |= {f"{drawn.name}.png": drawn.png, f"{drawn.name}.svg": drawn.svg.encode()}
        for table in (table for table in section.tables if table.rows):
            texts = {"md": table.to_markdown(), "tex": table.to_latex(), "csv": table.to_csv()}
            files |= {f"{table.name}.{end}": text.encode() for end, text in texts.items()}
    make_folder(out)
    for name, content in files.items():
        with writing_file(out / name):
            (out / name).write_bytes(content)
    return out / PAGE


def report_sections(
    runs: Sequence[Outcomes], envelopes: Sequence[Envelope], radii: Sequence[float] | None
) -> list[Section]:
    """The report in reading order: certificates, attacks, predictions, images, meaning."""
    certify, predict, attack = ([run for run in runs if run.verb == verb] for verb in OPTIONS)
    check(bool(certify) or not envelopes, "an envelope needs a certify run beside it")
    check(bool(certify) or radii is None, "radii need a certify run")
    for best in envelopes:
        best.check()
    subject = summary_text.subject_of(runs)
    images = gallery(subject, [*certify, *attack, *predict])
    warnings = [*summary_text.cautions(runs, envelopes), *([] if have_matplotlib() else [MISSING])]
    sections = [Section("Before you compare", warnings)] if warnings else []
    if certify:
        sections += _certify(certify, envelopes, radii)
    if attack:
        curves = draw(
            "robust-accuracy",
            "Accuracy under attack against the attacker's budget; ε = 0: no attack. Bands: "
            "pointwise 95 % intervals.",
            lambda axes: figures.plot_robust_accuracy(axes, attack),
        )
        if len(attack) > 1:
            curves += draw(
                "clean-against-robust",
                "Accuracy under attack against accuracy without: up and to the right is better. "
                "Bars: 95 % intervals.",
                lambda axes: figures.plot_clean_against_robust(axes, attack),
            )
        tables = [
            summaries.robust_accuracy_table(attack),
            summaries.difference_table(attack, attack[0]),
        ]
        sections.append(Section("Attacks", summary_text.attacked(attack), curves, tables))
    if predict:
        tables = [summaries.summary_table(predict), summaries.difference_table(predict, predict[0])]
        sections.append(Section("Predictions", summary_text.predicted(predict), (), tables))
    sections.append(Section(f"Images of {subject.name}", images.sentences, gallery=images))
    tested = any("p" in table.columns for section in sections for table in section.tables)
    meaning = [*summary_text.what_holds(runs), summary_text.INTERVALS]
    meaning += [summary_text.P_VALUES] * tested
    return [*sections, Section("What the numbers mean", meaning)]


def _certify(
    runs: Sequence[Outcomes], envelopes: Sequence[Envelope], radii: Sequence[float] | None
) -> list[Section]:
    usual = summaries.round_radii([*runs, *envelopes])
    at: Floats = usual if radii is None else np.array(sorted(radii))
    check(bool((at >= 0).all()), "radii are distances and cannot be negative")
    curves = draw(
        "certified-accuracy",
        "Share of images certifiably correct against every perturbation shorter than r. "
        "Solid: sound; dashed: conditional; dotted: heuristic. Bands: pointwise 95 % intervals. "
        "Vertical lines: the largest radius that the votes of a run can certify.",
        lambda axes: figures.plot_certified_accuracy(axes, runs, envelopes),
    )
    tables = [
        summaries.certified_accuracy_table(runs, envelopes, at),
        summaries.summary_table(runs),
        summaries.regret_table(runs, envelopes, at),
    ]
    sections = [Section("Certified accuracy", (), curves, tables)]
    baseline = summaries.baseline_of(runs)
    differences = summaries.difference_table(runs, baseline, at)
    if differences.rows:
        gaps = draw(
            "differences",
            f"Certified accuracy minus that of {baseline.name} on the same images, in percentage "
            "points. The runs differ at a radius where a band excludes 0.",
            lambda axes: figures.plot_differences(axes, runs, baseline),
        )
        sentences = summary_text.chosen_baseline(runs, baseline)
        what = summary_text.single_text(runs, baseline) if sentences else baseline.name
        sections.append(Section(f"Compared with {what}", sentences, gaps, [differences]))
    return sections + _noise_levels(runs)


def _noise_levels(runs: Sequence[Outcomes]) -> list[Section]:
    """The σ of the images; no section if every run has a single one."""
    known = [run for run in runs if np.isfinite(run.sigmas).all()]
    if all(len(np.unique(run.sigmas)) == 1 for run in known):
        return []
    histograms = draw(
        "sigma",
        "Noise levels of the images, each row scaled to its highest bar. Triangle: median.",
        lambda axes: figures.plot_sigma_distribution(axes, known),
        height=1.2 + 0.75 * len(known),
    )
    accuracy = draw(
        "accuracy-by-sigma",
        "Accuracy of images with similar σ: one point per level, or per tenth of the images. σ "
        "depends on the image, so this is not the effect of σ alone.",
        lambda axes: figures.plot_accuracy_by_sigma(axes, known),
    )
    return [Section("Noise levels", (), histograms + accuracy, [summaries.sigma_table(known)])]


def _public(header: dict[str, Any]) -> dict[str, Any]:
    """The header as a page shows it, without the paths of this machine."""
    config = header["config"].items()
    return header | {"config": {k: shown(v) if k in PLACES and v else v for k, v in config}}


def command_of(header: dict[str, Any]) -> str:
    """The command that makes the same run again: every option that is not the default."""
    config = header["config"]
    if "imported" in config:
        return f"varsmooth report import-tsv {shlex.quote(config['imported'])}"
    with suppress(KeyError, TypeError, ValueError):  # of a damaged header
        about, named = header["selector"], config.get("cascade") or is_code(config["model"])
        if about["selector"] == "cascade" and not named:  # the model may have been tuned since
            config = {**config, **options_for(about), "lam": None}
    words = ["varsmooth", header["verb"]]
    for kind in (options.ModelOptions, options.DataOptions, OPTIONS[header["verb"]]):
        for field in fields(kind):
            value = config.get(field.name)
            where = field.name in EXECUTION and field.name not in ("model", "data", "root")
            if value is not None and value != field.default and not where:
                words += [as_option(field.name), _word(value)]
    return " ".join([*map(shlex.quote, words), "--out RUN"])


def _word(value: Any) -> str:
    """A value as an option takes it: 0.12,0.5 or true."""
    if isinstance(value, list):
        return ",".join(map(_word, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
