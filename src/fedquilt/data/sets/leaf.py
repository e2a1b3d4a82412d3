"""Data in LEAF's format: JSON files of users with their examples.

Caldas et al. 2018, "LEAF: A Benchmark for Federated Settings". A file holds `users`, a list of names, `num_samples`, how
many examples each has, and `user_data`, which maps a name to its `x` and `y`. They lie in the folders `train` and `test`,
or, before LEAF splits them, in `all_data`. Letters are numbered as in the benchmark's published code (`ALL_LETTERS` in its
models/utils/language_utils.py); its task on Shakespeare is the letter that comes after 80.
"""

from __future__ import annotations

import math
from pathlib import Path
from string import ascii_lowercase, ascii_uppercase, digits
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fedquilt.base.arguments import Seed, Size
from fedquilt.base.errors import DataError
from fedquilt.base.registry import datasets
from fedquilt.data.columns import Columns, Roles, Values, data_of_columns
from fedquilt.data.data import IGNORED, Data, Split
from fedquilt.data.fetch.folders import own_file
from fedquilt.data.formats.rows import read_json
from fedquilt.data.labels import TestFraction
from fedquilt.data.unrolled import to_indices

LETTERS = "\n !\"&'(),-." + digits + ":;>?" + ascii_uppercase + "[]" + ascii_lowercase + "}"

Numbers = npt.NDArray[np.int8]

_UNKNOWN = -1
_TABLE = np.full(256, _UNKNOWN, dtype=np.int8)
_TABLE[np.frombuffer(LETTERS.encode(), dtype=np.uint8)] = np.arange(len(LETTERS))

_ROLES = Roles(label="y", client="user")


@datasets.register
def leaf(
    folder: Path,
    shape: tuple[Size, ...] | None = None,
    classes: Size | None = None,
    test_fraction: TestFraction = 0.2,
    seed: Seed = 0,
) -> Data:
    """Your own data in LEAF's format: JSON files with users and their examples (Caldas 2018).

    `folder` has folders `train` and `test`, or `all_data`, of which `test_fraction` of every user's examples are then
    held out, chosen by `seed`. It is looked for as named, beside the spec, and in the data folders. `shape` is that of an
    example, where it is to be another than in the files: `[1, 28, 28]` for FEMNIST. Examples are numbers, or, as for
    Shakespeare, texts of one length whose labels are the next letters: 80 classes, predicted at the last position.

    >>> import json, tempfile
    >>> one = {"users": ["mia"], "num_samples": [2], "user_data": {"mia": {"x": [[1, 2], [3, 4]], "y": [0, 1]}}}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for part in ("train", "test"):
    ...         (Path(folder) / part).mkdir()
    ...         _ = (Path(folder) / part / "one.json").write_text(json.dumps(one))
    ...     leaf(folder).train.x
    tensor([[1., 2.],
            [3., 4.]])
    """
    home = own_file(folder)
    parts = ("train", "test") if (home / "train").is_dir() and (home / "test").is_dir() else ("all_data",)
    if not (home / parts[0]).is_dir():
        raise DataError(
            f"{home}: has neither the folders `train` and `test` nor the folder `all_data`, which LEAF writes"
        )
    read = [read_leaf(home / part, shape) for part in parts]
    is_text = read[0].x.dtype == np.int8
    if is_text and classes not in (None, len(LETTERS)):
        raise DataError(f"classes: the letters of {home} are {len(LETTERS)} classes; remove this key")
    train, test = read if len(read) == 2 else (read[0], None)
    classes = len(LETTERS) if is_text else classes
    data = data_of_columns("leaf", train, test, _ROLES, classes, test_fraction, seed)
    return _next_letter(data) if is_text else data


def read_leaf(folder: Path, shape: tuple[int, ...] | None) -> Columns:
    """Read all JSON files of a folder, in the order of their names."""
    files = sorted(folder.glob("*.json"))
    if not files:
        raise DataError(f"{folder}: has no .json files")
    users: dict[str, tuple[Values, Values]] = {}
    for path in files:
        for user, held in _users(path):
            if user in users:
                raise DataError(f"{path}: user {user!r} is in two files, or twice in one")
            users[user] = _examples(f"{path}: user {user!r}", held, shape)
    if not users:
        raise DataError(f"{folder}: no user has any examples")
    kinds = {held[0].dtype: user for user, held in users.items()}
    if len(kinds) > 1:
        raise DataError(f"{folder}: some users have text, others numbers: {' and '.join(map(repr, kinds.values()))}")
    shapes = {held[0].shape[1:]: user for user, held in users.items()}
    if len(shapes) > 1:
        words = ", ".join(f"{of} (user {user!r})" for of, user in shapes.items())
        raise DataError(f"{folder}: examples of different shapes: {words}")
    x = np.concatenate([held[0] for held in users.values()])
    y = np.concatenate([held[1] for held in users.values()])
    names = np.repeat(np.array(list(users)), [len(held[1]) for held in users.values()])
    return Columns(str(folder), x, {"y": y, "user": names})


def _users(path: Path) -> list[tuple[str, Any]]:
    content = read_json(path)
    kinds = {"users": list, "num_samples": list, "user_data": dict}
    for key, kind in kinds.items():
        if not isinstance(content, dict) or not isinstance(content.get(key), kind):
            raise DataError(f"{path}: has no '{key}', which every LEAF file has")
    users, counts, data = (content[key] for key in kinds)
    if len(users) != len(counts):
        raise DataError(f"{path}: {len(users)} users, but {len(counts)} numbers of samples")
    for user, count in zip(users, counts, strict=True):
        held = data.get(user) if isinstance(user, str) else None
        if not isinstance(held, dict) or not all(isinstance(held.get(key), list) for key in "xy"):
            raise DataError(f"{path}: user {user!r} has no 'x' and 'y' in 'user_data'")
        if not len(held["x"]) == len(held["y"]) == count:
            sizes = f"{len(held['x'])} x and {len(held['y'])} y"
            raise DataError(f"{path}: user {user!r}: num_samples says {count}, but there are {sizes}")
    return [(user, data[user]) for user, count in zip(users, counts, strict=True) if count]


def _examples(source: str, held: dict[str, list[Any]], shape: tuple[int, ...] | None) -> tuple[Values, Values]:
    if all(isinstance(text, str) for text in held["x"]):
        return _texts(source, held, shape)
    try:
        x, y = np.array(held["x"]), np.array(held["y"])
    except ValueError:
        raise DataError(f"{source}: examples of different shapes") from None
    if x.dtype.kind == "U":
        raise DataError(
            f"{source}: x holds lists of strings, as in LEAF's Sent140. Strings can be read only if each example is one "
            "string whose label is the next character. Replace words by their numbers, and write x as lists of equal length"
        )
    for name, values in (("x", x), ("y", y)):
        if values.dtype.kind not in "biuf":
            raise DataError(f"{source}: {name} must hold numbers only")
    if y.ndim > 1:
        raise DataError(f"{source}: y has more than one label per example")
    x = x.reshape(len(y), -1) if x.ndim == 1 else x
    if shape is None:
        return x.astype(np.float32), y
    if x[:1].size != math.prod(shape) * len(x[:1]):
        raise DataError(f"{source}: examples of {x[:1].size} numbers do not fit the shape {list(shape)}")
    return x.astype(np.float32).reshape(-1, *shape), y


def _texts(source: str, held: dict[str, list[Any]], shape: tuple[int, ...] | None) -> tuple[Values, Values]:
    if shape is not None:
        raise DataError(f"shape: {source}: x holds text, which has no shape; remove this key")
    if not all(isinstance(text, str) for text in held["y"]):
        raise DataError(f"{source}: x holds text, so y must hold the next characters")
    return _letters(f"{source}: x", held["x"]), _letters(f"{source}: y", held["y"], 1)[:, 0]


def _letters(source: str, texts: list[str], length: int | None = None) -> Numbers:
    """Number the letters of texts of one length, a row each."""
    length = len(texts[0]) if length is None else length
    other = next((text for text in texts if len(text) != length), None)
    if other is not None or not length:
        raise DataError(
            f"{source}: a text of {len(other or '')} letters, expected {length or 'some'}: {other or ''!r:.40}"
        )
    together = "".join(texts)
    numbers = _TABLE[np.frombuffer(together.encode("latin-1", errors="replace"), dtype=np.uint8)]
    strange = [together[index] for index in np.flatnonzero(numbers == _UNKNOWN)]
    strange += [letter for letter in set(together) if letter > "\xff"]  # encoded as question marks
    if strange:
        raise DataError(f"{source}: {strange[0]!r} is not one of the {len(LETTERS)} characters of LEAF's alphabet")
    return numbers.reshape(len(texts), length)


def _next_letter(data: Data) -> Data:
    """Make a data set of sequences, of which the last position alone is predicted, of one whose label is that letter."""
    parts = []
    for split in (data.train, data.test):
        y = torch.full(split.x.shape, IGNORED, dtype=torch.int8)
        y[:, -1] = split.y
        parts.append(Split(split.x, y, split.ids))
    train, test = parts
    return Data(data.name, train, test, len(LETTERS), prepare=to_indices)
