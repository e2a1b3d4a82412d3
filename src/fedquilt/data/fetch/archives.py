"""Takes files out of tar archives and Debian packages, none of which is trusted.

Only plain files with a wanted name are written, to names of our own choosing; links, devices, folders and everything else
are passed over, and nothing is run. Numbers that a header claims are checked before anything is read.
"""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Collection, Iterator
from pathlib import Path, PurePosixPath

from fedquilt.base.errors import DataError
from fedquilt.data.files import open_file
from fedquilt.data.packed import unpacked

MEMBERS = 100_000
UNPACKED = 2**33
_HEADER = 60


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
