"""Fetches the files of a data set: from each of its sources in turn, until all are there.

A file is checked before it gets its name, and gets it at once, by renaming, so that what lies in a data folder is whole.
Nothing that is fetched is trusted or run: npm packs a package without installing it, apt-get downloads one. Of an archive,
only plain files with a wanted name are written, to names of our own choosing; links, devices, folders and everything else
are passed over. Numbers that a header claims are checked before anything is read.
"""

from __future__ import annotations

import hashlib
import http.client
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path, PurePosixPath
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from fedquilt.base.errors import DataError
from fedquilt.data.fetch.folders import folders
from fedquilt.data.fetch.published import DownloadSource, File, PublishedData, Tell
from fedquilt.data.files import open_file, unpacked

SCRATCH = ".fetch"
"""Where files are until they are whole, in a data folder."""

TIMEOUT = 30.0
MEMBERS = 100_000
UNPACKED = 2**33

_CHUNK = 2**18
_NOT_SATISFIABLE = 416
_PARTIAL = 206
_HEADER = 60
_PACKED = 2**16  # how much larger than its content a packed file may be
_SECONDS = 3600
_COMMANDS = {
    "npm": ("npm", "pack", "--ignore-scripts", "--silent"),
    "debian": ("apt-get", "download", "--quiet"),
}
_COMES_WITH = {"npm": "install Node.js, which it comes with", "apt-get": "it is part of Debian and Ubuntu"}


def fetch(published: PublishedData, tell: Tell, say: Callable[[str], None]) -> list[Path]:
    """Fetch the files that are missing, into the first data folder that can be written to, and return their paths.

    `tell` hears how a download goes, `say` which source is tried and why one failed. Files that are there are checked.
    """
    for file in published.files:
        existing = published.found(file)
        if existing is not None:
            try:
                file.check(existing)
            except DataError as error:
                raise DataError(f"{error}; delete it, and download it again") from None
    if not published.missing():
        return []
    home = _writable(published)
    scratch = home / SCRATCH / published.name
    placed: list[Path] = []
    failures = []
    for source in published.sources:
        wanted = published.missing()
        if not wanted:
            break
        say(f"From {source} …")
        try:
            for path in _bring(source, wanted, published.endings, scratch, tell):
                placed.append(_put(path, wanted, published, home))
        except DataError as error:
            failures.append(f"{source}: {error}")
            say(f"  {error}")
    _tidy(scratch, keep=".part" if published.missing() else None)
    if published.missing():
        raise DataError(_by_hand(published, home, failures))
    return placed


def _by_hand(published: PublishedData, home: Path, failures: Sequence[str]) -> str:
    """Say which files to put where, and what was tried."""
    missing = [str(home / published.folders[0] / file.name) for file in published.missing()]
    endings = [ending for ending in published.endings if ending]
    packed = f" (or with {' or '.join(endings)} added, compressed)" if endings else ""
    lines = [f"{published.name}: no source was reachable and had all files:", *(f"  {text}" for text in failures)]
    lines += [f"Download them on another machine, and put them here{packed}:", *(f"  {path}" for path in missing)]
    return "\n".join(lines)


def _writable(published: PublishedData) -> Path:
    reasons = []
    for home in folders():
        try:
            probe = home / SCRATCH / published.name / "probe"
            probe.parent.mkdir(parents=True, exist_ok=True)
            probe.touch()
            probe.unlink()
        except OSError as error:
            reasons.append(f"{home}: {error.strerror}")
        else:
            return home
    raise DataError(
        f"the data folder cannot be written to ({'; '.join(reasons)}); "
        "set FEDQUILT_DATA to a writable folder, or put the files there by hand"
    )


def _bring(
    source: DownloadSource, wanted: Sequence[File], endings: Sequence[str], scratch: Path, tell: Tell
) -> Iterator[Path]:
    """Bring files from a source into the scratch folder, one by one, by the names they are to have."""
    if source.kind == "files":
        for file in wanted:
            path = scratch / f"{file.name}{source.ending}"
            download(source.name + path.name, path, file.size + _PACKED, tell)
            yield path
        return
    if source.kind == "archive":
        archive = scratch / PurePosixPath(source.name).name
        download(source.name, archive, source.size, tell)
    else:
        archive = _pack(source, scratch, tell)
    _check_archive(source, archive)
    if source.kind == "debian":
        archive = data_of_deb(archive, source.size)
    tell(f"unpacking {archive.name}", 0, None)
    names = {f"{file.name}{ending}" for file in wanted for ending in endings}
    yield from take_members(archive, names, max(file.size for file in wanted) + _PACKED, scratch / "unpacked")


def _pack(source: DownloadSource, scratch: Path, tell: Tell) -> Path:
    """Let a package manager download a package, which is then one file in an empty folder."""
    command, *words = _COMMANDS[source.kind]
    program = shutil.which(command)
    if program is None:
        raise DataError(f"{command} is not installed; {_COMES_WITH[command]}")
    folder = scratch / source.kind
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    tell(source.name, 0, None)
    try:
        done = subprocess.run(
            [program, *words, source.name],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DataError(f"{command} failed: {error}") from None
    files = [path for path in folder.iterdir() if path.is_file()]
    if done.returncode or len(files) != 1:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise DataError(f"{command} failed: {lines[-1] if lines else f'exit code {done.returncode}'}")
    return files[0]


def _check_archive(source: DownloadSource, archive: Path) -> None:
    size = archive.stat().st_size
    with archive.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if size > source.size or source.digest not in (None, found):
        archive.unlink()
        raise DataError(f"{archive.name}: not the published file: {size:,} bytes, SHA-256 {found}")


def _put(path: Path, wanted: Sequence[File], published: PublishedData, home: Path) -> Path:
    file = next(file for file in wanted if path.name in {f"{file.name}{ending}" for ending in published.endings})
    try:
        file.check(path)
    except DataError:
        path.unlink()
        raise
    folder = home / published.folders[0]
    folder.mkdir(parents=True, exist_ok=True)
    return path.replace(folder / path.name)


def _tidy(scratch: Path, keep: str | None) -> None:
    """Remove what was fetched and is not needed, and the folders where nothing is left."""
    for path in scratch.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.suffix != keep:
            path.unlink()
    for folder in (scratch, scratch.parent):
        if not any(folder.iterdir()):
            folder.rmdir()


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


def take_members(archive: Path, wanted: Collection[str], limit: int, folder: Path) -> Iterator[Path]:
    """Write the members whose last part of the name is wanted into a folder, and yield their paths one by one.

    A member of more than `limit` bytes is refused. A file that is yielded may be moved away.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with unpacked(archive, UNPACKED) as content, tarfile.open(fileobj=content, mode="r:") as tar:
            seen = 0
            for number, member in enumerate(tar, start=1):
                seen += member.size
                if number > MEMBERS or seen > UNPACKED:
                    raise DataError(f"{archive.name}: has too many members, or members that are too large")
                name = PurePosixPath(member.name).name
                if name not in wanted or not member.isreg():
                    continue
                if member.size > limit:
                    raise DataError(f"{archive.name}: {name} has {member.size:,} bytes, expected at most {limit:,}")
                taken = tar.extractfile(member)
                assert taken is not None
                with (folder / name).open("wb") as file:
                    shutil.copyfileobj(taken, file)
                yield folder / name
    except tarfile.TarError as error:
        raise DataError(f"{archive.name}: not a tar archive, or damaged: {error}") from None


def data_of_deb(package: Path, limit: int) -> Path:
    """Write the archive of files that a Debian package holds beside it, and return its path.

    A package is an `ar` archive: `!<arch>` and a line end, then members. Each has a header of 60 bytes, which begins with
    the name and has the size at 48 to 57, in decimal digits, and content, padded to an even length.
    """
    with open_file(package) as file:
        if file.read(8) != b"!<arch>\n":
            raise DataError(f"{package.name}: not a Debian package")
        while header := file.read(_HEADER):
            digits = header[48:58].strip()
            if len(header) < _HEADER or header[58:] != b"`\n" or not digits.isdigit():
                raise DataError(f"{package.name}: damaged")
            size = int(digits)
            if header.startswith(b"data.tar"):
                if size > limit:
                    raise DataError(f"{package.name}: holds {size:,} bytes, expected at most {limit:,}")
                content = file.read(size)
                if len(content) != size:
                    raise DataError(f"{package.name}: damaged: it ends early")
                archive = package.with_suffix(".data.tar")
                archive.write_bytes(content)
                return archive
            file.seek(size + size % 2, 1)
    raise DataError(f"{package.name}: has no files in it")
