"""What a deployed prediction costs: `python -m benchmarks.answering [MODEL …]`.

One image a query, α = 0.001, at most n = 1000 votes a stage: the votes that `predict` draws before
its answer is decided, the latency of a query, and that of 1000 votes at one level. One thread.
"""

import sys
import time
from typing import Any

import numpy as np
import torch

from varsmooth import SmoothedClassifier, load, load_dataset, predict

N, IMAGES = 1000, 100
MODELS = ("cifar10-0.25", "cifar10-universal-1.00", "cifar10-strong")


def run(model: str, images: int = IMAGES, n: int = N) -> list[dict[str, Any]]:
    """One σ (the model's default) and, if the model has one, its tuned cascade at λ = 1."""
    about = load(model, selector="fixed")
    cases: dict[str, SmoothedClassifier] = {f"σ = {about.selector.describe()['sigma']:g}": about}
    if load(model).selector.describe()["selector"] == "cascade":
        cases["cascade, λ = 1"] = load(model)
    return [
        {"model": model, "selector": name} | _queries(g, images, n) for name, g in cases.items()
    ]


def _queries(g: SmoothedClassifier, images: int, n: int) -> dict[str, Any]:
    x, labels, _ = load_dataset("cifar10-sample").batch(range(images))
    assert labels is not None
    predict(g, x[:1], n=n, seed=0)  # warm-up
    votes, seconds, right, abstained = [], [], 0, 0
    for i in range(images):
        began = time.perf_counter()
        (answer,) = predict(g, x[i : i + 1], n=n, seed=1, ids=[i])
        seconds.append(time.perf_counter() - began)
        votes.append(answer.samples)
        right += answer.prediction == int(labels[i])
        abstained += answer.prediction == -1
    began = time.perf_counter()
    level = torch.tensor([answer.sigma])
    g.votes(x[:1], n, sigma=level, noise=g.noise(1, seed=2))
    whole = time.perf_counter() - began
    return {
        "images": images,
        "votes": (float(np.mean(votes)), *np.percentile(votes, [50, 95]).tolist()),
        "fewer": n / float(np.mean(votes)),
        "milliseconds": [1000 * s for s in np.percentile(seconds, [50, 95]).tolist()],
        "milliseconds_of_n_votes": 1000 * whole,
        "right": right / images,
        "abstained": abstained / images,
    }


def main(models: list[str]) -> None:
    torch.set_num_threads(1)
    print(f"| model | selector | votes: mean / median / 95 % | n = {N} / mean | ", end="")
    print("ms a query: median / 95 % | ms of n votes | right | abstained |")
    for row in (row for model in models for row in run(model)):
        cells = [
            row["model"],
            row["selector"],
            " / ".join(f"{value:.0f}" for value in row["votes"]),
            f"{row['fewer']:.1f}",
            " / ".join(f"{value:.0f}" for value in row["milliseconds"]),
            f"{row['milliseconds_of_n_votes']:.0f}",
            f"{row['right']:.2f}",
            f"{row['abstained']:.2f}",
        ]
        print("|", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or list(MODELS))
