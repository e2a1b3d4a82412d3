"""Images of one's own: a folder and a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fedquilt.base.arguments import ArgumentError
from fedquilt.base.errors import DataError
from fedquilt.datasets import image_folder

ROWS = [
    ("a.png", "oak", "ann", "48.2", "16.37"),
    ("b.png", "elm", "bob", "-33.9", "151.2"),
    ("sub/c.png", "oak", "bob", "", ""),
    ("d.png", "elm", "ann", "90", "-180"),
]
HEADER = ("path", "label", "client", "latitude", "longitude")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sub").mkdir()
    for number, (name, *_) in enumerate(ROWS):
        Image.new("RGB", (12, 9), (60 * number, 0, 0)).save(tmp_path / name)
    write(tmp_path / "table.csv")
    return tmp_path


def write(path: Path, rows: Sequence[tuple[str, ...]] = ROWS, header: tuple[str, ...] = HEADER) -> Path:
    path.write_text("\n".join(",".join(row) for row in [header, *rows]) + "\n", encoding="utf-8")
    return path


def test_labels_clients_places_and_images(folder: Path) -> None:
    test = write(folder / "test.csv", ROWS[1:2])
    data = image_folder(folder, folder / "table.csv", size=8, test=test, scale="unit")
    assert data.train.y.tolist() == [1, 0, 1, 0]  # elm, oak
    assert data.train.ids is not None
    assert data.train.ids.tolist() == [0, 1, 1, 0]
    assert data.train.coordinates is not None
    assert np.array_equal(
        data.train.coordinates, [[48.2, 16.37], [-33.9, 151.2], [np.nan, np.nan], [90.0, -180.0]], equal_nan=True
    )
    assert data.prepare is not None
    reds = data.prepare(data.train.x)[:, 0].amax(dim=(1, 2)) * 255
    assert reds.round().tolist() == [0, 60, 120, 180]
    assert (data.prepare(data.test.x)[:, 0].amax(dim=(1, 2)) * 255).round().tolist() == [60]
    assert data.test.y.tolist() == [0]
    assert data.test.ids is not None
    assert data.test.ids.tolist() == [1]
    assert (data.ahead, data.at_once, data.classes) == (2, 64, 2)


def test_a_share_of_every_class_is_held_out(folder: Path) -> None:
    data = image_folder(folder, folder / "table.csv", test_fraction=0.5, seed=3)
    assert sorted(data.train.y.tolist()) == sorted(data.test.y.tolist()) == [0, 1]
    assert sorted(data.train.x.tolist() + data.test.x.tolist()) == [0, 1, 2, 3]


def test_clients_of_training_come_first(folder: Path) -> None:
    test = write(folder / "test.csv", [("a.png", "oak", "aaron", "0", "0"), ("a.png", "oak", "bob", "0", "0")])
    data = image_folder(folder, folder / "table.csv", test=test)
    assert data.train.ids is not None
    assert data.test.ids is not None
    assert data.train.ids.tolist() == [0, 1, 1, 0]
    assert data.test.ids.tolist() == [2, 1]


def test_numbers_are_ordered_as_numbers(folder: Path) -> None:
    rows = [("a.png", label) for label in ("10", "9", "100", "9")]
    data = image_folder(folder, write(folder / "t.csv", rows, ("path", "label")), test=folder / "t.csv")
    assert data.train.y.tolist() == [1, 0, 2, 0]
    assert data.train.ids is None
    assert data.train.coordinates is None


def test_other_names_for_columns(folder: Path) -> None:
    table = write(folder / "t.csv", ROWS, ("file", "species", "author", "lat", "lon"))
    names: dict[str, Any] = {
        "path": "file",
        "label": "species",
        "client": "author",
        "latitude": "lat",
        "longitude": "lon",
    }
    data = image_folder(folder, table, test=table, **names)
    assert data.train.ids is not None
    assert data.train.ids.tolist() == [0, 1, 1, 0]
    with pytest.raises(DataError, match=r"t\.csv: has no column 'photographer'; its columns are file, species, author"):
        image_folder(folder, table, test=table, **{**names, "client": "photographer"})


@pytest.mark.parametrize(
    ("rows", "header", "message"),
    [
        (
            ROWS,
            ("path", "class", "client", "latitude", "longitude"),
            "has no column 'label'; its columns are path, class",
        ),
        ([], HEADER, "has no rows below its first line"),
        ([], (), "is empty, or its first line is"),
        ([("a.png", "oak")], HEADER, "line 2 has 2 values, the first line 5"),
        ([*ROWS, ("a.png", "", "ann", "1", "1")], HEADER, "column 'label' is empty for image 5"),
        ([*ROWS, ("a.png", "oak", "", "1", "1")], HEADER, "column 'client' is empty for image 5"),
        (
            [("a.png", "oak", "ann", "91", "1")],
            HEADER,
            "column 'latitude' of image 1 must be in degrees from -90",
        ),
        ([("a.png", "oak", "ann", "1", "east")], HEADER, "from -180 to 180, got 'east'"),
        ([("a.png", "oak", "ann", "1", "inf")], HEADER, "got 'inf'"),
        ([("a.png", "oak", "1.0")], ("path", "label", "latitude"), "a column 'latitude' only"),
    ],
)
def test_what_is_wrong_with_a_table(
    folder: Path, rows: list[tuple[str, ...]], header: tuple[str, ...], message: str
) -> None:
    table = write(folder / "wrong.csv", rows, header)
    with pytest.raises(DataError, match=rf"wrong\.csv: .*{message}"):
        image_folder(folder, table, test=table)


def test_a_label_that_was_never_trained(folder: Path) -> None:
    test = write(folder / "test.csv", [("a.png", "yew", "ann", "1", "1")])
    with pytest.raises(DataError, match=r"test\.csv: the label 'yew' does not occur in .*table\.csv"):
        image_folder(folder, folder / "table.csv", test=test)


def test_no_such_folder_table_or_text(folder: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere: no such file or folder"):
        image_folder(folder / "nowhere", folder / "table.csv")
    with pytest.raises(DataError, match=r"nothing\.csv: no such file"):
        image_folder(folder, folder / "nothing.csv")
    (folder / "binary.csv").write_bytes(b"path,label\n\xff\xfe,oak\n")
    with pytest.raises(DataError, match=r"binary\.csv: is not a CSV file in UTF-8"):
        image_folder(folder, folder / "binary.csv")
    with pytest.raises(ArgumentError, match="ahead: must be at least 0"):
        image_folder(folder, folder / "table.csv", ahead=-1)


def test_an_image_that_the_table_names_wrongly(folder: Path) -> None:
    data = image_folder(folder, write(folder / "t.csv", [("x.png", "oak", "a", "", "")]), test=folder / "t.csv")
    assert data.prepare is not None
    with pytest.raises(
        DataError, match=r"x\.png: there is no such image file\. The table names it; its paths are relative to"
    ):
        data.prepare(data.train.x)
