"""Train a selector for an existing classifier, tune it, and certify both together.

The classifier is frozen: here a released one, in your case any model folder that
`varsmooth.models.checkpoints.save` wrote. The sizes are tiny, to be quick; on real data leave them
out and train for about half an hour. The models go into a temporary folder unless you name one:

    python examples/selector_for_existing_model.py [FOLDER]
"""

import sys
from tempfile import TemporaryDirectory

from varsmooth import Options, certify, load, load_dataset
from varsmooth.evaluation.tune.selector import tune
from varsmooth.models.checkpoints import load_checkpoint, save
from varsmooth.models.descriptions import Description, Part, describe, recommend
from varsmooth.training import SelectorConfig, train_selector


def save_my_classifier(folder: str) -> None:
    """Save your classifier as a model folder: weights and description."""
    released = load_checkpoint("cifar10-0.25")  # stands for your own network and weights
    assert released.classifier is not None
    save(
        folder,
        Description(
            dataset="cifar10-sample",
            class_names=released.description.class_names,
            sigma_a=0.25,  # the noise level it was trained with
            classifier=Part(network="conv4", options={"classes": 10, "channels": 3}),
        ),
        classifier=released.classifier,
    )


def main(folder: str) -> None:
    mine, pair = f"{folder}/my-classifier", f"{folder}/my-pair"
    save_my_classifier(mine)
    train_selector(
        SelectorConfig(
            out=pair,
            classifier=mine,
            data="cifar10-sample",
            train_split="test",
            held_out_split="val",
            held_out_images=50,
            epochs=2,
            images_per_epoch=128,
            batch_size=16,
            selector_samples=3,
            classifier_samples=2,
        )
    )
    held_out = load_dataset("cifar10-sample", "val")[:40]
    choice = tune(
        load(pair, selector="learned"),
        held_out,
        "radius",
        lams=(0.0, 0.5),
        levels=5,
        n=64,
        n_select=51,
    )
    best = choice.best
    print(f"λ {best.lam:g}, σ_m {best.sigma_m:g}, levels {[round(s, 3) for s in best.levels]}")
    print(f"average radius {best.score:.3f}; with the best single σ {choice.fixed_score:.3f}")
    recommend(
        pair,
        {"lam": best.lam, "sigma_m": best.sigma_m, "clip": best.clip, "levels": list(best.levels)},
    )
    print("recommended:", describe(pair).recommended)

    images, labels, ids = load_dataset("cifar10-sample").batch(range(4))
    print("labels", labels)
    print(certify(load(pair), images, n=200, ids=ids, options=Options(n0=50, n_select=201)))


if __name__ == "__main__":
    with TemporaryDirectory() as temporary:
        main(*sys.argv[1:] or [temporary])
