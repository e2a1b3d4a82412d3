"""A data set of the Hugging Face `datasets` library, from disk or from its hub.

Version 4 of the library, which the extra asks for, runs no loading scripts; nothing here can make it do so.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fedquilt.arguments import Seed
from fedquilt.data.columns import Classes, Columns, Roles, Values, data_of_columns
from fedquilt.data.data import Data
from fedquilt.data.folders import own_places
from fedquilt.data.memory import require_memory
from fedquilt.data.packaged import installed
from fedquilt.data.stratified import TestFraction
from fedquilt.errors import DataError, MissingExtraError
from fedquilt.registry import datasets


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
) -> Data:
    """A data set of the Hugging Face library, from a folder or by its name on the hub.

    `path` is a folder that `save_to_disk` wrote, as named, beside the spec or below a data folder, else a name, with
    `config` as its configuration. `label` and `client` are columns; `features` are those named, or all others: numbers, or
    one column of arrays or of images of one size. `train` and `test` are splits; where `test` is not given and no split is
    called so, `test_fraction` of every client's examples, or of every class's, are held out, chosen by `seed`. With
    `classes=0` labels are numbers, one an example or a row of them. Needs the extra `hugging_face`. Scripts of others are
    never run.

    >>> data = hugging_face("ylecun/mnist")  # doctest: +SKIP
    """
    if not installed("datasets"):
        raise MissingExtraError("hugging_face", "hugging_face")
    roles = Roles(label, features, client)
    path = str(path)
    loaded = _load(path, config)
    trained = _columns(f"{path}: {train}", _split(path, loaded, train), roles)
    test = "test" if test is None and "test" in loaded else test
    tested = None if test is None else _columns(f"{path}: {test}", _split(path, loaded, test), roles)
    return data_of_columns(Path(path).name, trained, tested, roles, classes, test_fraction, seed)


def _load(path: str, config: str | None) -> dict[str, Any]:
    """Return the splits by name."""
    import datasets as library

    places = own_places(Path(path))
    saved = [place for place in places if _is_saved(place)]
    try:
        if saved:
            loaded = library.load_from_disk(saved[0])
        else:
            loaded = library.load_dataset(path, config)
    except Exception as error:  # what goes wrong there comes in many kinds: of the network, the hub, the files
        looked = "" if saved else f"; looked for a saved one at: {', '.join(str(place) for place in places)}"
        raise DataError(f"hugging_face: {path}: cannot be loaded: {error}{looked}") from None
    return dict(loaded) if isinstance(loaded, dict) else {"train": loaded}


def _is_saved(folder: Path) -> bool:
    return (folder / "dataset_dict.json").is_file() or (folder / "state.json").is_file()


def _split(path: str, loaded: dict[str, Any], name: str) -> Any:
    if name not in loaded:
        raise DataError(f"hugging_face: {path}: has no split '{name}'; there are: {', '.join(loaded)}")
    return loaded[name]


def _columns(source: str, split: Any, roles: Roles) -> Columns:
    inputs = roles.inputs(source, split.column_names)
    if not len(split):
        raise DataError(f"{source}: has no rows")
    chosen = split.select_columns([*inputs, *roles.names]).with_format("numpy")
    first = chosen[0]
    require_memory(
        f"{source}: {len(split):,} rows", len(split) * sum(np.asarray(first[name]).nbytes for name in inputs)
    )
    read = chosen[:]
    arrays = [_numbers(source, name, read[name]) for name in inputs]
    if len(arrays) > 1 and any(values.ndim > 1 for values in arrays):
        raise DataError(f"{source}: several columns, of which some hold arrays; name one of them as `features`")
    x = arrays[0] if arrays[0].ndim > 1 else np.column_stack(arrays)
    return Columns(source, x, {name: np.asarray(read[name]) for name in roles.names})


def _numbers(source: str, name: str, values: Values) -> Values:
    """Return a column of numbers or arrays; images, which are bytes, with their channels first."""
    values = np.asarray(values)
    if values.dtype == object and not any(isinstance(value, np.ndarray) for value in values):
        raise DataError(f"{source}: column '{name}': has empty places")
    if values.dtype == object:
        raise DataError(f"{source}: column '{name}': holds arrays or images of different shapes")
    if values.dtype.kind not in "biuf":
        raise DataError(f"{source}: column '{name}': holds text, not numbers")
    if values.dtype == np.uint8 and values.ndim in (3, 4):
        return values[:, None] if values.ndim == 3 else np.moveaxis(values, -1, 1)
    return values
