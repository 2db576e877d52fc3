"""A result → the folder that is committed: figures, tables, configuration, records, its page.

Nothing in it depends on the machine: no paths, no times. All but the records follows from the
records and facts alone, so it can be made again without sampling.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from reproduce.figures import draw
from reproduce.harness import Context, Evidence, Experiment, Result, ScaleName
from reproduce.records import CONFIG, RECORDS, UNFINISHED, earlier_runs, read_records, write_records
from reproduce.scales import Need, Scale, VotingScale, reductions, resized, shown, sizes_in_use
from reproduce.statistics import pooled
from reproduce.verdicts import MEASURES, rows_of
from varsmooth._util.files import replace_file
from varsmooth.errors import VarsmoothError, check
from varsmooth.evaluation.report.figures import MISSING, have_matplotlib
from varsmooth.models.descriptions import Description, Part

PAGE = "README.md"
KNOWN = "unfinished.json"
"""Facts of an experiment that still runs; commit them with its records to resume elsewhere."""
Config = dict[str, Any]

REQUIRED = {"experiment", "title", "paper", "command", "scale", "sizes", "facts", "models"}
"""Entries that tell the configuration of a result from other files of its name."""

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
DRAWN = "09c11d0"
"""The commit that drew their figures last."""


def run_experiment(
    experiment: Experiment[Any],
    scale_name: ScaleName,
    sizes: Mapping[str, str],
    context: Context,
    out: Path,
    results: Path,
) -> Result:
    """Run an experiment, or continue it, and write its result.

    Runs that a result in the folder `results` holds already, be it unfinished, smaller or of
    another experiment, are not repeated.
    """
    check(have_matplotlib(), MISSING)
    scale = resized(experiment.scales[scale_name], sizes)
    if isinstance(scale, VotingScale):
        context = replace(context, precision=scale.precision)
    needs = experiment.needs(scale)
    if context.train is None:
        lacking = context.lack(needs)
        check(not lacking, f"{experiment.name}: {lacking}")
        for need in needs if experiment.median and scale.median else ():
            part = context.about(need).selector if need.selector else None
            check(
                part is None or part.training.get("scheme") != "gv",
                f"{experiment.name} is about g_v*, but h of {context.model(need)} was trained for "
                "g_v, without the median; with it there are clean, weak-attack and "
                "strong-attack --methods g_v",
            )
    for split, count in images_needed(scale).items():
        if split == "val":
            context.require_val(scale.data)
        context.images(scale.data, split, count)
    evidence = context.evidence
    evidence.earlier = earlier_runs(results)
    about: Config = {
        "scale": scale_name,
        "sizes": asdict(scale),
        "models": {
            need.released if context.models is None else need.level: {
                part: described.fingerprint
                for part in ("classifier", "selector")
                if (described := getattr(context.about(need), part)) is not None
            }
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
    if evidence.runs:
        out.mkdir(parents=True, exist_ok=True)
        write_records(out / RECORDS, evidence.runs)
    write_result(experiment, about, result, out, results)
    close()
    return result


def keep_what_is_there(
    experiment: Experiment[Any], scale: Scale, models: Config, out: Path
) -> None:
    """Raise unless the result to replace is a part of the requested one."""
    files = [str(path) for path in (out, *out.parents) if path.is_file()]
    check(not files, f"{''.join(files)} is a file; name a folder with --out")
    inside = out.resolve() == Path.cwd() or any(out.glob(f"*/{CONFIG}"))
    check(not inside, f"{out} has other things in it; name a folder of its own: {out}/NAME")
    if not (out / CONFIG).is_file():
        return
    there = read_json(out / CONFIG)
    name = there.get("experiment") if isinstance(there, dict) else None
    check(
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
    check(
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


def images_needed(scale: Scale) -> dict[str, int]:
    """How many images of each split an experiment needs, to be checked before any work."""
    used = {entry.name: getattr(scale, entry.name) for entry in sizes_in_use(scale)}
    more = 1 if "closer" in scale.idle else used.get("closer", 1)
    counts = {"test": more * used.get("images", 0), "val": used.get("choice", 0)}
    return {split: count for split, count in counts.items() if count}


def resume(evidence: Evidence, out: Path, about: Config) -> Callable[[], None]:
    """Keep in `out` all results from now on, beside the earlier ones.

    A run is identified by its key. Facts have none: they hold for the same sizes and models.
    Returns a function to call at the end, which removes what is finished, and only that.
    """
    unfinished = read_records(out / UNFINISHED) if (out / UNFINISHED).is_file() else {}
    known = read_json(out / KNOWN) if (out / KNOWN).is_file() else {}
    request = json.loads(json.dumps(about))
    if known.get("asked") == request:
        evidence.facts |= known["facts"]

    def keep() -> None:
        out.mkdir(parents=True, exist_ok=True)
        write_records(out / UNFINISHED, unfinished | evidence.runs)
        replace_file(out / KNOWN, _json({"asked": request, "facts": evidence.facts}))

    def close() -> None:
        left = {name: run for name, run in unfinished.items() if name not in evidence.runs}
        if left and known.get("asked") != request:  # another experiment, or a larger one
            write_records(out / UNFINISHED, left)
            replace_file(out / KNOWN, _json(known))
            return
        for name in (UNFINISHED, KNOWN):
            (out / name).unlink(missing_ok=True)

    evidence.kept = keep
    return close


def results_in(results: Path) -> list[tuple[str, Path]]:
    """The name of the experiment and the folder of each result, whatever the folder's name."""
    there = []
    for path in sorted([*results.glob(f"*/{CONFIG}"), *results.glob(f"*/*/{CONFIG}")]):
        config = read_json(path)
        if isinstance(config, dict) and {*config} >= REQUIRED:  # others are not ours
            there.append((str(config["experiment"]), path.parent))
    return there


def write_again(experiment: Experiment[Any], folder: Path, result: Result, results: Path) -> None:
    """Rewrite figures, tables and the page of a folder."""
    about = read_json(folder / CONFIG) | {"notes": list(result.notes)}
    write_result(experiment, about, result, folder, results)


def write_finished(folder: Path, results: Path) -> None:
    """Rewrite the page of a result whose experiment has left the code."""
    config = read_json(folder / CONFIG)
    sizes = "; ".join(f"{name} {shown(_plain(value))}" for name, value in config["sizes"].items())
    text = f"Sizes: {sizes}. {_models(config)}".strip()
    write_page(results, folder, config, text, FINISHED[config["experiment"]])


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def result_in(experiment: Experiment[Any], folder: Path) -> Result:
    """What follows from the evidence of a folder: nothing is computed; an error names it."""
    config = read_json(folder / CONFIG)
    try:
        records = read_records(folder / RECORDS) if (folder / RECORDS).is_file() else {}
        context = Context(folder, evidence=Evidence(records, config["facts"], complete=True))
        return experiment.run(context, scale_of(experiment, config))
    except VarsmoothError as error:
        raise VarsmoothError(f"{folder}: {error}") from error
    except (ArithmeticError, AssertionError, LookupError, TypeError, ValueError) as error:
        command = f"restore them, or delete the folder and run: {config.get('command')}"
        why = f"its records and {CONFIG} do not fit together ({error})"
        raise VarsmoothError(f"{folder}: {why}; {command}") from error


def scale_of(experiment: Experiment[Any], config: Config) -> Scale:
    """The sizes of a committed result."""
    scale: Scale = experiment.scales[config["scale"]]
    known = {entry.name for entry in sizes_in_use(scale)}
    sizes: dict[str, Any] = {
        key: _plain(value) for key, value in config["sizes"].items() if key in known
    }
    return replace(scale, **sizes)


def write_result(
    experiment: Experiment[Any], about: Config, result: Result, out: Path, results: Path
) -> None:
    """Write everything but the records. about: what was run, see `run_experiment`."""
    small_print = small_print_of(experiment, about)
    files: dict[str, bytes] = {}
    for picture in map(draw, result.figures):
        files |= {f"{picture.name}.png": picture.png, f"{picture.name}.svg": picture.svg.encode()}
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
    out.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (out / name).write_bytes(content)
    write_page(results, out, config, small_print)


def small_print_of(experiment: Experiment[Any], about: Config) -> str:
    """What a reader must know beside a figure: the scale, each reduction, the models' training."""
    less = reductions(scale_of(experiment, about), experiment.scales["paper"])
    scale = f"Scale {about['scale']}" + (f": {'; '.join(less)}" if less else "")
    return f"{scale}. {_models(about)}".strip()


def _models(about: Config) -> str:
    """How the models were trained, and the notes, as sentences."""
    parts = [_sentence(note) for note in about["notes"]]
    if about["trained"]:
        parts.insert(0, "Models (σ_a: training): " + "; ".join(about["trained"]))
    return "".join(f"{part}. " for part in parts).strip()


def _sentence(note: str) -> str:
    """With a capital, unless it starts with a symbol such as g_v."""
    symbol = "_" in note.split()[0]
    return (note[0] if symbol else note[0].upper()) + note[1:].rstrip(".")


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


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise VarsmoothError(f"{path} is missing; restore it") from None
    except ValueError as error:
        raise VarsmoothError(f"{path} is damaged ({error}); restore it") from error


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()


# The page of each result: what it shows, the command, figures, tables, and every case


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
        row.name: f"{row.sentence}: {row.decision}" for row in rows if row.experiment == experiment
    }
    back = "../" * len(Path(experiment).parts)
    if sentences:
        how = f"[the pooled number decides]({back}{PAGE}#how)"
        yield from ("## Cases", "", f"Each has its own 95 % interval; {how}.", "")
    for name, sentence in sentences.items():
        measure = MEASURES[name]
        yield from (f"### {name}", "", f"{sentence}. {measure.number(results)}.")
        yield ""
        if cases := measure.by_case(results):
            yield f"| case | difference, {measure.unit or 'absolute'} | images |"
            yield "|---|---:|---:|"
            for title, estimate in ((title, pooled([gap])) for title, gap in cases.items()):
                text = estimate.text(measure.scale, measure.digits)
                yield f"| {title} | {text} | {estimate.images} |"
            yield ""
