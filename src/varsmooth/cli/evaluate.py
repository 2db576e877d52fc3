"""`varsmooth predict`, `certify`, `attack` and `verify`: a data set through the library."""

from varsmooth.evaluation.options import CertifyOptions, DataOptions, ModelOptions, RunOptions


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
      torchrun --nproc-per-node 4 -m varsmooth certify --model my_model/ --out runs/four
    """
    from varsmooth.evaluation.certifying import certify_dataset
    from varsmooth.evaluation.summary import certified

    print(certified(certify_dataset(model, data, settings, run)))
