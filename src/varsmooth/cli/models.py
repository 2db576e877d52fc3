"""`varsmooth models`: what models there are, and what they can do."""


def show(names: list[str], /, log: bool = False) -> None:
    """Show the released models in a table, or the cards of some models.

    The table has certified accuracy in percent and the average certified radius of f under one
    fixed σ, where `varsmooth measure` has measured them.

    examples:
      varsmooth models
      varsmooth models cifar10-0.25
      varsmooth models cifar10-0.25 --log true

    Args:
        names: released names or folders of models
        log: show what each epoch of the training reported too
    """
    from varsmooth.models.cards import card, overview, plain
    from varsmooth.models.descriptions import describe, find, is_released, released_names

    for name in names:
        print(plain(card(name, describe(name), is_released(find(name)), log)))
    if not names:
        print("\n".join(overview(released_names())))
        print("\nnext: varsmooth models NAME shows a card, varsmooth demo certifies with a model")
