"""Which share of noisy copies is recognised, with and without the denoiser, at four noise levels.

    python accuracy.py 4

takes 4 copies of each of the 20 photographs at each level, about 2 minutes on one core.
"""

import sys
import time

import numpy as np
from networks import denoised, plain

from varsmooth import FixedSelector, SmoothedClassifier, load_dataset
from varsmooth.data.fitting import fitted

LEVELS = (0.06, 0.12, 0.25, 0.5)


def main(copies: int) -> None:
    rng = np.random.default_rng(0)
    print("classifier  σ     recognised  95 % interval  seconds a copy")
    for make in (plain, denoised):
        f = make()
        data = load_dataset("photographs", "test", None, *f.preprocessing)
        for sigma in LEVELS:
            g = SmoothedClassifier(f, FixedSelector(sigma)).eval()
            x, labels, ids = fitted(data, g, f.class_names).batch(slice(None))
            assert labels is not None
            started = time.process_time()
            votes = g.votes(x, copies, noise=g.noise(len(x), 0, ids), batch_size=20)
            seconds = (time.process_time() - started) / (copies * len(x))
            shares = (votes[range(len(x)), labels] / copies).numpy()  # of each photograph
            means = rng.choice(shares, (10_000, len(x))).mean(axis=1)  # bootstrap over photographs
            low, high = np.quantile(means, (0.025, 0.975))
            line = f"{shares.mean():10.0%}  {low:.0%} to {high:.0%}".ljust(27)
            print(f"{make.__name__:10}  {sigma:.2f}  {line}{seconds:.2f}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
