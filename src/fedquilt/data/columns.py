"""A data set from named columns: features, a label and, where there are, a client and coordinates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field

from fedquilt.base.arguments import InMemory
from fedquilt.base.errors import DataError, nearest
from fedquilt.base.memory import require_memory
from fedquilt.base.types import Indices
from fedquilt.data.data import Data, Split, require_countable
from fedquilt.data.labels import number_clients, stratified
from fedquilt.data.preprocess import to_range

Values = npt.NDArray[Any]

Classes = Annotated[int, Field(ge=0), InMemory]
"""How many classes there are; 0 for targets that are numbers."""


@dataclass(frozen=True)
class Roles:
    """Which column is what; without `features`, all columns that are nothing else are."""

    label: str
    features: tuple[str, ...] | None = None
    client: str | None = None
    latitude: str | None = None
    longitude: str | None = None

    @property
    def coordinates(self) -> tuple[str, ...]:
        """The columns of latitude and longitude, or none."""
        if (self.latitude is None) != (self.longitude is None):
            raise DataError("latitude and longitude: name both columns, or neither")
        return () if self.latitude is None or self.longitude is None else (self.latitude, self.longitude)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that are not features: the label and the client."""
        return (self.label,) if self.client is None else (self.label, self.client)

    def inputs(self, source: str, known: Sequence[str]) -> tuple[str, ...]:
        """Return the columns of features among those there are; raise a DataError if any named column is missing."""
        wanted, present = [*self.names, *self.coordinates, *(self.features or ())], frozenset(known)
        for name in wanted:
            if name not in present:
                raise DataError(f"{source}: has no column '{name}'; {nearest(name, known)}")
        inputs = self.features or tuple(name for name in known if name not in wanted)
        if not inputs:
            raise DataError(f"{source}: has no feature columns besides {', '.join(wanted)}")
        return inputs


@dataclass(frozen=True)
class Columns:
    """The columns of one file: `x` has a row per example, `names` the label and the client, as they are written.

    Whole numbers in `x` stay whole: symbols, or the numbers of examples that are read when they are needed. `lines` are
    those of the file that rows end on, where it has lines; else rows are counted from 1.
    """

    source: str
    x: Values
    names: Mapping[str, Values]
    coordinates: npt.NDArray[np.float64] | None = None
    lines: Indices | None = None

    def rows(self, chosen: Indices) -> Columns:
        """Take some of the rows."""
        names = {name: values[chosen] for name, values in self.names.items()}
        coordinates = None if self.coordinates is None else self.coordinates[chosen]
        lines = None if self.lines is None else self.lines[chosen]
        return Columns(self.source, self.x[chosen], names, coordinates, lines)

    def at(self, row: int) -> str:
        """Say where a row is, for a message: rows are counted from 0 here."""
        return f"{self.source}: row {row + 1}" if self.lines is None else f"{self.source}: line {self.lines[row]}"


def data_of_columns(
    name: str,
    train: Columns,
    test: Columns | None,
    roles: Roles,
    classes: int | None,
    test_fraction: float,
    seed: int,
    scale: bool = False,
) -> Data:
    """Make a data set; without a test part, a share of every client is held out or, without clients, of every class.

    Labels are whole numbers from 0, or text, which is numbered in its order; with 0 `classes` they are any numbers, and
    a share of all rows is held out. Clients are numbered in their order, those of the training part first.
    """
    require_countable(name, classes or 0)
    for part in (train, test):
        if part is not None and not len(part.x):
            raise DataError(f"{part.source}: has no rows")
    both = [train] if test is None else [train, test]
    for part in both:
        _require_finite(part)
        _require_owners(part, roles.client)
    if train.x.shape[1:] != both[-1].x.shape[1:]:
        raise DataError(f"{both[-1].source}: examples of shape {both[-1].x.shape[1:]}, expected {train.x.shape[1:]}")
    y, count, names = _targets(both, roles.label, classes)
    if test is None:
        groups = np.zeros(len(y[0]), dtype=np.int64) if classes == 0 else y[0]
        if roles.client is not None:
            groups = np.unique(train.names[roles.client], return_inverse=True)[1]
        chosen, held_out = stratified(groups, test_fraction, seed)
        both, y = [train.rows(chosen), train.rows(held_out)], [y[0][chosen], y[0][held_out]]
    ids = None
    if roles.client is not None:
        ids = number_clients(*(part.names[roles.client].tolist() for part in both))
    xs = [part.x for part in both]
    if scale:
        low, high = xs[0].min(axis=0), xs[0].max(axis=0)
        xs = [to_range(x, low, high) for x in xs]
    xs = [x if x.dtype.kind == "i" else x.astype(np.float32) for x in xs]
    first, second = (
        Split(torch.from_numpy(x), torch.from_numpy(labels), None if ids is None else ids[index], part.coordinates)
        for index, (part, x, labels) in enumerate(zip(both, xs, y, strict=True))
    )
    return Data(name, first, second, classes=count, class_names=names)


def _require_owners(part: Columns, client: str | None) -> None:
    """Refuse a client without a name: text that is empty, or a number that is none."""
    for row, name in enumerate([] if client is None else part.names[client]):
        if name is None or name == "" or (isinstance(name, float | np.floating) and np.isnan(name)):
            raise DataError(f"{part.at(row)}, column '{client}': is empty")


def _require_finite(part: Columns) -> None:
    with np.errstate(over="ignore"):
        wrong = ~np.isfinite(part.x.astype(np.float32)) if part.x.dtype.kind == "f" else np.zeros(0, dtype=bool)
    if wrong.any():
        row = int(np.flatnonzero(wrong.reshape(len(part.x), -1).any(axis=1))[0])
        raise DataError(f"{part.at(row)}: a feature is missing, or is not a finite number in float32")


def _targets(
    parts: Sequence[Columns], label: str, classes: int | None
) -> tuple[list[Values], int, tuple[str, ...] | None]:
    """Return what is to be learnt, as single precision numbers where there are no classes."""
    if classes != 0:
        return number_labels(parts, label, classes)
    numbers = [_finite(part, part.names[label]) for part in parts]
    if numbers[0].shape[1:] != numbers[-1].shape[1:]:
        raise DataError(
            f"{parts[-1].source}: targets of shape {numbers[-1].shape[1:]}, expected {numbers[0].shape[1:]}"
        )
    return numbers, 0, None


def _finite(part: Columns, values: Values) -> npt.NDArray[np.float32]:
    if values.dtype.kind not in "biufOSU" or values.ndim > 2:
        raise DataError(f"{part.source}: targets must be numbers, one or several per example")
    try:
        with np.errstate(over="ignore"):
            numbers = values.astype(np.float64).astype(np.float32)
    except (TypeError, ValueError):
        row, wrong = next((row, value) for row, value in enumerate(values) if not _is_number(value))
        raise DataError(f"{part.at(row)}: the target is {str(wrong)!r}, not a number") from None
    finite = np.isfinite(numbers.reshape(len(numbers), -1)).all(axis=1)
    if not finite.all():
        row = int(finite.argmin())
        raise DataError(f"{part.at(row)}: the target is {values[row]}, which is not a finite number in float32")
    return numbers


def _is_number(value: object) -> bool:
    try:
        float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False
    return True


def number_labels(
    parts: Sequence[Columns], label: str, classes: int | None
) -> tuple[list[Indices], int, tuple[str, ...] | None]:
    """Return labels as whole numbers from 0, how many classes there are and, where labels are text, their names.

    >>> train, test = (Columns("", np.zeros(len(pets)), {"pet": np.array(pets)}) for pets in (["cat", "dog"], ["dog"]))
    >>> number_labels([train, test], "pet", classes=None)
    ([array([0, 1]), array([1])], 2, ('cat', 'dog'))
    """
    names: list[str] = []
    read = [_whole(part, part.names[label]) for part in parts]
    if any(numbers is None for numbers in read):
        texts = [_texts(part, part.names[label]) for part in parts]
        for part, text in zip(parts, texts, strict=True):
            if (text == "").any():
                raise DataError(f"{part.at(int(np.flatnonzero(text == '')[0]))}: the label is empty")
        known = np.unique(np.concatenate(texts))
        labels = [np.searchsorted(known, text).astype(np.int64) for text in texts]
        names, found = known.tolist(), len(known)
    else:
        labels = [numbers for numbers in read if numbers is not None]
        found = max(int(numbers.max()) for numbers in labels) + 1
        rows = sum(len(numbers) for numbers in labels)
        if classes is None and found > rows + 1:
            raise DataError(
                f"{parts[0].source}: a label is {found - 1}, so there would be more classes than rows ({rows}); "
                "number labels from 0, or set `classes`"
            )
    for part, numbers in zip(parts, labels, strict=True):
        if numbers.min() < 0:
            raise DataError(f"{part.at(int(numbers.argmin()))}: the label is {numbers.min()}; labels start at 0")
        if classes is not None and numbers.max() >= classes:
            raise DataError(
                f"{part.at(int(numbers.argmax()))}: the label is {numbers.max()}, "
                f"but with {classes} classes labels go from 0 to {classes - 1}"
            )
    count = classes or found
    return labels, count, complete(names, count) if names else None


def complete(names: Sequence[str], classes: int) -> tuple[str, ...]:
    """Return names of all classes: their numbers where there are more classes than names.

    >>> complete(["cat", "dog"], 3)
    ('cat', 'dog', '2')
    """
    return (*names[:classes], *(str(number) for number in range(len(names), classes)))


def _texts(part: Columns, values: Values) -> npt.NDArray[np.str_]:
    """Return names as an array of text, in which every one takes the room of the longest."""
    if values.dtype.kind == "O":
        longest = max(len(value) if isinstance(value, str | bytes) else 32 for value in values)
        require_memory(
            f"{part.source}: {len(values):,} labels of up to {longest:,} characters", 8 * longest * len(values)
        )
    return values.astype(str)


def _whole(part: Columns, values: Values) -> Indices | None:
    """Return labels that are whole numbers as such, None if they are text."""
    if values.dtype.kind in "OSU":
        try:
            values = values.astype(np.float64)
        except ValueError:
            return None
    with np.errstate(invalid="ignore"):
        whole = values.astype(np.int64)
    wrong = np.flatnonzero(whole != values)
    if len(wrong):
        raise DataError(
            f"{part.at(int(wrong[0]))}: the label is {values[wrong[0]]}, neither an integer nor text; "
            "for numerical targets, set classes = 0"
        )
    return whole
