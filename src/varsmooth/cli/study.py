"""`varsmooth study`: the paper's workflow on your own images in one command."""

from varsmooth.cli.feedback import announce, check_votes, command, conclude, resolve_images
from varsmooth.training.configuration import StudyOptions


def study(*, options: StudyOptions) -> None:
    """Train f and h on your images, sweep λ, certify by every method, attack, and report.

    f is trained at σ, h for it in the schemes of g_v and g_v*. One σ (half, once and twice), g_v
    and g_v* at every λ are certified by every method that exists for them, and attacked with
    budget σ. The report compares them and draws clean against robust accuracy. The sizes are
    short by default. Rerun the same command to resume.

    examples:
      varsmooth study --data my_photos/ --resize 32 --sigma 0.25 --out runs/study
    """
    check_votes(options.n)
    resolve_images(None, options)
    announce(
        f"study {options.data}",
        options.device,
        σ=options.sigma,
        lams=",".join(f"{lam:g}" for lam in options.lams),
        epochs=f"{options.epochs} of f, {options.selector_epochs} of h",
        images=options.images,
        n=options.n,
        out=options.out,
    )
    from varsmooth.evaluation.report import open_runs
    from varsmooth.evaluation.report.summary_text import verdict
    from varsmooth.training.study import run_study

    page = run_study(options)
    runs = open_runs([path.parent for path in sorted((options.out / "runs").glob("*/run.json"))])
    tune = command(f"tune {options.out / 'h'}")
    cascade = command(f"tune {options.out / 'f'} --goal cascade")
    conclude([*verdict(runs), f"wrote {page}"], tune, cascade)
