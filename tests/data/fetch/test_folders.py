import os
from pathlib import Path

import pytest

from fedquilt.base.errors import DataError
from fedquilt.data.fetch.folders import find, folders


def test_several_folders_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x").write_text(folder)
    monkeypatch.setenv(
        "FEDQUILT_DATA", os.pathsep.join([str(tmp_path / "no"), str(tmp_path / "b"), str(tmp_path / "a")])
    )
    assert find("x").read_text() == "b"


def test_names_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDQUILT_DATA", str(tmp_path))
    (tmp_path / "second").touch()
    (tmp_path / "first").mkdir()  # a folder is no file
    assert find("first", "second") == tmp_path / "second"


def test_missing_file_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    monkeypatch.setenv("FEDQUILT_DATA", f"{one}{os.pathsep}{two}")
    with pytest.raises(DataError) as caught:
        find("set/file.gz", "set/file", source="It is at example.org.")
    message = str(caught.value)
    for part in ("set/file.gz is missing (also as set/file)", str(one), str(two), "Set FEDQUILT_DATA", "example.org"):
        assert part in message


def test_the_cache_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDQUILT_DATA", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert folders() == [tmp_path / "fedquilt"]
    monkeypatch.delenv("FEDQUILT_DATA")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert folders() == [tmp_path / ".cache" / "fedquilt"]


def test_home_is_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("FEDQUILT_DATA", "~/sets")
    assert folders() == [tmp_path / "sets"]
