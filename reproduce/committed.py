"""A result → the folder that is committed: figures, tables, configuration, records, claims.

Nothing in it depends on the machine: no paths, no times. Figures, tables and claims follow from its
records and facts alone, so they can be made again without sampling.
"""

import csv
import gzip
import io
import json
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from reproduce.clipping import DUAL_GAIN
from reproduce.harness import (
    Context,
    Evidence,
    Experiment,
    Need,
    Result,
    Scale,
    ScaleName,
    Verdict,
    VotingScale,
    reductions,
    resized,
    sizes_in_use,
)
from reproduce.plots import draw
from reproduce.robustness import WEAK_GAIN
from reproduce.selection import CLEAN_GAIN
from reproduce.universal import EXTENDED_GAIN
from reproduce.verdicts import RULES, weakest
from varsmooth.errors import VarsmoothError, require
from varsmooth.files import replace_file
from varsmooth.models.descriptions import Description, Part
from varsmooth.report.figures import MISSING, have_matplotlib
from varsmooth.report.outcomes import Outcomes

CONFIG, CLAIMS, RECORDS, PAGE = "config.json", "claims.json", "records.csv.gz", "README.md"
UNFINISHED, KNOWN = "unfinished.csv.gz", "unfinished.json"
"""Records and facts of an experiment that still runs; commit them to resume on another machine."""
Config = dict[str, Any]


def run_experiment(
    experiment: Experiment[Any],
    scale_name: ScaleName,
    sizes: Mapping[str, str],
    context: Context,
    out: Path,
    results: Path,
) -> Result:
    """Run an experiment, or continue it, and write what it found.

    Runs that a result in the folder `results` holds already, be it unfinished, smaller or of
    another experiment, are not repeated.
    """
    require(have_matplotlib(), MISSING)
    scale = resized(experiment.scales[scale_name], sizes)
    if isinstance(scale, VotingScale):
        context = replace(context, precision=scale.precision)
    needs = experiment.needs(scale)
    if context.train is None:
        lacking = context.lack(needs)
        require(not lacking, f"{experiment.name}: {lacking}")
        for need in needs:
            part = context.about(need).selector if need.selector and experiment.median else None
            require(
                part is None or part.training.get("scheme") != "gv",
                f"{experiment.name} is about g_v*, but h of {context.model(need)} was trained for "
                "g_v, without the median; with it there are clean and weak-attack",
            )
    for split, count in images_asked(scale).items():
        if split == "val":
            context.apart(scale.data)
        context.images(scale.data, split, count)
    evidence = context.evidence
    evidence.earlier = earlier_runs(results)
    about: Config = {
        "scale": scale_name,
        "sizes": asdict(scale),
        "models": {
            need.released if context.models is None else need.level: _fingerprints(
                context.about(need)
            )
            for need in needs
        },
        **context.contents(scale.data),
    }
    keep_what_is_there(experiment, scale, about["models"], out)
    close = resume(evidence, out, about)
    result = experiment.run(context, scale)
    words = ["python -m reproduce", experiment.name]
    words += [f"--{key.replace('_', '-')} {text}" for key, text in sizes.items()]
    words += ["--scale", scale_name] if scale_name != "cpu" else []
    words += ["--variant", context.variant] if context.variant is not None else []
    words += ["--models", "YOURS"] if context.models is not None and scale_name == "cpu" else []
    about |= {
        "command": " ".join(words),
        "trained": [f"{need.level}: {_trained(context.about(need), need)}" for need in needs],
        "notes": list(result.notes),
        "facts": context.evidence.facts,
        "versions": {name: metadata.version(name) for name in ("varsmooth", "torch", "numpy")},
    }
    write_result(experiment, about, result, out)
    if evidence.runs:
        _write_records(out / RECORDS, evidence.runs)
    close()
    return result


def keep_what_is_there(
    experiment: Experiment[Any], scale: Scale, models: Config, out: Path
) -> None:
    """Refuse to replace anything but a part of what is asked: it may only grow."""
    files = [str(path) for path in (out, *out.parents) if path.is_file()]
    require(not files, f"{''.join(files)} is a file; name a folder with --out")
    inside = out.resolve() == Path.cwd() or any(out.glob(f"*/{CONFIG}"))
    require(not inside, f"{out} has other things in it; name a folder of its own: {out}/NAME")
    if not (out / CONFIG).is_file():
        return
    there = _read(out / CONFIG)
    name = there.get("experiment") if isinstance(there, dict) else None
    require(
        name == experiment.name,
        f"{out} holds {'a result of ' + str(name) if name else 'something else'}; choose another "
        "folder with --out",
    )
    now = json.loads(json.dumps(asdict(scale)))
    less = [
        entry.metadata["what"]
        for entry in sizes_in_use(scale)
        if entry.name not in scale.idle
        and _loses(entry.name, now[entry.name], there["sizes"].get(entry.name, now[entry.name]))
    ]
    if any(there["models"][name] != models[name] for name in {*there["models"]} & {*models}):
        less.append("other models")
    require(
        not less,
        f"{out} holds another or a larger result ({'; '.join(less)}); choose another folder with "
        "--out, or delete it first",
    )


def _loses(name: str, now: Any, before: Any) -> bool:
    """Whether values are left out or replaced, or there are fewer images, steps or draws."""
    if isinstance(before, list):
        return not {*before} <= {*now}
    counts = isinstance(before, int) and name != "seed"
    return bool(now < before if counts else now != before)


def images_asked(scale: Scale) -> dict[str, int]:
    """How many images of which split an experiment will ask for, to be checked before any work."""
    used = {entry.name: getattr(scale, entry.name) for entry in sizes_in_use(scale)}
    more = 1 if "closer" in scale.idle else used.get("closer", 1)
    asked = {"test": more * used.get("images", 0), "val": used.get("choice", 0)}
    return {split: count for split, count in asked.items() if count}


def resume(evidence: Evidence, out: Path, about: Config) -> Callable[[], None]:
    """Keep in `out` all that is found from now on, beside what was found before.

    A run has a key and stands for itself. Facts have none: they hold for the same sizes and models.
    Returns what is to be called at the end: it forgets what is finished, and only that.
    """
    begun = read_records(out / UNFINISHED) if (out / UNFINISHED).is_file() else {}
    known = _read(out / KNOWN) if (out / KNOWN).is_file() else {}
    asked = json.loads(json.dumps(about))
    if known.get("asked") == asked:
        evidence.facts |= known["facts"]

    def keep() -> None:
        out.mkdir(parents=True, exist_ok=True)
        _write_records(out / UNFINISHED, begun | evidence.runs)
        replace_file(out / KNOWN, _json({"asked": asked, "facts": evidence.facts}))

    def close() -> None:
        left = {name: run for name, run in begun.items() if name not in evidence.runs}
        if left and known.get("asked") != asked:  # another experiment, or a larger one
            _write_records(out / UNFINISHED, left)
            replace_file(out / KNOWN, _json(known))
            return
        for name in (UNFINISHED, KNOWN):
            (out / name).unlink(missing_ok=True)

    evidence.kept = keep
    return close


def _write_records(path: Path, runs: Mapping[str, Outcomes]) -> None:
    replace_file(path, compact_records(runs.values()))


def has_claims(folder: Path) -> bool:
    """Whether a folder holds a result with claims to judge; others have no evidence of claims."""
    return not (folder / CLAIMS).is_file() or bool(_read(folder / CLAIMS))


def results_in(results: Path) -> list[tuple[str, Path]]:
    """The name of the experiment and the folder of each result, whatever the folder's name."""
    found = []
    for path in sorted(results.glob(f"*/{CONFIG}")):
        config = _read(path)
        if isinstance(config, dict) and {*config} >= REQUIRED:  # others are not ours
            found.append((str(config["experiment"]), path.parent))
    return found


def write_again(experiment: Experiment[Any], folder: Path, result: Result) -> None:
    """Rewrite figures, tables and claims of a folder."""
    about = _read(folder / CONFIG) | {"notes": list(result.notes)}
    write_result(experiment, about, result, folder)


def result_in(experiment: Experiment[Any], folder: Path) -> Result:
    """What follows from the evidence of a folder; an error names the folder."""
    config = _read(folder / CONFIG)
    try:
        return result_of(experiment, folder, config)
    except VarsmoothError as error:
        raise VarsmoothError(f"{folder}: {error}") from error
    except (ArithmeticError, AssertionError, LookupError, TypeError, ValueError) as error:
        command = f"restore them, or delete the folder and run: {config.get('command')}"
        why = f"its records and {CONFIG} do not fit together ({error})"
        raise VarsmoothError(f"{folder}: {why}; {command}") from error


def result_of(experiment: Experiment[Any], folder: Path, config: Config) -> Result:
    """What follows from the evidence of a folder; nothing is computed."""
    records = read_records(folder / RECORDS) if (folder / RECORDS).is_file() else {}
    context = Context(folder, evidence=Evidence(records, config["facts"], complete=True))
    return experiment.run(context, scale_of(experiment, config))


def scale_of(experiment: Experiment[Any], config: Config) -> Scale:
    """The sizes of a committed result."""
    scale: Scale = experiment.scales[config["scale"]]
    known = {entry.name for entry in fields(scale)}
    sizes: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in config["sizes"].items()
        if key in known
    }
    return replace(scale, **sizes)


def write_result(experiment: Experiment[Any], about: Config, result: Result, out: Path) -> None:
    """Write everything but the records. about: what was asked, see `run_experiment`."""
    small_print = small_print_of(experiment, about)
    files: dict[str, bytes] = {}
    for figure in result.figures:
        picture = draw(
            figure.name,
            figure.caption,
            *figure.plots,
            legend=figure.legend,
            height=figure.height,
            columns=figure.columns,
            footnote=f"{figure.caption} {small_print}",
        )
        files[f"{picture.name}.png"] = picture.png
        files[f"{picture.name}.svg"] = picture.svg.encode()
    for table in result.tables:
        full = replace(table, caption=f"{table.caption} {small_print}")
        files[f"{table.name}.md"] = full.to_markdown().encode()
        files[f"{table.name}.csv"] = full.to_csv().encode()
    config = {
        "experiment": experiment.name,
        "paper": experiment.paper,
        "title": experiment.title,
        **{key: about[key] for key in ("command", "scale", "sizes", "trained", "notes", "facts")},
        "figures": [{"name": p.name, "caption": p.caption} for p in result.figures],
        "tables": [{"name": t.name, "caption": t.caption} for t in result.tables],
        **{key: about[key] for key in ("models", "versions")},
    }
    files[CONFIG] = _json(config)
    files[CLAIMS] = _json([asdict(claim) for claim in result.claims])
    out.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (out / name).write_bytes(content)


def small_print_of(experiment: Experiment[Any], about: Config) -> str:
    """What a reader must know beside a figure: the scale, each reduction, the models' training."""
    less = reductions(scale_of(experiment, about), experiment.scales["paper"])
    parts = [f"Scale {about['scale']}" + (f": {'; '.join(less)}" if less else "")]
    if about["trained"]:
        parts.append("Models (σ_a: training): " + "; ".join(about["trained"]))
    return ". ".join([*parts, *(_sentence(note) for note in about["notes"])]) + "."


def _sentence(note: str) -> str:
    """With a capital, unless it starts with a symbol such as g_v."""
    symbol = "_" in note.split()[0]
    return (note[0] if symbol else note[0].upper()) + note[1:].rstrip(".")


def _fingerprints(model: Description) -> dict[str, str | None]:
    return {
        part: described.fingerprint
        for part in ("classifier", "selector")
        if (described := getattr(model, part)) is not None
    }


def _trained(about: Description, need: Need) -> str:
    """`f 25 epochs (paper: 400), h (KL per dimension) 20 epochs of 10000 images (paper: 200)`."""
    words = [_epochs("f", about.classifier, 400)]
    words += [_epochs("h", about.selector, 200)] if need.selector else []
    return ", ".join(filter(None, words)) or "unknown"


def _epochs(letter: str, part: Part | None, full: int) -> str:
    if part is None or not part.training:
        return ""
    epochs = part.training["epochs"]
    subset = part.training.get("images", part.training.get("subset"))  # its older name
    images = subset or part.training.get("images_per_epoch")
    same, pool = "the same " * bool(subset), part.training.get("pool")
    return (
        f"{letter}{_unlike_the_paper(part) if letter == 'h' else ''} {epochs} epochs"
        + (f" of {same}{images} images" if images else "")
        + (f" (paper: {full})" if epochs != full else "")
        + (f", f tabulated for {pool} noise draws" if pool else "")
    )


def _unlike_the_paper(part: Part) -> str:
    """` (confidence, objective radius)`: how network and objective of h differ from the paper's."""
    objective = part.training.get("objective", "variational")
    words = [part.network] if part.network == "confidence" else []
    if objective != "variational":
        words.append(f"objective {objective}")
    elif part.training.get("reduction") == "mean":
        words.append("KL per dimension; paper: sum")
    return f" ({', '.join(words)})" if words else ""


def compact_records(runs: Iterable[Outcomes]) -> bytes:
    """One line per run and image, every digit: what figures, tables and claims are made of."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = ("id", "label", "prediction", "radius", "sigma", "eps")
    writer.writerow(["run", "key", "guarantee", *columns, "clean_prediction", "clean_sigma"])
    for run in runs:
        values = zip(
            run.ids.tolist(),
            run.labels.tolist(),
            run.predictions.tolist(),
            run.radii.tolist(),
            run.sigmas.tolist(),
            run.eps.tolist(),
            run.clean_predictions.tolist(),
            run.clean_sigmas.tolist(),
            strict=True,
        )
        for row in values:
            cells = ["" if cell != cell else cell for cell in row]  # NaN: not a column of this run
            key = run.header.get("key", "")
            writer.writerow([run.name, key, run.guarantee or "", *cells])
    return gzip.compress(text.getvalue().encode(), mtime=0)


def read_records(path: Path) -> dict[str, Outcomes]:
    """Compact records as runs by name."""
    try:
        return {name: _outcomes(name, each) for name, each in _lines(path).items()}
    except (OSError, EOFError, LookupError, TypeError, ValueError, zlib.error) as error:
        raise VarsmoothError(f"{path} is damaged ({error}); restore it or delete it") from error


def earlier_runs(results: Path) -> dict[str, Outcomes]:
    """The runs of every result in a folder, by key; runs without a key stand for none."""
    places = [f"{depth}{name}" for name in (RECORDS, UNFINISHED) for depth in ("*/", "*/*/")]
    found: dict[str, Outcomes] = {}
    for path in (path for place in places for path in sorted(results.glob(place))):
        try:
            runs = read_records(path)
        except VarsmoothError as error:
            print(f"warning: {error}; its runs are not used", file=sys.stderr)
            continue
        found |= {key: run for run in runs.values() if (key := run.header["key"])}
    return found


def _lines(path: Path) -> dict[str, list[dict[str, str]]]:
    lines: dict[str, list[dict[str, str]]] = {}
    for line in csv.DictReader(io.StringIO(gzip.decompress(path.read_bytes()).decode())):
        lines.setdefault(line["run"], []).append(line)
    return lines


def _outcomes(name: str, lines: Sequence[dict[str, str]]) -> Outcomes:
    kind = {key: bool(lines[0][key]) for key in ("guarantee", "eps")}
    header = {
        "name": name,
        "key": lines[0].get("key", ""),
        "verb": "certify" if kind["guarantee"] else "attack" if kind["eps"] else "predict",
        "config": {},
        "dataset": {"name": "", "split": "test", "size": len(lines)},
    }
    rows = [
        {
            "id": int(line["id"]),
            "label": int(line["label"]),
            "prediction": int(line["prediction"]),
            "clean_prediction": int(line["clean_prediction"]),
            "guarantee": line["guarantee"],
            **{key: float(line[key]) for key in ("radius", "sigma", "eps") if line[key]},
            "sigma_clean": float(line["clean_sigma"]) if line["clean_sigma"] else None,
        }
        for line in lines
    ]
    return Outcomes.of(header, rows)


WRITTEN = "Generated by `python -m reproduce claims`"
"""Begins a summary page; another README.md is not replaced."""

REQUIRED = {"experiment", "title", "paper", "command", "scale", "sizes", "facts", "models"}
"""Entries that tell the configuration of a result from other files of its name."""


def is_page_of_others(page: Path) -> bool:
    return page.is_file() and WRITTEN not in page.read_text(encoding="utf-8")


def write_pages(results: Path, found: Sequence[tuple[Experiment[Any], Path]]) -> Path:
    """A page for each result, and one with a line for each claim."""
    rows, every = [], list[dict[str, Any]]()
    for experiment, folder in found:
        config, claims = _read(folder / CONFIG), _read(folder / CLAIMS)
        every += claims
        (folder / PAGE).write_text(_experiment_page(experiment, config, claims), encoding="utf-8")
        link = f"[{folder.name}]({folder.name}/{PAGE})"
        rows += [
            _row(c["statement"], c["source"], _bold(c), c["difference"], c["number"], link)
            for c in claims
        ]
    rows += [row for headline in HEADLINES if (row := _headline(headline, every))]
    commands = [_read(folder / CONFIG)["command"] for _, folder in found]
    variants = {command.partition("--variant ")[2] for command in commands}
    variant = variants.pop() if len(variants) == 1 else ""
    own = any("--models" in command for command in commands)
    whose = "Models of --models are yours." if own else "All models are ours."
    lines = [
        f"# Results with the selectors of `--variant {variant}`" if variant else "# Results",
        "",
        f"{WRITTEN} from the folders beside it; do not edit. One",
        "line per claim with its most telling number; the experiment's page has all numbers,",
        "figures and tables. The number is the difference named before it; positive values",
        "support the claim; differences in accuracy are in percentage points.",
        "",
        f"{whose} The paper's loss of h has the KL divergence summed over dimensions,",
        "ours has its mean, so equal λ do not mean the same; docs/guides/reproduce.md lists what",
        "else differs and what the paper leaves open. Fig. 1, 3 and 4a and the figure of App. D",
        "are diagrams; Table 1 lists parameters, which `certified` uses.",
        *_others(results),
        "",
        _row("claim", "where", "verdict", "difference", "number", "experiment"),
        "|---|---|---|---|---|---|",
        *rows,
        "",
        *_without_claims(results),
        "## How verdicts are decided",
        "",
        RULES,
    ]
    page = results / PAGE
    page.write_text("\n".join(lines), encoding="utf-8")
    return page


class Headline(NamedTuple):
    """What the paper claims of several figures together, and our claims that it rests on."""

    statement: str
    source: str
    parts: Sequence[str]
    figures: str


HEADLINES = (
    Headline(
        "Variational smoothing offers better empirical robustness than conventional smoothing",
        "abstract, contributions, conclusion",
        (WEAK_GAIN, DUAL_GAIN, EXTENDED_GAIN),
        "Fig. 6b, 8 and App. C",
    ),
    Headline(
        "In clean and robust accuracy variational smoothing performs better than the baselines",
        "discussion",
        (CLEAN_GAIN, WEAK_GAIN, DUAL_GAIN, EXTENDED_GAIN),
        "Fig. 6a, 6b, 8 and App. C",
    ),
)


def _headline(headline: Headline, every: Sequence[dict[str, Any]]) -> str:
    """A row for a headline, from the verdicts on what it rests on; empty if none of it was run."""
    claims = [claim for claim in every if claim["statement"] in headline.parts]
    if not claims:
        return ""
    verdicts: list[Verdict] = [claim["verdict"] for claim in claims]
    counts = Counter(verdicts)
    held, failed = counts["confirmed"], counts["refuted"] + counts["partly"]
    most = max(claim["images"] for claim in claims)
    return _row(
        headline.statement,
        headline.source,
        _bold({"verdict": "partly" if held and failed else weakest(verdicts), "cases": ""}),
        "",
        "of the claims it rests on: "
        + ", ".join(f"{count} {word}" for word, count in counts.items())
        + (f"; about {most:,} images to decide the last of them" if most else ""),
        f"the claims above on {headline.figures}, as far as they were run",
    )


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _bold(claim: dict[str, Any]) -> str:
    verdict = claim["verdict"]
    bold = verdict in ("confirmed", "refuted", "partly")
    return _decided(claim, f"**{verdict}**" if bold else verdict)


def _decided(claim: dict[str, Any], verdict: str) -> str:
    """The verdict, and how many cases hold or fail."""
    return f"{verdict}, {claim['cases']}" if claim["cases"] else verdict


def _others(results: Path) -> list[str]:
    """Where the same was asked of other selectors (`--variant`)."""
    names = sorted(
        path.parent.parent.name
        for path in results.glob(f"*/*/{CONFIG}")
        if str(_read(path)["command"]).endswith(f"--variant {path.parent.parent.name}")
    )
    links = ", ".join(f"[{name}]({name}/{PAGE})" for name in dict.fromkeys(names))
    return [f"The same with other selectors: {links}."] if links else []


def _without_claims(results: Path) -> list[str]:
    """Pages beside those above that judge nothing."""
    pages = sorted(results.glob(f"*/{PAGE}"))
    folders = [
        page.parent
        for page in pages
        if not any(page.parent.glob(f"*/{PAGE}"))
        and not ((page.parent / CLAIMS).is_file() and has_claims(page.parent))
    ]
    links = ", ".join(f"[{folder.name}]({folder.name}/{PAGE})" for folder in folders)
    return [f"Results without claims: {links}.", ""] if links else []


def _experiment_page(
    experiment: Experiment[Any], about: Config, claims: Sequence[dict[str, Any]]
) -> str:
    """Command, sizes, figures and tables of one experiment, and its claims with every number."""
    lines = [
        f"# {experiment.name}: {about['title']} ({about['paper']})",
        "",
        "```sh",
        about["command"],
        "```",
        "",
        small_print_of(experiment, about),
    ]
    for figure in about["figures"]:
        lines += ["", f"![{figure['name']}]({figure['name']}.png)", "", f"*{figure['caption']}*"]
    tables = [f"[{table['name']}]({table['name']}.md)" for table in about["tables"]]
    lines += ["", "Tables: " + ", ".join(tables) + "."] if tables else []
    if claims:
        lines += [
            "",
            "Each difference has its own 95 % interval here. Wider intervals, which allow for all "
            "comparisons of a claim, decide ([how](../README.md#how-verdicts-are-decided)); the "
            "one that did, or would with the fewest images, is named last.",
        ]
    for claim in claims:
        lines += [
            "",
            f"## {claim['statement']}: {_decided(claim, claim['verdict'])}",
            "",
            f"- where: {claim['source']}",
            *_measured(claim),
            *([f"- decisive: {claim['number']}"] if claim["difference"] else []),
            *([f"- notes: {claim['why']}"] if claim["why"] else []),
        ]
    return "\n".join(lines) + "\n"


def _measured(claim: dict[str, Any]) -> list[str]:
    """What was measured, with a line for each difference."""
    what, line = claim["difference"], f"- measured: {claim['measured']}"
    if not what:
        return [line]
    unit, _, each = claim["measured"].removeprefix(what).partition(": ")
    return [f"- measured: {what}{unit}", *(f"    - {one}" for one in each.split("; "))]


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise VarsmoothError(f"{path} is missing; restore it") from None
    except ValueError as error:
        raise VarsmoothError(f"{path} is damaged ({error}); restore it") from error


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()
