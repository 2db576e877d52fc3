"""`varsmooth adopt`: from a classifier of your own to a model that can be certified."""

from dataclasses import replace
from pathlib import Path

from varsmooth.cli.feedback import (
    announce,
    check_votes,
    command,
    conclude,
    held_out,
    resolve_images,
)
from varsmooth.data.source import AS_IS, Preprocessing, Source
from varsmooth.evaluation.options import AdoptOptions
from varsmooth.models.cards import accuracy_table, plain
from varsmooth.models.descriptions import check_new_model
from varsmooth.models.names import check_code
from varsmooth.rounding import counted


def adopt(factory: str, /, *, options: AdoptOptions) -> None:
    """Check your own classifier on real images, show what smoothing achieves, and save it.

    The factory is a function or class package.module:name without arguments that returns an
    nn.Module; the working directory is searched. Images are (B,C,H,W) in [0,1], normalisation
    belongs inside. Nothing is trained: it prints the accuracy without noise and, at a few noise
    levels, the accuracy of the vote, the certified accuracy and the average radius. Where noise
    costs accuracy, it prints the command that trains the classifier for every level, and how long
    that takes.

    examples:
      varsmooth adopt my_package.nets:make --data photos/ --out my_model

    Args:
        factory: import path of the factory
    """
    out, split, n, levels = options.out, options.split, options.n, sorted(options.levels)
    check_votes(n)
    check_code(factory)
    check_new_model(out)
    source = resolve_images(
        factory, Source(data=options.data, root=options.root, resize=options.resize)
    )
    announce(
        f"adopt {factory}",
        options.device,
        images=f"at most {options.images} of {options.data} {split}",
        val=held_out(source) if split == "val" else None,
        n=n,
        levels=",".join(f"{level:g}" for level in levels),
    )
    from varsmooth._util.processes import choose_device
    from varsmooth.data.catalog import left_to_certify, tuned_on
    from varsmooth.training.adoption import adopt as adopt_network
    from varsmooth.training.adoption import build_network, seen_in_training

    network = build_network(factory).to(choose_device(options.device)).eval()
    own: Preprocessing = getattr(network, "preprocessing", AS_IS)
    source = source.with_defaults(replace(source, **own._asdict()))
    tuned = tuned_on(source, split, options.images)
    trial = adopt_network(network, factory, source, tuned, out, levels, n, options.seed)
    lines = [
        f"{counted(len(trial.images), 'image')} of {trial.images.name} {split}, "
        "the classifier as it is",
        plain("\n".join(accuracy_table(trial.metrics))),
        *trial.advice(),
        f"saved in {out}",
        *seen_in_training(source, split),
    ]
    where = {"data": options.data, "root": options.root, **source.preprocessing._asdict()}
    ready, first = out, []
    if trial.plan is not None and trial.needs_training:
        ready = Path(f"{out}-noise")
        start = {"network": factory, "initial": out}
        words = {**start, **trial.plan.options, **where, "trust": factory, "out": ready}
        train = command("train classifier", **words)
        first = [f"{train}  # add --flip false if left and right tell classes apart"]
    if trial.at_chance:
        again = command("adopt", factory, **where, split=split, out=f"{out}-checked")
        conclude(lines, *first, f"{again}  # instead, after fixing it")
    else:
        conclude(lines, *first, *_certify(ready, left_to_certify(source, tuned), factory))


def _certify(model: Path, left: dict[str, str | None], factory: str) -> list[str]:
    """The commands from a model that can be certified to its cascade and its report."""
    run = f"runs/{model.name}-certified"
    certify = command("certify", model=model, **left, trust=factory, out=run)
    tune = command("tune", model, goal="cascade", trust=factory)
    return [tune, certify, command("report", run)]
