"""A data set of the Hugging Face `datasets` library, from disk or from its hub.

Version 4 of the library, which the extra asks for, runs no loading scripts; nothing here can make it do so.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedquilt.base.arguments import Seed, Size
from fedquilt.base.errors import DataError, optional
from fedquilt.base.memory import require_memory
from fedquilt.base.registry import datasets
from fedquilt.data.columns import Classes, Columns, Roles, Values, complete, data_of_columns
from fedquilt.data.data import Data
from fedquilt.data.fetch.folders import own_candidates
from fedquilt.data.files import require_regular
from fedquilt.data.formats.image_sources import ImageRows
from fedquilt.data.formats.images import Ahead, Images, Scale, image_data
from fedquilt.data.labels import TestFraction


@datasets.register
def hugging_face(
    path: Path | str,
    label: str = "label",
    features: tuple[str, ...] | None = None,
    client: str | None = None,
    config: str | None = None,
    train: str = "train",
    test: str | None = None,
    test_fraction: TestFraction = 0.2,
    classes: Classes | None = None,
    seed: Seed = 0,
    size: Size | None = None,
    scale: Scale = "unit",
    augment: bool = True,
    cache: Path | None = None,
    ahead: Ahead = 2,
    outside: bool = False,
) -> Data:
    """A data set of the Hugging Face library, from a folder or by its name on the hub.

    - `path` is a folder that `save_to_disk` wrote, as named, beside the spec or below a data folder, else a name, with
      `config` as its configuration. Scripts of others are never run.
    - `label` and `client` are columns; `features` are those named, or all others: numbers, or one column of arrays or
      of images.
    - `train` and `test` are splits; where `test` is not given and no split is called so, `test_fraction` of every
      client's examples, or of every class's, are held out, chosen by `seed`.
    - With `classes=0` labels are numbers, one per example or a row of them.
    - Images are decoded when they are needed. `size` is the side of the model's input; without it all have one size
      already, and stay as they are. `scale` is what becomes of the pixels, `augment` whether training sees random crops,
      where there is a `size`; `cache` is a folder for decoded images; `ahead` batches are made ready while the model
      trains. Images that a saved folder names by path must lie in it, unless `outside`.

    Needs the extra `hugging_face`.

    >>> data = hugging_face("ylecun/mnist")  # doctest: +SKIP
    """
    optional("datasets", "hugging_face", "hugging_face")
    roles = Roles(label, features, client)
    path = str(path)
    loaded, folder = _load(path, config)
    test = "test" if test is None and "test" in loaded else test
    splits = [(f"{path}: {name}", _split(path, loaded, name)) for name in (train, test) if name is not None]
    image = _image_column(*splits[0], roles)
    rows = None
    if image is None:
        parts = [_columns(source, split, roles) for source, split in splits]
    else:
        rows, parts = _image_rows(splits, image, roles, None if outside else folder)
    name, tested = Path(path).name, parts[1] if parts[1:] else None
    data = data_of_columns(name, parts[0], tested, roles, classes, test_fraction, seed)
    data = _named_classes(data, splits[0][1], label)
    return data if rows is None else image_data(data, Images(rows, size, scale, cache), augment, ahead)


def _named_classes(data: Data, split: Any, label: str) -> Data:
    """Add the names that the library knows for numbered classes."""
    import datasets as library

    known = split.features[label]
    if not data.classes or data.class_names is not None or not isinstance(known, library.ClassLabel):
        return data
    return replace(data, class_names=complete(known.names, data.classes))


def _load(path: str, config: str | None) -> tuple[dict[str, Any], Path | None]:
    """Return the splits by name, and the folder they were saved in, if they were."""
    import datasets as library

    candidates = own_candidates(Path(path))
    marks = ("dataset_dict.json", "state.json")
    saved = [folder for folder in candidates if any((folder / mark).is_file() for mark in marks)]
    try:
        if saved:
            for file in saved[0].rglob("*"):
                if not file.is_dir():
                    require_regular(file)
            loaded = library.load_from_disk(saved[0])
        else:
            loaded = library.load_dataset(path, config)
    except Exception as error:  # what goes wrong there comes in many kinds: of the network, the hub, the files
        looked = "" if saved else f"; looked for a saved one at: {', '.join(map(str, candidates))}"
        raise DataError(f"hugging_face: {path}: cannot be loaded: {error}{looked}") from None
    return dict(loaded) if isinstance(loaded, dict) else {"train": loaded}, saved[0] if saved else None


def _split(path: str, loaded: dict[str, Any], name: str) -> Any:
    if name not in loaded:
        raise DataError(f"hugging_face: {path}: has no split '{name}'; there are: {', '.join(loaded)}")
    return loaded[name]


def _image_column(source: str, split: Any, roles: Roles) -> str | None:
    """Return the one column of features, if it is of images."""
    import datasets as library

    inputs = roles.inputs(source, split.column_names)
    return inputs[0] if len(inputs) == 1 and isinstance(split.features[inputs[0]], library.Image) else None


def _image_rows(
    splits: list[tuple[str, Any]], image: str, roles: Roles, within: Path | None
) -> tuple[ImageRows, list[Columns]]:
    """Return the images, none of them read, and columns in which they stand by their numbers."""
    import datasets as library

    held, parts, count = [], [], 0
    for source, split in splits:
        roles.inputs(source, split.column_names)
        if not isinstance(split.features.get(image), library.Image):
            raise DataError(f"{source}: column '{image}': holds no images, unlike in {splits[0][0]}")
        _require_rows(source, split)
        held.append((source, split.select_columns([image]).cast_column(image, library.Image(decode=False))))
        numbers = np.arange(count, count + len(split))
        parts.append(Columns(source, numbers, _named(split, roles)))
        count += len(split)
    return ImageRows(image, held, within), parts


def _columns(source: str, split: Any, roles: Roles) -> Columns:
    inputs = roles.inputs(source, split.column_names)
    _require_rows(source, split)
    chosen = split.select_columns(list(inputs)).with_format("numpy")
    first = chosen[0]
    size = max(chosen.data.nbytes, len(split) * sum(np.asarray(first[name]).nbytes for name in inputs))
    require_memory(f"{source}: {len(split):,} rows", 4 * size + 130 * len(split))
    read = chosen[:]
    arrays = [_numbers(source, name, read[name]) for name in inputs]
    if len(arrays) > 1 and any(values.ndim > 1 for values in arrays):
        raise DataError(
            f"{source}: several feature columns, some of which hold arrays; choose one of them with `features`"
        )
    x = arrays[0] if arrays[0].ndim > 1 else np.column_stack(arrays)
    return Columns(source, x, _named(split, roles))


def _require_rows(source: str, split: Any) -> None:
    if not len(split):
        raise DataError(f"{source}: has no rows")


def _named(split: Any, roles: Roles) -> dict[str, Values]:
    read = split.select_columns(list(roles.names)).with_format("numpy")[:]
    return {name: np.asarray(read[name]) for name in roles.names}


def _numbers(source: str, name: str, values: Values) -> Values:
    """Return a column of numbers or arrays."""
    values = np.asarray(values)
    if values.dtype == object and not any(isinstance(value, np.ndarray) for value in values):
        raise DataError(f"{source}: column '{name}': has empty cells")
    if values.dtype == object:
        raise DataError(f"{source}: column '{name}': holds arrays of different shapes")
    if values.dtype.kind not in "biuf":
        raise DataError(f"{source}: column '{name}': holds text, not numbers")
    return values if values.dtype.kind == "f" else values.astype(np.float64)
