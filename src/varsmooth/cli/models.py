"""`varsmooth models`: what models there are, and what they can do."""


def models(names: list[str], /) -> None:
    """Show the released models, or the cards of some models.

    examples:
      varsmooth models
      varsmooth models cifar10-0.25
      varsmooth models my_model/

    Args:
        names: released names or checkpoint folders
    """
    from varsmooth.models.descriptions import describe, released_names
    from varsmooth.training.cards import card

    for name in names:
        print(card(name, describe(name)))
    if names:
        return
    for name in released_names():
        about = describe(name)
        parts = ["classifier"] if about.classifier is not None else []
        if about.selector is not None:
            parts.append(
                "selector that reads it" if about.selector.network == "confidence" else "selector"
            )
        level = f"any σ up to {about.sigma_a:g}" if about.universal else f"σ {about.sigma_a:g}"
        print(f"{name}  {' and '.join(parts)}, trained on {about.dataset} at {level}")
