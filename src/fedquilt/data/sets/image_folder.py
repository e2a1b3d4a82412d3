"""Your own images: a folder of files, and a table that says what they show and whose they are."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from fedquilt.base.arguments import Seed, Size
from fedquilt.base.errors import DataError
from fedquilt.base.registry import datasets
from fedquilt.data.data import Data, Split
from fedquilt.data.fetch.folders import own_file
from fedquilt.data.formats.csv_file import TextColumns, read_columns
from fedquilt.data.formats.image_sources import ImageFiles, class_folders
from fedquilt.data.formats.images import Ahead, Images, Scale, image_data
from fedquilt.data.labels import TestFraction, numbered, stratified

CLIENT, LATITUDE, LONGITUDE = "client", "latitude", "longitude"


@datasets.register
def image_folder(
    folder: Path,
    table: Path | None = None,
    size: Size = 224,
    path: str = "path",
    label: str = "label",
    client: str = CLIENT,
    latitude: str = LATITUDE,
    longitude: str = LONGITUDE,
    test: Path | None = None,
    test_fraction: TestFraction = 0.2,
    seed: Seed = 0,
    scale: Scale = "imagenet",
    augment: bool = True,
    cache: Path | None = None,
    ahead: Ahead = 2,
    outside: bool = False,
) -> Data:
    """Your own images: from folders named for their classes, or with a CSV table of paths, labels, clients and coordinates.

    - Without a `table`, every folder in `folder` is a class, and the images in it are its examples.
    - `table` has a line per image; `path`, `label`, `client`, `latitude` and `longitude` name its columns. The last three
      may be missing under the names that stand here. Labels and clients are any text or numbers. Its paths must not lead
      out of `folder`, neither by themselves nor by links, unless `outside`.
    - `test` is another such table, or folder, of the images to test on; without it, `test_fraction` of every class are
      held out, and `seed` decides which.
    - `size` is the side of the model's input, `scale` what becomes of the pixels, `augment` whether training sees random
      crops; `cache` is a folder for decoded images; `ahead` batches are made ready while the model trains.

    Relative paths of images begin at `folder`; that of the test table as the table's own.

    >>> import tempfile
    >>> from PIL import Image
    >>> with tempfile.TemporaryDirectory() as name:
    ...     home = Path(name)
    ...     for i in range(4):
    ...         Image.new("RGB", (40, 30), (60 * i, 0, 0)).save(home / f"{i}.png")
    ...     rows = "".join(f"{i}.png,{'oak' if i % 2 else 'elm'},{i // 2}\\n" for i in range(4))
    ...     _ = (home / "table.csv").write_text("path,label,client\\n" + rows)
    ...     data = image_folder(home, home / "table.csv", size=24, test_fraction=0.5)
    ...     data, data.prepare(data.train.x).shape, data.train.ids.tolist()
    (Data(image_folder: 2 to train, 2 to test, 2 classes), torch.Size([2, 3, 24, 24]), [0, 1])
    """
    home, tables = _folder(folder), [file for file in (table, test) if file is not None]
    homes = [home]
    if table is None:
        homes += [] if test is None else [_folder(test)]
        read = [dict(zip((path, label), class_folders(each), strict=True)) for each in homes]
    else:
        names = [path, label, client, latitude, longitude]
        read = [read_columns(own_file(table), names, optional=(CLIENT, LATITUDE, LONGITUDE))]
        read += [read_columns(own_file(file), list(read[0])) for file in tables[1:]]
    table = folder if table is None else table
    known = numbered(read[0][label])[1]
    if test is None:
        train, tested = stratified(numbered(read[0][label])[0], test_fraction, seed)
    else:
        train, tested = np.split(np.arange(sum(len(part[path]) for part in read)), [len(read[0][path])])
        if strange := set(read[1][label]).difference(known):
            raise DataError(f"{test}: the label {min(strange)!r} does not occur in {table}")
    home = _common(homes, read, path)
    columns: TextColumns = {name: [value for part in read for value in part[name]] for name in read[0]}
    for name in (path, label, client):
        if "" in columns.get(name, []):
            raise DataError(f"{table}: column {name!r} is empty for image {columns[name].index('') + 1}")
    if not outside:
        _require_inside(table, home, columns[path])
    labels = numbered(columns[label], known)[0]
    ids = None
    if client in columns:  # those that have something to train on come first
        ids = numbered(columns[client], first=numbered([columns[client][row] for row in train])[1])[0]
    coordinates = _coordinates(table, columns, latitude, longitude)
    to_train, to_test = (
        Split(
            torch.from_numpy(rows),
            torch.from_numpy(labels[rows]),
            None if ids is None else ids[rows],
            None if coordinates is None else coordinates[rows],
        )
        for rows in (train, tested)
    )
    advice = f"The table names it; its paths are relative to {folder}."
    files = ImageFiles(home, columns[path], advice, None if outside else homes)
    data = Data("image_folder", to_train, to_test, len(known), class_names=tuple(known))
    return image_data(data, Images(files, size, scale, cache), augment, ahead)


def _folder(path: Path) -> Path:
    """Return where a folder of the user's is."""
    found = own_file(path)
    if not found.is_dir():
        raise DataError(f"{path}: is not a folder; without a `table`, it must be a folder with one subfolder per class")
    return found


def _common(homes: list[Path], read: list[TextColumns], path: str) -> Path:
    """Return the folder where the paths of all images begin; if it is not that of the first, paths get longer."""
    if len(homes) == 1:
        return homes[0]
    common = Path(os.path.commonpath([home.absolute() for home in homes]))
    for home, part in zip(homes, read, strict=True):
        before = home.absolute().relative_to(common)
        part[path] = [str(before / name) for name in part[path]]
    return common


def _require_inside(table: Path, home: Path, names: list[str]) -> None:
    """Refuse paths that lead out of the folder by themselves; links are looked at when a file is opened."""
    root = home.absolute()
    inside = os.path.normpath(root).rstrip(os.sep) + os.sep
    for number, name in enumerate(names, start=1):
        if not os.path.normpath(root / name).startswith(inside):
            raise DataError(
                f"{table}: the path of image {number}, {name!r:.100}, leads out of the folder {home}; "
                "if you trust the table, set outside = true"
            )


def _coordinates(table: Path, columns: TextColumns, latitude: str, longitude: str) -> npt.NDArray[np.float64] | None:
    given = [name for name in (latitude, longitude) if name in columns]
    if not given:
        return None
    if len(given) == 1:
        raise DataError(f"{table}: has a column {given[0]!r} only; both {latitude!r} and {longitude!r} are needed")
    return np.stack([_degrees(table, columns, latitude, 90.0), _degrees(table, columns, longitude, 180.0)], axis=1)


def _degrees(table: Path, columns: TextColumns, name: str, most: float) -> npt.NDArray[np.float64]:
    """Read degrees; where nothing is given, the coordinates are not known."""
    found = np.empty(len(columns[name]))
    for row, text in enumerate(columns[name]):
        try:
            found[row] = float(text) if text.strip() else np.nan
            right = np.isnan(found[row]) or abs(found[row]) <= most
        except ValueError:
            right = False
        if not right:
            raise DataError(
                f"{table}: column {name!r} of image {row + 1} must be in degrees from {-most:g} to {most:g}, "
                f"got {text!r}"
            )
    return found
