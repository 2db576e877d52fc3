"""`varsmooth app`: the interactive page."""

from importlib.util import find_spec
from pathlib import Path

from varsmooth.cli.feedback import announce, resolve_images
from varsmooth.data.source import Source
from varsmooth.defaults import MODEL
from varsmooth.errors import check
from varsmooth.evaluation.records import Run
from varsmooth.types import Port


def app(
    *,
    model: str | None = None,
    run: Path | None = None,
    data: str | None = None,
    host: str = "127.0.0.1",
    port: Port = 7860,
    trust: list[str] | None = None,
) -> None:
    """Serve a page for the browser: choose λ for an image, certify it, attack it, browse a run.

    Needs no network, and only this machine can reach it. Ctrl-C stops it.

    examples:
      varsmooth app
      varsmooth app --model my_model/ --port 8000
      varsmooth app --run runs/first

    Args:
        model: a released name or a model folder to begin with (default: cifar10-small)
        run: the folder of a run to open
        data: where the sample images come from: a name from `varsmooth data list`, or a path
            (default: the data set of the model)
        host: the address to listen at; 0.0.0.0 lets other machines use the page, unprotected
        port: the port to listen at; 0 takes a free one
    """
    check(
        all(find_spec(name) for name in ("matplotlib", "starlette", "uvicorn")),
        "the page needs Starlette, Uvicorn and matplotlib; "
        "install them with: pip install matplotlib starlette uvicorn",
    )
    resolve_images(model, Source(data=data))
    if run is not None:
        Run.open(run)
    announce("serve the page", model=model or (None if run else MODEL), run=run)
    from varsmooth.app.backend import Backend
    from varsmooth.app.server import is_local, serve

    backend = Backend(model, data, run, any_run=is_local(host), trust=trust or ())
    serve(
        backend, host, port, lambda address: print(f"open {address}  (Ctrl-C stops it)", flush=True)
    )
