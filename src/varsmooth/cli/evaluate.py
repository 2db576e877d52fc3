"""`varsmooth predict`, `certify`, `attack` and `verify`: a data set through the library."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Literal

from varsmooth.cli.parser import WrongUsage
from varsmooth.defaults import BATCH_SIZE
from varsmooth.errors import VarsmoothError
from varsmooth.runs.options import (
    AttackOptions,
    CertifyOptions,
    DataOptions,
    ModelOptions,
    PredictOptions,
    RunOptions,
)


def predict(
    images: list[str],
    model: ModelOptions,
    data: DataOptions,
    settings: PredictOptions,
    out: Path | None = None,
    name: str | None = None,
    batch_size: int = BATCH_SIZE,
    device: Literal["auto", "cpu", "cuda"] = "auto",
    devices: int = 1,
) -> None:
    """Say what images show, by a vote under noise, or abstain.

    With --out the answers become a run, and the same command continues an interrupted one.

    examples:
      varsmooth predict photo.png --model f-0.25 --resize 32
      varsmooth predict --model my_model/ --data cifar10 --out runs/predictions

    Args:
        images: your own images or folders, instead of --data
        out: the folder of a run; without it the answers are printed and not kept
        name: what tables and legends call the run (default: the folder's name)
        batch_size: noisy images per forward pass
        device: where to compute
        devices: number of processes of a run, each with its own device
    """
    from varsmooth.report.statements import result
    from varsmooth.runs.predicting import predict_dataset

    _need_model(model)
    chosen = [replace(data, data=path) for path in images] or [data]
    if out is None:
        if devices != 1 or name is not None:
            raise WrongUsage("--devices and --name are for a run; give its folder with --out")
        _print_predictions(model, chosen, settings, batch_size, device)
        return
    if len(chosen) > 1:
        raise WrongUsage("a run has one data set; put the images into one folder")
    run = predict_dataset(
        model, chosen[0], settings, RunOptions(out, name, batch_size, device, devices)
    )
    _tell(result(run))


def _print_predictions(
    model: ModelOptions,
    chosen: list[DataOptions],
    settings: PredictOptions,
    batch_size: int,
    device: str,
) -> None:
    from varsmooth.processes import choose_device
    from varsmooth.runs.building import build
    from varsmooth.runs.predicting import predict_photos

    built = build(model, choose_device(device))
    for data in chosen:
        for file, answer in predict_photos(built, data, settings, batch_size):
            number = answer.prediction
            name = built.class_names[number] if built.class_names else f"class {number}"
            best = max(answer.counts)
            print(
                f"{file}  {'abstains' if number < 0 else name}  σ {answer.sigma:.3g}  "
                f"{best} of {sum(answer.counts)} votes for the first"
            )


def certify(
    model: ModelOptions, data: DataOptions, settings: CertifyOptions, run: RunOptions
) -> None:
    """Certify every image: a class and an ℓ2 radius within which it cannot change.

    Interrupted, the same command continues where it stopped.

    examples:
      varsmooth certify --model f-0.25 --sigma 0.25 --out runs/fixed
      varsmooth certify --model my_model/ --lam 0.5 --clip 0.12,0.5 --levels 8 --out runs/dual
      varsmooth certify --model zoo:make --sigma 0.5 --data photos/ --subset 0:100 --out runs/own
      varsmooth certify --model my_model/ --data cifar10 --devices 4 --out runs/four
      torchrun --nproc-per-node 4 -m -- varsmooth certify --model my_model/ --out runs/four
    """
    from varsmooth.report.statements import result
    from varsmooth.runs.certifying import certify_dataset

    _need_model(model)
    _tell(result(certify_dataset(model, data, settings, run)))


def attack(
    model: ModelOptions,
    data: DataOptions,
    settings: AttackOptions,
    run: RunOptions,
    against: Path | None = None,
) -> None:
    """Attack every image, or look for a counterexample inside every certified radius of a run.

    Images that are wrong, or abstained on, without any attack are left as they are.
    With --against the smoothed classifier and the images are those of the certification run. A
    `sound` certificate that is false makes the command fail (exit code 1); by its α a small
    share of them may be.

    examples:
      varsmooth attack --model f-0.25 --eps 0.25,0.5 --steps 40 --out runs/strong
      varsmooth attack --model f-0.25 --eps 0.3 --kind weak --save-images true --out runs/weak
      varsmooth attack --against runs/dual --restarts 3 --out runs/search

    Args:
        against: a certification run whose radii to search
    """
    if against is not None:
        _search(against, model, data, settings, run)
        return
    from varsmooth.report.statements import result
    from varsmooth.runs.attacking import attack_dataset

    _need_model(model)
    if settings.eps is None:
        raise WrongUsage("say how far the attack may go with --eps, or what to search: --against")
    _tell(result(attack_dataset(model, data, settings, run)))


def _search(
    against: Path,
    model: ModelOptions,
    data: DataOptions,
    settings: AttackOptions,
    run: RunOptions,
) -> None:
    from varsmooth.report.statements import result
    from varsmooth.runs.searching import search_run, violations

    changed = _changed(replace(model, model=None, trust=None)) + _changed(data)
    changed += ["eps"] * (settings.eps is not None)
    if changed:
        raise WrongUsage(f"--against takes these from its run; leave out {', '.join(changed)}")
    found = search_run(against, settings, run, model.model, model.trust)
    _tell(result(found))
    false = [row["id"] for row in violations(found) if row["guarantee"] == "sound"]
    if false:
        ids = ", ".join(map(str, false[:10])) + (" and more" if len(false) > 10 else "")
        raise VarsmoothError(f"{len(false)} sound certificates are false, of the images {ids}")


def verify(
    run: Path,
    resample: int = 0,
    model: str | None = None,
    trust: str | list[str] | None = None,
    seed: int | None = None,
    batch_size: int = BATCH_SIZE,
    device: Literal["auto", "cpu", "cuda"] = "auto",
) -> None:
    """Check that every certificate of a run follows from its evidence, its model and its images.

    With --resample some images are repeated with fresh noise. Votes are compared by Fisher's
    exact test, selector samples by Kolmogorov and Smirnov's; an alarm is a p-value below
    0.001 / number of tests, so a faithful run fails with probability 0.001 at most.

    examples:
      varsmooth verify runs/dual
      varsmooth verify runs/dual --resample 20

    Args:
        run: the folder of a certification run
        resample: how many random images to repeat
        model: where the model is now, if it was moved; needed if it is module:factory, because
            code named by the run is never started
        trust: import paths package.module:Class of networks that a checkpoint may load
        seed: of the fresh noise and the choice of images (default: fresh entropy)
        batch_size: noisy images per forward pass
        device: where to compute
    """
    from varsmooth.runs.verifying import FALSE_ALARM, verify_run

    found = verify_run(run, resample, model, trust, seed, batch_size, device)
    if found.problems:
        more = f"; and {len(found.problems) - 5} more" if len(found.problems) > 5 else ""
        raise VarsmoothError(f"{run} is not right: {'; '.join(found.problems[:5])}{more}")
    print(f"{found.rows} rows follow from their evidence; model and images are those of the run")
    if found.p_values:
        print(
            f"{found.resampled} images repeated with fresh noise: {len(found.p_values)} tests, "
            f"smallest p-value {min(found.p_values.values()):.2g}, none below the alarm at "
            f"{found.threshold:.2g} (a false alarm has probability ≤ {FALSE_ALARM:g})"
        )


def _need_model(model: ModelOptions) -> None:
    if model.model is None:
        raise WrongUsage("choose a model with --model; `varsmooth models` lists the released ones")


def _changed(options: Any) -> list[str]:
    """The options that are not as they are by default."""
    return [o.name for o in fields(options) if getattr(options, o.name) != o.default]


def _tell(lines: list[str]) -> None:
    """Print in the first of several processes only."""
    import os

    if os.environ.get("RANK", "0") == "0":
        print("\n".join(lines))
