"""Who may ask the page, and what a browser that shows it may load: nothing from elsewhere."""

import ipaddress
import os
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from importlib.resources import files
from typing import Any

from varsmooth.app.desk import Desk
from varsmooth.app.uploads import MAX_BYTES
from varsmooth.errors import VarsmoothError

# Read when Gradio is imported: no telemetry, no question whether there is a newer version.
os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

POLICY = (
    "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; object-src 'none'; "
    "base-uri 'self'; form-action 'self'; frame-ancestors 'none'"
)
"""The browser itself refuses to load anything from another machine."""


class Guarded:
    """Adds the policy to every answer."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                extra = {
                    b"content-security-policy": POLICY.encode(),
                    b"referrer-policy": b"no-referrer",
                    b"x-content-type-options": b"nosniff",
                }
                message["headers"] = [*message.get("headers", []), *extra.items()]
            await send(message)

        await self.app(scope, receive, send_guarded)


def is_local(host: str) -> bool:
    """Whether only this machine can reach the page."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def application(desk: Desk, host: str) -> Any:
    """The page as an ASGI application."""
    import gradio as gr
    from fastapi import FastAPI
    from starlette.middleware.trustedhost import TrustedHostMiddleware

    from varsmooth.app.page import build_page

    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    if is_local(host):  # another site's name that resolves to this machine is not us
        names = [host, "localhost", "127.0.0.1"]
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=names)
    app.add_middleware(Guarded)
    return gr.mount_gradio_app(
        app,
        build_page(desk),
        path="/",
        server_name=host,
        footer_links=[],
        run_history=False,
        ssr_mode=False,
        mcp_server=False,
        max_file_size=MAX_BYTES,
        theme=gr.themes.Default(
            primary_hue="teal",
            neutral_hue="slate",
            font=["system-ui", "sans-serif"],
            font_mono=["ui-monospace", "monospace"],
        ),
        css=(files("varsmooth.app") / "style.css").read_text(encoding="utf-8"),
    )


def serve(desk: Desk, host: str, port: int, ready: Callable[[str], None]) -> None:
    """Serve until interrupted; `ready` is told the address once it can be opened."""
    import uvicorn

    listening = listen(host, port)
    app = application(desk, host)
    ready(f"http://{host}:{listening.getsockname()[1]}")
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)
    try:
        uvicorn.Server(config).run(sockets=[listening])
    except KeyboardInterrupt:  # the way to stop it
        pass
    finally:
        listening.close()


def listen(host: str, port: int) -> socket.socket:
    """The door of the page; port 0 takes any that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(128)
    except (OSError, OverflowError) as error:
        listening.close()
        why = getattr(error, "strerror", None) or "it must lie between 0 and 65535"
        raise VarsmoothError(
            f"port {port} of {host} cannot be used ({why}); choose another with --port"
        ) from error
    return listening
