"""The page: Gradio components, and which of them ask the desk for what."""

import functools
import traceback
from collections.abc import Callable
from typing import Any

import gradio as gr
from PIL import Image

from varsmooth.app import fragments
from varsmooth.app.attacking import Kind
from varsmooth.app.desk import Desk
from varsmooth.app.jobs import Cancelled
from varsmooth.app.knobs import STEPS
from varsmooth.app.panel import KnobPanel, knobs_of, slider, updates
from varsmooth.app.runs import EVERYTHING, OpenRun
from varsmooth.data import ImageDataset
from varsmooth.errors import VarsmoothError

QUEUE = 16
"""Requests that may wait; there is one worker."""

WORK: dict[str, Any] = {"concurrency_id": "work", "concurrency_limit": 1}
"""Whatever computes waits in one line."""

NOT_YET = "Nothing is computed until you press the button."


def build_page(desk: Desk) -> gr.Blocks:
    """The whole page."""
    with gr.Blocks(title="varsmooth", analytics_enabled=False, delete_cache=(600, 3600)) as page:
        gr.HTML(
            "<header class='vs-head'><h1>varsmooth</h1><p>A noise level of its own for every "
            "image, and what can be proven about it. Everything runs on this machine.</p></header>"
        )
        with gr.Tabs():
            with gr.Tab("One image"):
                _one_image(page, desk)
            with gr.Tab("A run folder"):
                _run_folder(desk)
    page.queue(max_size=QUEUE, default_concurrency_limit=1, api_open=False)
    return page


def in_sentences(handler: Callable[..., Any]) -> Callable[..., Any]:
    """Show what went wrong as a sentence, and leave everything on the page as it is."""

    @functools.wraps(handler)
    def handled(*values: Any) -> Any:
        try:
            return handler(*values)
        except Cancelled:
            gr.Info("Cancelled.", title="", duration=3)
        except (VarsmoothError, OSError) as error:
            gr.Warning(_whole(str(error)), title="That does not work", duration=20)
        except Exception:
            traceback.print_exc()
            gr.Warning(
                "This should not happen; the terminal that runs the page says more.",
                title="An error in the page",
                duration=20,
            )
        return gr.skip()

    return handled


def _whole(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


def _one_image(page: gr.Blocks, desk: Desk) -> None:
    image, seed = gr.State(desk.sample(0)), gr.State(0)
    with gr.Row():
        with gr.Column(scale=4, min_width=320):
            model = gr.Dropdown(
                desk.models, value=desk.first_model, label="Model", elem_id="vs-model"
            )
            gallery = gr.Gallery(
                [Image.fromarray(_shown(pixels)) for pixels in desk.samples.images],
                label="Image",
                show_label=False,
                columns=10,
                height="auto",
                allow_preview=False,
                selected_index=0,
                buttons=[],
                interactive=False,
                format="png",
                elem_id="vs-samples",
            )
            upload = gr.UploadButton(
                "Use my own picture (PNG or JPEG)",
                file_types=[".png", ".jpg", ".jpeg"],
                size="sm",
                elem_id="vs-upload",
            )
            told = gr.HTML(elem_id="vs-told")
            panel = KnobPanel(desk.model(desk.first_model))
        with gr.Column(scale=7, min_width=480):
            view = gr.HTML(elem_id="vs-view", min_height=190)
            with gr.Row():
                levels = gr.HTML(elem_id="vs-levels", min_height=220)
                votes = gr.HTML(elem_id="vs-votes", min_height=220)
            fresh = gr.Button("Draw fresh noise", size="sm", elem_id="vs-fresh")
            with gr.Tabs():
                with gr.Tab("Certify"):
                    with gr.Row():
                        certify = gr.Button(
                            "Certify", variant="primary", scale=4, elem_id="vs-certify"
                        )
                        stop_certify = gr.Button("Cancel", scale=1, elem_id="vs-stop-certify")
                    certified = gr.HTML(
                        fragments.sentence(NOT_YET), elem_id="vs-certified", min_height=60
                    )
                with gr.Tab("Attack"):
                    with gr.Row():
                        kind = gr.Radio(
                            [("selector, noise and votes", "strong"), ("f alone", "weak")],
                            value="strong",
                            label="The attacker's gradients go through",
                        )
                        steps = slider("steps of PGD", STEPS, 20, "steps")
                    with gr.Row():
                        attack = gr.Button(
                            "Attack", variant="primary", scale=4, elem_id="vs-attack"
                        )
                        stop_attack = gr.Button("Cancel", scale=1, elem_id="vs-stop-attack")
                    attacked = gr.HTML(
                        fragments.sentence(NOT_YET), elem_id="vs-attacked", min_height=60
                    )

    def on_look(
        name: str, picture: ImageDataset, number: int, request: gr.Request, *values: float
    ) -> tuple[str, str, str]:
        return desk.look(_owner(request), name, picture, knobs_of(*values), number)

    def on_certify(
        name: str,
        picture: ImageDataset,
        request: gr.Request,
        progress: gr.Progress = gr.Progress(),  # noqa: B008 (how Gradio hands it over)
        *values: float,
    ) -> str:
        return desk.certify(_owner(request), name, picture, knobs_of(*values), progress)

    def on_attack(
        name: str,
        picture: ImageDataset,
        steps: float,
        kind: Kind,
        request: gr.Request,
        progress: gr.Progress = gr.Progress(),  # noqa: B008
        *values: float,
    ) -> str:
        owner, knobs = _owner(request), knobs_of(*values)
        return desk.attack(owner, name, picture, knobs, int(steps), kind, progress)

    def on_upload(path: str, name: str) -> tuple[ImageDataset, str, Any]:
        picture, said = desk.upload(path, name)
        return picture, fragments.sentence(said), gr.update(selected_index=None)

    def on_sample(event: gr.SelectData) -> tuple[ImageDataset, str]:
        return desk.sample(event.index), ""

    def on_model(name: str) -> list[Any]:
        return updates(desk.model(name))

    def forget() -> tuple[str, str]:
        """Results of another image or model must not stand beside this one."""
        return fragments.sentence(NOT_YET), fragments.sentence(NOT_YET)

    def on_cancel(request: gr.Request) -> None:
        desk.bench.cancel(_owner(request))

    see = {
        "fn": in_sentences(on_look),
        "inputs": [model, image, seed, *panel.all],
        "outputs": [view, levels, votes],
        "show_progress": "minimal",
        "api_visibility": "private",
        **WORK,
    }
    hidden: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
    page.load(**see)
    gr.on([knob.input for knob in panel.all], trigger_mode="always_last", **see)
    fresh.click(lambda number: number + 1, seed, seed, **hidden).then(**see)
    results = [certified, attacked]
    for chosen in (
        model.input(in_sentences(on_model), model, panel.changing, **hidden),
        gallery.select(in_sentences(on_sample), None, [image, told], **hidden),
        upload.upload(in_sentences(on_upload), [upload, model], [image, told, gallery], **hidden),
    ):
        chosen.success(forget, None, results, **hidden).then(**see)
    work = {"api_visibility": "private", **WORK}
    certifying = certify.click(
        in_sentences(on_certify), [model, image, *panel.all], certified, **work
    )
    attacking = attack.click(
        in_sentences(on_attack), [model, image, steps, kind, *panel.all], attacked, **work
    )
    for button, running in ((stop_certify, certifying), (stop_attack, attacking)):
        button.click(on_cancel, cancels=[running], queue=False, **hidden)


def _run_folder(desk: Desk) -> None:
    opened = gr.State(None)
    with gr.Row():
        folder = gr.Textbox(
            str(desk.run or ""),
            label="Folder of a run (what --out named)",
            placeholder="runs/first",
            interactive=desk.any_run,
            elem_id="vs-folder",
            scale=5,
        )
        open_it = gr.Button("Open", variant="primary", scale=1, elem_id="vs-open")
    summary = gr.HTML(elem_id="vs-summary")
    with gr.Row():
        with gr.Column(scale=6, min_width=420):
            curve = gr.HTML(elem_id="vs-curve")
            kind = gr.Radio(
                [EVERYTHING], value=EVERYTHING, label="Outcome", visible=False, elem_id="vs-kind"
            )
            table = gr.Dataframe(
                visible=False, interactive=False, max_height=420, elem_id="vs-table", type="array"
            )
        with gr.Column(scale=6, min_width=420):
            evidence = gr.HTML(elem_id="vs-evidence")

    def on_open(path: str) -> tuple[Any, ...]:
        run = desk.open_run(path)
        return (
            run,
            run.summary_html(),
            run.curve_html(),
            gr.update(choices=run.kinds(), value=EVERYTHING, visible=True),
            gr.update(value={"headers": run.columns, "data": run.table()}, visible=True),
            fragments.sentence("Click a line of the table to see its evidence."),
        )

    def on_kind(run: OpenRun, kind: str) -> Any:
        return gr.update(value={"headers": run.columns, "data": run.table(kind)})

    def on_line(run: OpenRun, event: gr.SelectData) -> str:
        return run.evidence_html(run.find(event.row_value))

    quiet = {"api_visibility": "private", **WORK}
    outputs = [opened, summary, curve, kind, table, evidence]
    gr.on([open_it.click, folder.submit], in_sentences(on_open), folder, outputs, **quiet)
    kind.input(in_sentences(on_kind), [opened, kind], table, **quiet)
    table.select(in_sentences(on_line), opened, evidence, **quiet)


def _owner(request: gr.Request) -> str:
    """One open page in one browser."""
    return str(request.session_hash)


def _shown(pixels: Any) -> Any:
    return pixels[..., 0] if pixels.shape[-1] == 1 else pixels
