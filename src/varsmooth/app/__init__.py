"""The page in the browser: turn λ on an image, certify it, attack it, browse a run.

knobs: what can be set, and the smoothed classifiers of a model at these settings;
one_image, several_images, browse: what is computed; drawings: figures;
fragments: results as HTML; layout: the page itself; both through `varsmooth.report.markup`;
worker: one piece of work at a time; desk: from a request to its answer;
server: who may ask, and what a browser may load; static: style and script.

Only server knows HTTP. It accepts no path of an upload and keeps nothing of a visitor: a picture
travels with each request.
"""

from varsmooth.errors import VarsmoothError


def require_extra() -> None:
    """The page needs an extra; say so before any work is done."""
    try:
        import matplotlib  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise VarsmoothError(
            "the page needs Starlette, Uvicorn and matplotlib; "
            "install them with: pip install 'varsmooth[app]'"
        ) from None
