"""Downloads a file over HTTP, and continues where an earlier attempt ended."""

from __future__ import annotations

import http.client
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from fedquilt.base.errors import DataError
from fedquilt.data.fetch.tell import Tell

TIMEOUT = 30.0
_CHUNK = 2**18
_NOT_SATISFIABLE = 416
_PARTIAL = 206


def download(address: str, path: Path, limit: int, tell: Tell) -> None:
    """Download to a path, by way of `path.part`, from which a later call continues; a file that exists stays.

    At most `limit` bytes are taken. What goes wrong is a DataError; the part that has come is kept.
    """
    if path.exists():
        return
    if not address.startswith(("http://", "https://")):
        raise DataError(f"{address}: not a web address; it must begin with http:// or https://")
    part = path.with_name(path.name + ".part")
    done = part.stat().st_size if part.exists() else 0
    try:
        _receive(address, part, done, limit, tell)
    except HTTPError as error:
        if error.code != _NOT_SATISFIABLE or not done:
            raise DataError(f"the server answers {error.code} {error.reason}") from None
        part.unlink()  # what is there is no beginning of the file
        download(address, path, limit, tell)
        return
    except (http.client.HTTPException, OSError) as error:
        reason = error.reason if isinstance(error, URLError) else error
        received = part.stat().st_size if part.exists() else 0
        kept = f"; {received:,} bytes are kept, and the next attempt continues from there" if received else ""
        raise DataError(f"cannot be downloaded: {reason}{kept}") from None
    part.replace(path)


def _receive(address: str, part: Path, done: int, limit: int, tell: Tell) -> None:
    headers = {"User-Agent": "fedquilt", "Accept-Encoding": "identity"}
    if done:
        headers["Range"] = f"bytes={done}-"
    with urlopen(Request(address, headers=headers), timeout=TIMEOUT) as answer:
        if not (answer.status == _PARTIAL and answer.headers.get("Content-Range", "").startswith(f"bytes {done}-")):
            done = 0  # the server sends it all
        length = answer.headers.get("Content-Length")
        total = done + int(length) if length and length.isdigit() else None
        if total is not None and total > limit:
            raise DataError(f"the server announces {total:,} bytes, but the published file has at most {limit:,}")
        with part.open("ab" if done else "wb") as file:
            while chunk := answer.read(_CHUNK):
                done += len(chunk)
                if done > limit:
                    raise DataError(
                        f"the server sends more than {limit:,} bytes, the largest size of the published file"
                    )
                file.write(chunk)
                tell(part.stem, done, total)
    if total is not None and done < total:
        raise http.client.IncompleteRead(b"", total - done)
