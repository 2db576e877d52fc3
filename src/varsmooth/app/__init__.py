"""The interactive page: turn the knobs on one image, certify it, attack it, browse a run.

knobs: what can be turned, and how far; models: a model and its three smoothed classifiers;
uploads: a stranger's file becomes an image; jobs: one piece of work at a time, with cancel;
looking, certifying, attacking: what is computed; runs: the records of a run folder;
pictures: figures; fragments: results as HTML; desk: what happens when something is pressed;
panel, page: the same as Gradio components; server: who may ask, what the browser may load.

Only panel, page and server know Gradio; everything else can be called and tested without a browser.
"""

from varsmooth.errors import VarsmoothError


def require_gradio() -> None:
    """The page needs an extra; say so before any work is done."""
    try:
        import gradio  # noqa: F401
        import matplotlib  # noqa: F401
    except ImportError:
        raise VarsmoothError(
            "the page needs Gradio and matplotlib; install them with: pip install 'varsmooth[app]'"
        ) from None
