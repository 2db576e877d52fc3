"""`varsmooth train`: a preset, and any option of its configuration on top of it."""

from pathlib import Path

from varsmooth.cli.feedback import announce, command, conclude, held_out, resolve_images
from varsmooth.errors import check
from varsmooth.models.descriptions import describe
from varsmooth.models.names import check_code
from varsmooth.training.configuration import AnyConfig, ClassifierConfig, SelectorConfig


def classifier(preset: str | None = None, /, *, config: ClassifierConfig) -> None:
    """Train a classifier f under Gaussian noise.

    A preset (varsmooth train presets) or a YAML file of yours sets the options; those given here
    take precedence. Rerun the same command to resume; the weights come out the same.

    examples:
      varsmooth train classifier cpu/f-0.25
      varsmooth train classifier cpu/f-0.25 --epochs 3 --network-options.norm batch --out runs/bn
      varsmooth train classifier --sigma 0.25 --data my_photos/ --out runs/mine

    Args:
        preset: a name from `varsmooth train presets`, or a YAML file
    """
    level = "for every σ up to" if config.universal else "at σ ="
    _announce(f"train a classifier {level} {config.sigma:g}", config, config.initial)
    from varsmooth.training import train_classifier

    out = train_classifier(config)
    from varsmooth.data.catalog import left_to_certify, tuned_on
    from varsmooth.training.adoption import gains

    about = describe(out)
    part, trust = about.classifier, _trust(config)
    metrics = part.metrics[config.held_out_split] if part else {}
    tuned = about.tuned
    if config.universal:  # `tune` comes first, and leaves the other images to certify
        tuned = tuned or tuned_on(about.source, "val", 1)
    left = left_to_certify(about.source, tuned)
    augmentation = {
        "crop": None if config.crop == SelectorConfig.crop else config.crop,
        "flip": None if config.flip else "false",
    }
    run = f"runs/{out.name}-certified"
    certify = command("certify", model=out, **left, trust=trust, out=run)
    tune = command("tune", out, goal="cascade", trust=trust)
    conclude(
        [*gains(metrics, config), f"the classifier is in {out}"],
        *((tune, certify) if config.universal else (certify, command("report", run))),
        command("train selector", classifier=out, trust=trust, **augmentation, out=f"{out}-h"),
    )


def selector(preset: str | None = None, /, *, config: SelectorConfig) -> None:
    """Train a selector h for a frozen classifier f.

    A preset (varsmooth train presets) or a YAML file of yours sets the options; those given here
    take precedence. Rerun the same command to resume; the weights come out the same.

    examples:
      varsmooth train selector cpu/h-0.25
      varsmooth train selector --classifier runs/mine --out runs/mine-h

    Args:
        preset: a name from `varsmooth train presets`, or a YAML file
    """
    _announce(f"train a selector for {config.classifier}", config, config.classifier)
    from varsmooth.training import train_selector

    out = train_selector(config)
    conclude([f"classifier and selector are in {out}"], command("tune", out, trust=_trust(config)))


def presets() -> None:
    """List the presets, and what each one trains.

    examples:
      varsmooth train presets
    """
    from varsmooth.training import about_preset, preset_names

    names = preset_names()
    width = max(map(len, names))
    print("\n".join(f"{name:<{width}}  {about_preset(name)}" for name in names))


def _trust(config: AnyConfig) -> list[str]:
    """The code that the finished model asks to import."""
    own = [config.network] if ":" in config.network else []
    return list(dict.fromkeys([*config.trust, *own]))


def _announce(doing: str, config: AnyConfig, model: str | None) -> None:
    if ":" in config.network:
        check_code(config.network)
    if model is not None and model.endswith(".safetensors"):
        check(Path(model).is_file(), f"there is no file {model}")
        model = None
    source = resolve_images(model, config, trained=True)
    announce(
        doing,
        config.device,
        data=source.words(config.train_split),
        val=held_out(source),
        epochs=config.epochs,
        augmentation=f"crop {config.crop}{', flip' * config.flip}",
        network=config.network,
        out=config.out,
    )
