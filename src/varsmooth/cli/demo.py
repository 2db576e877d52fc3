"""`varsmooth demo`: see what the library does, with no download."""

from pathlib import Path


def demo(model: str | None = None, out: Path = Path("varsmooth-demo"), images: int = 20) -> None:
    """Predict, certify and attack a few embedded images with a released model.

    Takes about two minutes on two cores and downloads nothing. The same command continues an
    interrupted demo.

    examples:
      varsmooth demo
      varsmooth demo --images 100 --out my-demo

    Args:
        model: a released name or a model folder (default: cifar10-0.25)
        out: the folder for runs and report
        images: how many images of the embedded CIFAR-10 sample
    """
    from varsmooth.demo import choose_model, run_demo

    chosen = choose_model(model)
    table, page = run_demo(chosen, out, images)
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    print()
    for row in table:
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        )
    print()
    print(f"model {chosen}; radius: mean over all images, 0 where wrong or abstaining")
    if page is not None:
        print(f"report: {page}")
    dual = (out / "sound").exists()
    knob = "--lam 0" if dual else "--sigma 0.5"
    data = "--data cifar10-sample --subset :100"
    print("next:")
    print(f"  varsmooth certify --model {chosen} {knob} {data} --out runs/turned")
    print(f"  varsmooth attack --against {out / ('sound' if dual else 'fixed')} --out runs/search")
    print("  varsmooth app  # turn λ on an image in the browser; pip install 'varsmooth[app]'")
    print("  varsmooth data fetch cifar10")
