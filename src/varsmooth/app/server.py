"""Which requests the page accepts, how large, and what a browser that shows it may load.

A request passes `Guard`, which checks its origin and its size. The page never reads an upload by
its path, stores nothing about a visitor, and has no inline script or style.
"""

import asyncio
import ipaddress
import json
import socket
import traceback
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import urlsplit

import uvicorn
from starlette import responses
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from varsmooth.app.backend import Backend
from varsmooth.app.uploads import MAX_BYTES
from varsmooth.app.worker import Cancelled, Job
from varsmooth.errors import VarsmoothError, check, wrap_errors

MAX_REQUEST = 2 * 2**20  # bytes: a picture in the model's size, and some numbers
BODY_TIMEOUT = 30.0  # seconds that the body of a request may take to arrive
SILENCE = 15.0  # seconds that its head may take, and that a client may read nothing of the response
TICK = 0.25  # seconds between two reports of progress

# The browser itself refuses inline scripts, foreign content, and to show the page in a frame.
HEADERS = {
    b"content-security-policy": b"default-src 'none'; script-src 'self'; style-src 'self'; "
    b"img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    b"frame-ancestors 'none'",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"referrer-policy": b"no-referrer",
    b"x-content-type-options": b"nosniff",
    b"cache-control": b"no-store",
    b"connection": b"close",  # one request for each, see `TimedProtocol`
}


class Guard:
    """Refuses requests that other sites made a browser send, and bodies that are too large.

    A foreign name that resolves to this machine (DNS rebinding) shows in Host; another origin,
    also another port of this machine, shows in Origin.
    """

    def __init__(self, app: ASGIApp, host: str) -> None:
        self.app = app
        self.names = {"localhost", host.lower(), socket.gethostname().lower()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), *HEADERS.items()]
            await send(message)

        refused = self._refusal(Request(scope))
        await (refused or self.app)(scope, receive, send_guarded)
        return None

    def _refusal(self, request: Request) -> Response | None:
        host, origin = request.headers.get("host", ""), request.headers.get("origin")
        if not self._is_ours(host):
            return responses.PlainTextResponse("Invalid Host header.", 400)
        if origin is not None and origin.lower() != f"http://{host}".lower():
            return responses.PlainTextResponse("Other sites may not use this page.", 403)
        limit = MAX_BYTES if request.url.path == "/upload" else MAX_REQUEST
        length = request.headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > limit:
            return responses.PlainTextResponse(f"At most {limit} bytes.", 413)
        return None

    def _is_ours(self, host: str) -> bool:
        """Whether Host names this machine: by an address, which cannot be rebound, or its name."""
        try:
            name = urlsplit(f"http://{host}").hostname or ""
        except ValueError:
            return False
        return is_address(name) or name in self.names


async def body_of(request: Request, limit: int) -> bytes:
    """The body of a request, never more than `limit` bytes of it in memory."""

    async def read() -> bytes:
        content = bytearray()
        async for part in request.stream():
            content += part
            check(len(content) <= limit, f"a request may have at most {limit >> 20} MB")
        return bytes(content)

    late = f"the request did not arrive within {BODY_TIMEOUT:g} seconds; try again"
    with wrap_errors(asyncio.TimeoutError, late):
        return await asyncio.wait_for(read(), BODY_TIMEOUT)


async def progress(backend: Backend, work: Callable[[Job], dict[str, Any]]) -> AsyncIterator[str]:
    """One JSON line for each report of progress, and one with the result.

    A client that disconnects cancels its job, running or queued.
    """
    try:
        job, future = backend.worker.submit(work)
    except VarsmoothError as error:
        yield f"{json.dumps({'error': sentence(error)})}\n"
        return
    answer = asyncio.wrap_future(future)
    try:
        while not answer.done():
            yield f"{json.dumps({'share': round(job.share, 3)})}\n"
            await asyncio.wait({answer}, timeout=TICK)
        yield f"{json.dumps(outcome(answer))}\n"
    finally:
        job.cancelled = True
        answer.cancel()


def outcome(answer: "asyncio.Future[dict[str, Any]]") -> dict[str, Any]:
    """The result of a job, or an error message."""
    try:
        return answer.result()
    except Cancelled:
        return {"error": "Cancelled."}
    except (VarsmoothError, OSError) as error:
        return {"error": sentence(error)}
    except Exception:
        traceback.print_exc()
        return {"error": "Internal error; see the terminal that runs the page."}


def sentence(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text + ("" if text.endswith((".", "!", "?")) else ".")


def application(backend: Backend, host: str) -> ASGIApp:
    """The page as an ASGI application."""

    async def show(request: Request) -> Response:
        model = request.query_params.get("model", backend.first_model)
        try:
            return responses.HTMLResponse(await asyncio.to_thread(backend.page, model))
        except VarsmoothError as error:
            return responses.PlainTextResponse(sentence(error), 404)

    def answered(work: Callable[[Job], dict[str, Any]]) -> Response:
        return responses.StreamingResponse(
            progress(backend, work), media_type="application/x-ndjson"
        )

    async def answer(request: Request) -> Response:
        name, query = request.url.path.lstrip("/"), request.query_params
        try:
            if name == "upload":
                content = await body_of(request, MAX_BYTES)
                named = query.get("name", "the picture"), query.get("model", "")
                return answered(lambda job: backend.upload(content, *named))
            check(
                request.headers.get("content-type") == "application/json",
                "a request must be application/json",
            )
            body = json.loads(await body_of(request, MAX_REQUEST))
            check(isinstance(body, dict), "a request must be a JSON object")
            return answered(lambda job: {"html": backend.handlers[name](body, job)})
        except (ValueError, RecursionError, ClientDisconnect) as error:
            return responses.JSONResponse({"error": sentence(error)}, 400)

    routes = [
        Route("/", show),
        *(Route(f"/{name}", answer, methods=["POST"]) for name in ("upload", *backend.handlers)),
        Mount("/", StaticFiles(packages=[("varsmooth.app", "static")])),
    ]
    return Guard(Starlette(routes=routes), host)


def is_address(host: str) -> bool:
    try:
        return bool(ipaddress.ip_address(host))
    except ValueError:
        return False


def is_local(host: str) -> bool:
    """Whether only this machine can reach the page."""
    return ipaddress.ip_address(host).is_loopback if is_address(host) else host == "localhost"


class TimedProtocol(H11Protocol):
    """HTTP for clients that may fall silent: a connection is one request, which has limits of time.

    uvicorn waits for ever for a client that sends nothing, or reads nothing, and these count among
    `limit_concurrency`.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(0)  # `pause_writing` as soon as the client falls behind
        self.loop.call_later(SILENCE, self._end_without_request)

    def _end_without_request(self) -> None:
        if self.cycle is None:
            self.transport.abort()  # type: ignore[unreachable]  # it is None at first

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(SILENCE, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._unread.cancel()


def server_for(backend: Backend, host: str) -> uvicorn.Server:
    """The page on a server that will run on a socket of `listen`."""
    config = uvicorn.Config(
        application(backend, host),
        http=TimedProtocol,
        ws="none",
        log_level="warning",
        timeout_graceful_shutdown=1,
        limit_concurrency=64,
        server_header=False,
    )
    return uvicorn.Server(config)


def serve(backend: Backend, host: str, port: int, ready: Callable[[str], None]) -> None:
    """Serve until interrupted; `ready` gets the address once it can be opened."""
    listening = listen(host, port)
    name = f"[{host}]" if ":" in host else host
    ready(f"http://{name}:{listening.getsockname()[1]}")
    try:
        server_for(backend, host).run(sockets=[listening])
    except KeyboardInterrupt:  # the way to stop it
        pass
    finally:
        backend.worker.close()
        listening.close()


def listen(host: str, port: int) -> socket.socket:
    """The socket of the page; port 0 takes a free one."""
    check(bool(host.strip()), "--host is empty; leave it out, or name an address such as ::1")
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
