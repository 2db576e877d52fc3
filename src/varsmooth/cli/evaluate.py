"""`varsmooth predict`, `certify`, `attack` and `verify`: a data set through the library."""

import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from varsmooth._util.typed import as_option
from varsmooth.cli.feedback import announce, command, conclude, resolve_images, say
from varsmooth.cli.parser import WrongUsage, as_typed
from varsmooth.defaults import BATCH_SIZE
from varsmooth.errors import VarsmoothError
from varsmooth.evaluation.options import (
    AttackOptions,
    CertifyOptions,
    DataOptions,
    ModelOptions,
    PredictOptions,
    RunOptions,
    VerifyOptions,
    WorkerOptions,
)
from varsmooth.evaluation.records import Run
from varsmooth.models.descriptions import Description, describe
from varsmooth.models.names import is_external
from varsmooth.models.selection import resolve_selector
from varsmooth.types import Count, Device


def predict(
    images: list[str],
    /,
    *,
    model: ModelOptions,
    data: DataOptions,
    options: PredictOptions,
    out: Path | None = None,
    name: str | None = None,
    batch_size: Count = BATCH_SIZE,
    device: Device = "auto",
    workers: WorkerOptions,
) -> None:
    """Predict the class of images by majority vote under noise, or abstain.

    With --out the predictions become a run; rerun the same command to resume it.

    examples:
      varsmooth predict photo.png --model cifar10-0.25 --resize 32
      varsmooth predict --model my_model/ --data cifar10 --out runs/predictions

    Args:
        images: your own images or folders, instead of --data
        out: the folder of a run; without it the predictions are printed and not kept
    """
    if images and data.data is not None:
        raise WrongUsage(f"{images[0]} and --data both name images; give one of them")
    if out is None and (for_run := _changed(workers) + ["--name"] * (name is not None)):
        raise WrongUsage(f"{' and '.join(for_run)} applies to a run; give its folder with --out")
    if out is not None and len(images) > 1:
        raise WrongUsage("a run has one data set; put the images into one folder")
    about, chosen = _describe(model), [replace(data, data=path) for path in images] or [data]
    chosen = [resolve_images(model.model, one, about=about) for one in chosen]
    _announce("predict", model, about, chosen, device, out, n=options.n, alpha=options.alpha)
    if out is None:
        _print_predictions(model, chosen, options, batch_size, device)
        return
    from varsmooth.evaluation.predict import predict_dataset

    run = RunOptions(out, name, batch_size, device, **vars(workers))
    _conclude(predict_dataset(model, chosen[0], options, run))


def _print_predictions(
    model: ModelOptions,
    chosen: list[DataOptions],
    options: PredictOptions,
    batch_size: int,
    device: Device,
) -> None:
    from varsmooth._util.processes import choose_device
    from varsmooth.evaluation.build import build
    from varsmooth.evaluation.predict import predict_photos

    built = build(model, choose_device(device))
    for data in chosen:
        for file, answer in predict_photos(built, data, options, batch_size):
            best = max(answer.counts)
            number = answer.counts.index(best)
            name = built.class_names[number] if built.class_names else f"class {number}"
            one = data.data is not None and Path(data.data).name == file
            shown = file if len(chosen) == 1 else data.data if one else f"{data.data}/{file}"
            verdict = f"abstains, most votes for {name}" if answer.prediction < 0 else name
            votes = f"{best} of {sum(answer.counts)} votes"
            say(f"{shown}  {verdict}  σ {answer.sigma:.3g}  {votes}")


def certify(
    *,
    model: ModelOptions,
    data: DataOptions,
    options: CertifyOptions,
    run: RunOptions,
    estimate: bool = False,
) -> None:
    """Certify every image: a class and an ℓ2 radius within which it cannot change.

    Rerun the same command to resume an interrupted run.

    examples:
      varsmooth certify --model cifar10-0.25 --sigma 0.25 --out runs/fixed
      varsmooth certify --model my_model/ --lam 0.5 --clip 0.12,0.5 --levels 8 --out runs/dual
      varsmooth certify --model zoo:make --sigma 0.5 --data photos/ --subset 0:100 --out runs/own
      varsmooth certify --model cifar10-0.25 --data cifar10 --at 0,0.25,0.5,0.75,1 --out runs/curve
      varsmooth certify --model my_model/ --data cifar10 --devices 4 --out runs/four
      torchrun --nproc-per-node 4 -m -- varsmooth certify --model my_model/ --out runs/four
      varsmooth certify --model my_model/ --data cifar10 --shard 3/32 --out runs/shared
      varsmooth certify --model my_model/ --data cifar10 --n 100000 --out runs/x --estimate true

    Args:
        estimate: measure here what the run will cost, and compute nothing else
    """
    about = _describe(model)
    data = resolve_images(model.model, data, about=about)
    names = ("method", "at", "until", "n_max") if options.n_max else ("method", "n")
    shown = {name: getattr(options, name) for name in (*names, "alpha")}
    _announce("certify", model, about, [data], run.device, run.out, **shown)
    from varsmooth.evaluation.certify import Certifying, certify_dataset

    if estimate:
        from varsmooth.evaluation.engines.shards import Shard
        from varsmooth.evaluation.estimate import estimate as measure_cost
        from varsmooth.evaluation.runner import Job

        cost = measure_cost(Job(Certifying(options), model, data, run))
        workers = run.devices * Shard.parse(run.shard).count
        conclude(cost.text(workers if workers > 1 else 8))
        return

    named = model.model if is_external(model.model) else None
    verify = command("verify", run.out, model=named, trust=model.trust)
    _conclude(certify_dataset(model, data, options, run), verify)


def _conclude(run: Run, *commands: str) -> None:
    """The result of a run, and the commands that usually follow."""
    from varsmooth.evaluation.report.summary_text import next_command, result

    rows = run.rows()
    conclude(result(run, rows), next_command(run, rows), *commands)


def attack(
    *,
    model: ModelOptions,
    data: DataOptions,
    options: AttackOptions,
    run: RunOptions,
    against: Path | None = None,
) -> None:
    """Attack every image, or look for a counterexample inside every certified radius of a run.

    Images that are wrong or abstained on without an attack are skipped. With --against the
    smoothed classifier and the images are those of the certification run, and the command fails
    (exit code 1) if it finds a `sound` certificate to be false; α allows a small share of these.

    examples:
      varsmooth attack --model cifar10-0.25 --eps 0.25,0.5 --steps 40 --out runs/strong
      varsmooth attack --model cifar10-0.25 --eps 0.3 --kind weak --save-images true --out runs/weak
      varsmooth attack --against runs/dual --restarts 3 --out runs/search

    Args:
        against: a certification run whose radii to search
    """
    if against is not None:
        _search(against, model, data, options, run)
        return
    if options.eps is None:
        raise WrongUsage("give the attack a budget with --eps, or a run to search with --against")
    about = _describe(model)
    data = resolve_images(model.model, data, about=about)
    shown = {name: getattr(options, name) for name in ("eps", "kind", "steps")}
    _announce("attack", model, about, [data], run.device, run.out, **shown)
    from varsmooth.evaluation.attack import attack_dataset

    _conclude(attack_dataset(model, data, options, run))


def _search(
    against: Path, model: ModelOptions, data: DataOptions, options: AttackOptions, run: RunOptions
) -> None:
    changed = _changed(replace(model, model=None, trust=None)) + _changed(data)
    changed += ["--eps"] * (options.eps is not None)
    if changed:
        raise WrongUsage(f"--against takes these from its run; leave out {', '.join(changed)}")
    Run.open(against)
    announce(f"attack the certificates of {against}", run.device, steps=options.steps, out=run.out)
    from varsmooth.evaluation.attack import search_run
    from varsmooth.evaluation.report.summary_text import result

    attacked = search_run(against, options, run, model.model, model.trust)
    rows = attacked.rows()
    conclude(result(attacked, rows), command("report", against))
    false = [row["id"] for row in rows if row["violated"] and row["guarantee"] == "sound"]
    if false:
        ids = ", ".join(map(str, false[:10])) + (" and more" if len(false) > 10 else "")
        raise VarsmoothError(f"{len(false)} sound certificates are false (images {ids})")


def verify(runs: list[str], /, *, options: VerifyOptions) -> None:
    """Check that a run is complete and follows from its evidence, its model and its images.

    With --replay all evidence is drawn again from the recorded seed and must be the same: every
    count, the samples of the selector, the shares of alpha. With another torch, platform or device
    than the run's, 0.2 % of the votes may differ (2 % in bfloat16). With --resample some images are
    repeated with fresh noise: votes are compared by Fisher's exact test, selector samples by the
    Kolmogorov–Smirnov test, and all radii together with those of five fresh certificates each, so
    that counts raised by one standard deviation on 40 images are noticed. A faithful run fails
    with probability at most 0.001.

    Exit code 0: every requested check was made and holds; 1: a contradiction; 2: wrong usage;
    3: it holds as far as it was checked, and something was NOT CHECKED.

    examples:
      varsmooth verify runs/dual
      varsmooth verify runs/dual --replay 20
      varsmooth verify runs/dual --replay all --resample 20
      varsmooth verify received/run --model received/model --data received/photos --replay 20
      varsmooth verify runs/shard-1 runs/shard-2 runs/shard-3

    Args:
        runs: the folder of a certification run, or the folders that its shards wrote
    """
    if not runs:
        raise WrongUsage("name a run: varsmooth verify RUN")
    for folder in runs:
        Run.open(folder)
    run = " ".join(runs)
    names = ("model", "data", "replay", "resample")
    shown = {name: getattr(options, name) or None for name in names}
    announce(f"verify {run}", options.device, **shown)
    from varsmooth.cli import VERBS
    from varsmooth.evaluation.report.summary_text import next_command
    from varsmooth.evaluation.verify import FALSE_ALARM, verify_run

    checked = verify_run(*runs, **vars(options))
    if checked.problems:
        more = f"; and {len(checked.problems) - 5} more" if len(checked.problems) > 5 else ""
        raise VarsmoothError(f"{run} fails verification: {'; '.join(checked.problems[:5])}{more}")
    count = len(checked.rows)
    lines = [f"{count} rows, one for each image, follow from their evidence and settings"]
    if not checked.unchecked:
        lines.append("model and images are those of the run")
    lines += checked.notes
    if checked.replayed:
        lines.append(f"{checked.replayed} images replayed from the recorded seed, in whole blocks")
    if checked.p_values:
        lines.append(
            f"{checked.resampled} images repeated with fresh noise: {len(checked.p_values)} tests, "
            f"smallest p-value {min(checked.p_values.values()):.2g}, none below the alarm at "
            f"{checked.threshold:.2g}; their radii together: p-value {checked.pooled:.2g} (a false "
            f"alarm has probability ≤ {FALSE_ALARM:g})"
        )
    lines += [f"NOT CHECKED: {as_typed(what, VERBS)}" for what in checked.unchecked]
    conclude(lines, next_command(checked.run, checked.rows))
    if checked.unchecked:
        raise SystemExit(3)


def _describe(model: ModelOptions) -> Description | None:
    """What the model says of itself; None for code to run and models to fetch."""
    if model.model is None:
        raise WrongUsage("choose a model with --model; `varsmooth models` lists the released ones")
    return None if is_external(model.model) else describe(model.model)


def _changed(options: Any) -> list[str]:
    """The options that are not as they are by default, as they are typed."""
    return [as_option(o.name) for o in fields(options) if getattr(options, o.name) != o.default]


def _announce(
    verb: str,
    model: ModelOptions,
    about: Description | None,
    chosen: list[DataOptions],
    device: Device,
    out: Path | None,
    **options: object,
) -> None:
    """Announce the plan, with a note on noise levels far from those of training."""
    data, *others = chosen
    images = f"{data.words(data.split)} {data.subset or ''}".rstrip()
    images += f" and {len(others)} more" if others else ""
    level, note = "by the model", None
    typed = model.sigma is not None or model.cascade is not None
    if about is not None or typed:
        plan = resolve_selector(about, model)
        level = str(plan)
        if about is not None and typed:
            note = about.untrained_note(plan.every_level)
    precision = None if model.precision == "float32" else model.precision
    scaling = {"resize": data.resize, "center crop": data.center_crop}
    options = {**scaling, "σ": level, "precision": precision, **options}
    announce(f"{verb} {images} with {model.model}", device, **options, out=out)
    if note:
        say(f"note: {note}", sys.stderr)
