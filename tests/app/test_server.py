"""Which requests the page accepts, how many, and what happens when a client disconnects."""

import base64
import io
import json
import re
import socket
import time
import tracemalloc
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from starlette.testclient import TestClient

from tests.app.conftest import body, picture
from tests.small_models import QUICK, run
from varsmooth.app import server, views
from varsmooth.app.backend import Backend
from varsmooth.app.server import MAX_REQUEST, application, is_local, listen
from varsmooth.app.uploads import MAX_BYTES
from varsmooth.errors import VarsmoothError

HOME = "http://127.0.0.1:7860"


@pytest.fixture
def client(backend: Backend) -> TestClient:
    return TestClient(application(backend, "127.0.0.1"), base_url=HOME)


def last(response: Any) -> dict[str, Any]:
    """The answer at the end of the reports of progress."""
    result: dict[str, Any] = json.loads(response.text.splitlines()[-1])
    return result


# Paths of the server are not pictures


@pytest.mark.parametrize("path", ["/dev/zero", "SECRET", "/etc/hostname"])
def test_no_path_of_the_server_is_read_as_an_upload(
    client: TestClient, backend: Backend, tmp_path: Path, path: str
) -> None:
    """/dev/zero would hang the server, a picture on its disk would be shown to anybody."""
    secret = tmp_path / "secret.png"
    secret.write_bytes(picture((32, 32)))
    path = path.replace("SECRET", str(secret))
    file = {"path": path, "meta": {"_type": "gradio.FileData"}, "orig_name": "x.png"}
    for image in (file, {"picture": file}, {"picture": path}, {"sample": file}, path):
        answer = last(client.post("/look", json=body(backend, image=image)))
        assert "html" not in answer, image
        assert "error" in answer
    for url in ("/gradio_api/queue/join", "/queue/join", f"/file={path}", f"/static/..{path}"):
        assert client.post(url, json={"data": [file]}).status_code in (404, 405)
        assert client.get(url).status_code in (404, 405)


def test_an_upload_travels_with_the_request_and_is_kept_nowhere(
    client: TestClient, backend: Backend
) -> None:
    answer = last(
        client.post(f"/upload?name=me.png&model={backend.first_model}", content=picture())
    )
    scaled = Image.open(io.BytesIO(base64.b64decode(answer["picture"])))
    assert scaled.size == (32, 32)
    shown = last(client.post("/look", json=body(backend, image={"picture": answer["picture"]})))
    assert "certified radius" in shown["html"]["answer"]


# Sizes


@pytest.mark.parametrize(("url", "limit"), [("/look", MAX_REQUEST), ("/upload", MAX_BYTES)])
def test_large_bodies_are_refused(client: TestClient, url: str, limit: int) -> None:
    headers = {"content-type": "application/json"}
    assert client.post(url, content=bytes(limit + 1), headers=headers).status_code == 413

    sent = 0

    def parts() -> Any:  # chunked: no length is announced
        nonlocal sent
        for _ in range(4 * limit // 2**20):
            sent += 2**20
            yield bytes(2**20)

    answer = client.post(url, content=parts(), headers=headers)
    assert answer.status_code == 400
    assert "at most" in answer.json()["error"]


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"null", b"{", b"[" * 99_999, b'{"options": {}}', b"\xff", b'{"a": NaN}'],
)
def test_an_invalid_request_gets_a_sentence(client: TestClient, content: bytes) -> None:
    answer = client.post("/look", content=content, headers={"content-type": "application/json"})
    assert last(answer)["error"].endswith(".")


# Origins


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "http://127.0.0.1:8888",
        "http://localhost:7860",
        "null",
        "https://127.0.0.1:7860",
    ],
)
@pytest.mark.parametrize("url", ["/upload", "/look", "/run", "/"])
def test_other_origins_may_not_use_the_page(client: TestClient, origin: str, url: str) -> None:
    """Also other ports of this machine: whatever is served there is another site."""
    assert client.post(url, content=b"{}", headers={"origin": origin}).status_code == 403
    answer = client.options(
        url, headers={"origin": origin, "access-control-request-method": "POST"}
    )
    assert answer.status_code == 403
    assert not any(name.startswith("access-control") for name in answer.headers)


def test_a_form_of_another_site_is_refused(client: TestClient, backend: Backend) -> None:
    """A form needs no permission of the browser to be sent, but cannot be application/json."""
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        content = json.dumps(body(backend)).encode()
        answer = client.post("/look", content=content, headers={"content-type": kind})
        assert answer.status_code == 400


def test_the_page_itself_may(client: TestClient, backend: Backend) -> None:
    answer = client.post("/look", json=body(backend), headers={"origin": HOME})
    assert "html" in last(answer)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:7860", 200),
        ("localhost:7860", 200),
        ("[::1]:7860", 200),
        (socket.gethostname(), 200),
        ("evil.example", 400),
        ("127.0.0.1.evil.example:7860", 400),
        ("", 400),
        ("[::1", 400),
    ],
)
def test_a_foreign_name_of_this_machine_is_refused(
    client: TestClient, host: str, status: int
) -> None:
    """DNS rebinding: evil.example resolves to 127.0.0.1 after its page was loaded."""
    assert client.get("/page.css", headers={"host": host}).status_code == status


def test_browsers_load_nothing_else_and_run_no_inline_script(client: TestClient) -> None:
    answer = client.get("/")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert not re.search(r"<script(?! src)| style=| on\w+=|https?://", answer.text)


# Addresses


def test_addresses() -> None:
    assert all(is_local(host) for host in ("127.0.0.1", "localhost", "::1"))
    assert not is_local("0.0.0.0")
    for empty in ("", " "):
        with pytest.raises(VarsmoothError, match="--host is empty"):
            listen(empty, 0)
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(VarsmoothError, match=f"port {port}.*--port"):
            listen("127.0.0.1", port)
    with pytest.raises(VarsmoothError, match="65535"):
        listen("127.0.0.1", 99999)


def test_ipv6_works(served: int) -> None:
    with socket.create_connection(("::1", served)) as connection:
        connection.sendall(f"GET /page.js HTTP/1.1\r\nHost: [::1]:{served}\r\n\r\n".encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 200")


# Those who leave


def knock(port: int, backend: Backend, **changes: Any) -> socket.socket:
    """A request that takes long; others do not wait for it."""
    content = json.dumps(body(backend, **changes)).encode()
    head = (
        f"POST /certify HTTP/1.1\r\nHost: [::1]:{port}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(content)}\r\n\r\n"
    )
    connection = socket.create_connection(("::1", port))
    connection.sendall(head.encode() + content)
    return connection


def wait_until(condition: Any, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_work_of_a_client_that_left_is_cancelled(served: int, backend: Backend) -> None:
    classifier = backend.model(backend.first_model).checkpoint.classifier
    assert classifier is not None
    slow = classifier.register_forward_hook(lambda *_: time.sleep(0.5))  # 40 batches at one level
    try:
        waiting = [knock(served, backend, n=5000, n_select=2001) for _ in range(5)]
        wait_until(lambda: len(backend.worker.jobs) == 5)
        for connection in waiting:
            connection.close()
        wait_until(lambda: len(backend.worker.jobs) == 0, seconds=15)
    finally:
        slow.remove()
    assert not classifier._forward_pre_hooks


def test_the_line_is_bounded(served: int, backend: Backend) -> None:
    waiting = [knock(served, backend, n=5000, n_select=2001) for _ in range(16)]
    wait_until(lambda: len(backend.worker.jobs) == 16)
    with knock(served, backend) as late:
        late.settimeout(30)
        answer = b""
        while b"error" not in answer:
            answer += late.recv(1000)
    assert b"busy" in answer
    for connection in waiting:
        connection.close()
    wait_until(lambda: len(backend.worker.jobs) == 0)


SILENT = {
    "nothing": b"",
    "half a head": b"GET / HTTP/1.1\r\nHost: [::1]\r\n",
    "no response read": b"GET /?model=MODEL HTTP/1.1\r\nHost: [::1]\r\n\r\n",
}


@pytest.mark.parametrize("kind", SILENT)
def test_silent_clients_are_disconnected(
    kind: str, served: int, backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "SILENCE", 0.3)
    page = bytes(20 * 2**20).decode()  # more than the buffers of a connection hold
    monkeypatch.setattr(backend, "page", lambda model: page)
    with socket.create_connection(("::1", served)) as connection:
        connection.sendall(SILENT[kind])
        time.sleep(1.5)
        connection.settimeout(5)
        received = 0
        with suppress(ConnectionResetError):
            while part := connection.recv(2**20):
                received += len(part)
    assert received < len(page)


def test_a_body_that_does_not_arrive_gets_a_sentence(
    served: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "BODY_TIMEOUT", 0.3)
    with socket.create_connection(("::1", served)) as connection:
        head = "POST /upload HTTP/1.1\r\nHost: [::1]\r\nContent-Length: 9\r\n\r\n"
        connection.sendall(head.encode())
        connection.settimeout(10)
        answer = b""
        while part := connection.recv(1000):
            answer += part
    assert b"the request did not arrive within 0.3 seconds" in answer


def test_memory_is_flat_over_100_sessions(
    client: TestClient, backend: Backend, pair: Path, tmp_path: Path
) -> None:
    """All requests share one copy of an opened run."""
    folder = tmp_path / "run"
    assert run(f"certify {QUICK} --model {pair} --subset :3 --seed 0 --out {folder}") == 0
    views._open.cache_clear()

    def session() -> None:
        assert client.get("/page.js").status_code == 200
        opened = last(client.post("/run", json={"folder": str(folder)}))
        assert "html" in opened, opened

    session()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(100):
        session()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert views._open.cache_info().misses == 1
    assert grown < 2**20
