from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedquilt.base.errors import DataError, MissingExtraError
from fedquilt.data.labels import number_clients
from fedquilt.datasets import table

ROWS = """height,weight,kind,owner,lat,lon
1.5,10,cat,mia,48.1,11.6
2.5,20,dog,ben,52.5,13.4
3.5,30,cat,ben,-33.9,151.2
4.5,40,dog,mia,0,-180
5.5,50,dog,ada,90,180
"""
COLUMNS: dict[str, list[Any]] = {
    "height": [1.5, 2.5, 3.5, 4.5, 5.5],
    "weight": [10, 20, 30, 40, 50],
    "kind": ["cat", "dog", "cat", "dog", "dog"],
    "owner": ["mia", "ben", "ben", "mia", "ada"],
    "lat": [48.1, 52.5, -33.9, 0.0, 90.0],
    "lon": [11.6, 13.4, 151.2, -180.0, 180.0],
}


@pytest.fixture(params=["csv", "tsv", "parquet"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / f"pets.{request.param}"
    if request.param == "parquet":
        pq.write_table(pa.table(COLUMNS), path)
    else:
        path.write_text(ROWS if request.param == "csv" else ROWS.replace(",", "\t"))
    return path


def test_reads_a_table(path: Path) -> None:
    data = table(path, label="kind", client="owner", latitude="lat", longitude="lon", test=path)
    assert data.name == "pets"
    assert data.train.x.tolist() == [[1.5, 10], [2.5, 20], [3.5, 30], [4.5, 40], [5.5, 50]]
    assert data.train.x.dtype == torch.float32
    assert data.train.y.tolist() == [0, 1, 0, 1, 1]
    assert data.classes == 2
    assert data.train.ids is not None
    assert data.train.ids.tolist() == [2, 1, 1, 2, 0]
    assert data.train.coordinates is not None
    assert data.train.coordinates.tolist() == [[48.1, 11.6], [52.5, 13.4], [-33.9, 151.2], [0, -180], [90, 180]]
    assert torch.equal(data.test.x, data.train.x)


def test_named_features_in_their_order(path: Path) -> None:
    data = table(path, label="kind", features=("weight", "height"), test=path)
    assert data.train.x[1].tolist() == [20, 2.5]
    assert data.train.ids is None
    assert data.train.coordinates is None


def test_scale_by_the_training_rows(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n0,0\n4,1\n")
    (tmp_path / "b.csv").write_text("x,y\n1,0\n6,1\n")
    data = table(tmp_path / "a.csv", label="y", test=tmp_path / "b.csv", scale=True)
    assert data.train.x.ravel().tolist() == [-1, 1]
    assert data.test.x.ravel().tolist() == [-0.5, 2]


def test_held_out_rows_are_a_share_of_every_client(tmp_path: Path) -> None:
    rows = [f"{k},{k % 2},{client}" for client, count in (("a", 10), ("b", 5), ("c", 1)) for k in range(count)]
    (tmp_path / "a.csv").write_text("\n".join(["x,y,who", *rows]))
    data = table(tmp_path / "a.csv", label="y", client="who", test_fraction=0.2, seed=1)
    assert data.train.ids is not None
    assert data.test.ids is not None
    assert np.bincount(data.train.ids).tolist() == [8, 4, 1]
    assert np.bincount(data.test.ids).tolist() == [2, 1]
    other = table(tmp_path / "a.csv", label="y", client="who", test_fraction=0.2, seed=2)
    assert not torch.equal(data.test.x, other.test.x)


def test_many_rows_are_read_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["fedquilt.data.sets.table"], "_VALUES", 7 * 2)
    (tmp_path / "a.csv").write_text("x,y\n" + "".join(f"{k},{k % 3}\n" for k in range(50)))
    data = table(tmp_path / "a.csv", label="y", test=tmp_path / "a.csv")
    assert data.train.x.ravel().tolist() == list(range(50))
    assert data.train.y.tolist() == [k % 3 for k in range(50)]
    (tmp_path / "a.csv").write_text("x,y\n" + "".join(f"{k if k < 33 else 'x'},0\n" for k in range(50)))
    with pytest.raises(DataError, match="line 35, column 'x': 'x' is not a number"):
        table(tmp_path / "a.csv", label="y")


def test_found_below_the_data_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pets.csv").write_text(ROWS)
    monkeypatch.setenv("FEDQUILT_DATA", str(tmp_path))
    monkeypatch.chdir("/")
    assert len(table(Path("pets.csv"), label="kind", features=("height",), test_fraction=0.5).test) == 3
    with pytest.raises(DataError, match=r"no.csv: no such file or folder; looked for: no.csv, .*/no.csv"):
        table(Path("no.csv"), label="kind")


@pytest.mark.parametrize("place", [0, 5, 10, 21])
def test_a_value_is_named_by_its_line_wherever_its_row_ends_up(tmp_path: Path, place: int) -> None:
    """Between rows there are empty lines, and a third of the rows is held out."""
    rows = [f"{'nan' if k == place else k},{k % 2}" for k in range(22)]
    (tmp_path / "a.csv").write_text("x,y\n\n" + "\n\n".join(rows) + "\n")
    with pytest.raises(DataError, match=f"a.csv: line {2 * place + 3}: a feature is missing"):
        table(tmp_path / "a.csv", label="y", test_fraction=0.3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty, or its first line is"),
        ("x,y\n", "a.csv: has no rows below its first line"),
        ("x,z\n1,2\n", "has no column 'y'; known: x, z"),
        ("y\n1\n", "has no feature columns besides y"),
        ("x,x,y\n1,2,0\n", "two columns have the same name"),
        ("x,y\n1,0\ntwo,1\n", "line 3, column 'x': 'two' is not a number"),
        ("x,y\n1,0\n,1\n", "line 3, column 'x': is empty"),
        ("x,y\n1,0\nnan,1\n", "line 3: a feature is missing, or is not a finite number"),
        ("x,y\n1,0\n1e300,1\n", "line 3: a feature is missing, or is not a finite number"),
        ("x,y\n1,0\n1\n", "line 3: 1 values, but the first line names 2"),
        ("x,y\n1,0\n1,-1\n", "line 3: the label is -1; labels start at 0"),
        ("x,y\n1,0\n1,0.5\n", "line 3: the label is 0.5, neither an integer nor text"),
        ("x,y\n1,0\n1,7\n", "line 3: the label is 7, but with 3 classes labels go from 0 to 2"),
        ("x,y\n1,cat\n1,\n", "line 3: the label is empty"),
        ('x,y\n1,0\n1,"a\n', "cannot be read"),
        ("x,y\n1,0\n1,\udcff\n", "cannot be read"),
    ],
)
def test_says_what_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a.csv").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(DataError, match=message):
        table(tmp_path / "a.csv", label="y", classes=3, test=tmp_path / "a.csv")


def test_labels_that_make_more_classes_than_rows(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n1,0\n1,2000000000\n")
    with pytest.raises(DataError, match="a label is 2000000000, so there would be more classes than rows"):
        table(tmp_path / "a.csv", label="y", test=tmp_path / "a.csv")


def test_numbers_as_targets(path: Path) -> None:
    data = table(path, label="height", features=("weight",), client="owner", test=path, classes=0)
    assert data.train.y.tolist() == [1.5, 2.5, 3.5, 4.5, 5.5]
    assert (data.train.y.dtype, data.classes) == (torch.float32, 0)
    held_out = table(path, label="weight", features=("height",), test_fraction=0.4, classes=0)
    assert sorted(held_out.train.y.tolist() + held_out.test.y.tolist()) == [10, 20, 30, 40, 50]
    assert len(held_out.test) == 2
    with pytest.raises(DataError, match=r"(row 1|line 2): the target is 'cat', not a number"):
        table(path, label="kind", features=("height",), classes=0)
    with pytest.raises(
        DataError, match=r"(row 1|line 2): the label is 1\.5, neither an integer nor text; .* set classes = 0"
    ):
        table(path, label="height", features=("weight",))


@pytest.mark.parametrize("wrong", ["nan", "inf", "1e300"])
def test_targets_are_finite(tmp_path: Path, wrong: str) -> None:
    (tmp_path / "a.csv").write_text(f"x,y\n1,0.5\n2,{wrong}\n")
    with pytest.raises(DataError, match=r"line 3: the target is .*, which is not a finite number in float32"):
        table(tmp_path / "a.csv", label="y", classes=0)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"x": ["1", "2"], "y": [0, 1]}, "column 'x': holds (large_)?string, not numbers"),
        ({"x": [1.0, None], "y": [0, 1]}, "row 2, column 'x': is empty"),
        ({"x": [1.0, 2.0], "y": [0, None]}, "row 2, column 'y': is empty"),
        ({"x": pa.array([], pa.float64()), "y": pa.array([], pa.int64())}, "has no rows"),
        ({"x": [1.0]}, "has no column 'y'"),
        ({"x": [[1.0], [2.0]], "y": [0, 1]}, "column 'x': holds list<.*>, not numbers"),
    ],
)
def test_says_what_is_wrong_in_parquet(tmp_path: Path, columns: dict[str, list[object]], message: str) -> None:
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=message):
        table(tmp_path / "a.parquet", label="y", test=tmp_path / "a.parquet")


def test_damaged_parquet(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": np.arange(1000.0), "y": np.arange(1000) % 2}), path)
    for content in (b"", b"nonsense" * 10, path.read_bytes()[:-20], path.read_bytes()[500:]):
        (tmp_path / "b.parquet").write_bytes(content)
        with pytest.raises(DataError, match=r"b.parquet: cannot be read"):
            table(tmp_path / "b.parquet", label="y")


def test_a_parquet_file_that_claims_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": np.zeros(10**6), "y": np.zeros(10**6, dtype=int)}), path)
    assert path.stat().st_size < 10**4
    monkeypatch.setenv("FEDQUILT_MEMORY", "1MB")
    with pytest.raises(DataError, match=r"1,000,000 rows of 2 columns would take .*; the limit is 1 MB"):
        table(path, label="y")


def test_parquet_needs_an_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "a.parquet").touch()
    with pytest.raises(MissingExtraError, match=r"fedquilt\[tables\]"):
        table(tmp_path / "a.parquet", label="y")


def test_other_kinds_of_file(tmp_path: Path) -> None:
    (tmp_path / "a.xlsx").touch()
    with pytest.raises(DataError, match=r"must be a file that ends in .csv, .tsv or .parquet"):
        table(tmp_path / "a.xlsx", label="y")


def test_places_on_earth(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(ROWS.replace("52.5", "152.5"))
    names: dict[str, Any] = {"label": "kind", "client": "owner", "latitude": "lat"}
    with pytest.raises(DataError, match=r"line 3, column 'lat': 152\.5 is not between −90 and 90 degrees"):
        table(tmp_path / "a.csv", longitude="lon", **names)
    with pytest.raises(DataError, match="latitude and longitude: name both"):
        table(tmp_path / "a.csv", **names)


def test_a_client_without_a_name(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(ROWS.replace(",ada,", ",,"))
    with pytest.raises(DataError, match="line 6, column 'owner': is empty"):
        table(tmp_path / "a.csv", label="kind", client="owner", features=("height",))


def test_files_with_different_columns(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n1,0\n")
    (tmp_path / "b.csv").write_text("x,z,y\n1,2,0\n")
    with pytest.raises(DataError, match=r"b.csv: examples of shape \(2,\), expected \(1,\)"):
        table(tmp_path / "a.csv", label="y", test=tmp_path / "b.csv")


names = st.lists(st.text("abc", max_size=2), max_size=30)


@given(train=names.filter(bool), test=names)
def test_clients_are_numbered_without_gaps(train: list[str], test: list[str]) -> None:
    here, there = number_clients(train, test)
    pairs = {*zip(train, here.tolist(), strict=True), *zip(test, there.tolist(), strict=True)}
    assert len(pairs) == len({name for name, _ in pairs}) == len({number for _, number in pairs})
    assert sorted(set(here.tolist())) == list(range(len(set(train))))
    assert {number for _, number in pairs} == set(range(len(pairs)))


def test_numbers_of_clients_are_ordered_as_numbers_in_every_kind_of_file(tmp_path: Path) -> None:
    owners = [10, 9, 100, 9, 2]
    pq.write_table(pa.table({"x": [1.0] * 5, "y": [0, 1, 0, 1, 0], "who": owners}), tmp_path / "a.parquet")
    rows = "".join(f"1,{k % 2},{owner}\n" for k, owner in enumerate(owners))
    (tmp_path / "a.csv").write_text(f"x,y,who\n{rows}")
    for path in (tmp_path / "a.csv", tmp_path / "a.parquet"):
        data = table(path, label="y", client="who", test=path)
        assert data.train.ids is not None
        assert data.train.ids.tolist() == [2, 1, 3, 1, 0]
    (tmp_path / "a.csv").write_text(f"x,y,who\n1,0,{'9' * 900}\n1,1,8\n")
    assert table(tmp_path / "a.csv", label="y", client="who", test=tmp_path / "a.csv").train.ids.tolist() == [1, 0]  # type: ignore[union-attr]


@pytest.mark.parametrize("column", ["kind", "owner"])
@pytest.mark.parametrize(("ending", "place"), [("csv", "line 4"), ("parquet", "row 3")])
def test_names_that_are_too_long(tmp_path: Path, column: str, ending: str, place: str) -> None:
    path = tmp_path / f"pets.{ending}"
    columns = {**COLUMNS, column: [*COLUMNS[column][:2], "x" * 1_001, *COLUMNS[column][3:]]}
    if ending == "parquet":
        pq.write_table(pa.table(columns), path)
    else:
        lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
        path.write_text("\n".join(lines))
    with pytest.raises(DataError, match=rf"{place}, column '{column}': a name of 1,001 characters; 1,000 are allowed"):
        table(path, label="kind", client="owner")


def test_parquet_with_text_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "pets.parquet"
    broken = pa.array([b"cat", b"\xff", b"dog", b"dog", b"cat"]).view(pa.string())
    pq.write_table(pa.table({**COLUMNS, "kind": broken}), path)
    with pytest.raises(DataError, match=r"pets.parquet: cannot be read"):
        table(path, label="kind", client="owner")
