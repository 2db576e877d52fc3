"""`varsmooth models`: what models there are, and what they can do."""


def models(names: list[str]) -> None:
    """Show the released models, or describe some models.

    examples:
      varsmooth models
      varsmooth models my_model/

    Args:
        names: released names or checkpoint folders
    """
    from varsmooth.checkpoints import describe, released_names

    released = names or released_names()
    if not released:
        print("no model is released with this version; train one with: varsmooth train")
    for name in released:
        about = describe(name)
        parts = [part for part in ("classifier", "selector") if getattr(about, part) is not None]
        level = f"any σ up to {about.sigma_a:g}" if about.universal else f"σ {about.sigma_a:g}"
        print(f"{name}  {' and '.join(parts)}, trained on {about.dataset} at {level}")
        if names:
            _tell(about)


def _tell(about: object) -> None:
    """The details of one description, one line each."""
    from varsmooth.checkpoints import Description

    assert isinstance(about, Description)
    print(f"  classes      {', '.join(about.class_names)}")
    if about.recommended:
        settings = ", ".join(f"{name} {value}" for name, value in about.recommended.items())
        print(f"  recommended  {settings}")
    for kind in ("classifier", "selector"):
        part = getattr(about, kind)
        if part is not None:
            print(f"  {kind:<11}  {part.network} {part.options or ''}, {part.fingerprint[:16]}")
            for name, value in part.metrics.items():
                print(f"    {name}: {value}")
