"""A download that survives interruption: what has arrived is kept and continued."""

import hashlib
import http.client
import shutil
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from tqdm import tqdm

from varsmooth.errors import VarsmoothError, require


def download(url: str, target: Path, sha256: str) -> Path:
    """Bring `url` to the file `target`, whose SHA-256 must be the given one.

    The bytes gather in `target.part`. If that file is there already, only the rest is asked for
    (HTTP Range). Nothing is ever called `target` before its checksum was right.
    """
    if target.is_file() and file_sha256(target) == sha256:
        return target
    part = target.with_name(target.name + ".part")
    try:
        _receive(url, part)
    except (OSError, http.client.HTTPException) as error:
        raise VarsmoothError(
            f"{url} could not be downloaded ({error}); run the same command again to continue"
        ) from error
    if file_sha256(part) != sha256:
        part.unlink()
        raise VarsmoothError(
            f"{url} arrived with a wrong checksum and was thrown away; run the same command again"
        )
    return part.replace(target)


def _receive(url: str, part: Path) -> None:
    """Append to `part` what it lacks; a server that ignores Range sends everything again."""
    have = part.stat().st_size if part.exists() else 0
    request = Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        response = urlopen(request, timeout=60)
    except HTTPError as error:
        error.close()
        if have and error.code == 416:  # nothing left to send: the checksum will judge
            return
        raise
    with response:
        have = have if response.status == 206 else 0
        total = have + int(response.headers.get("Content-Length", 0))
        bar = tqdm.wrapattr(response, "read", total, initial=have, desc=part.stem, leave=False)
        with part.open("r+b" if have else "wb") as file, bar as stream:
            file.seek(have)
            shutil.copyfileobj(stream, file, 1 << 18)
            end = file.tell()
    require(end >= total, f"{url} broke off early; run the same command again to continue")


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
