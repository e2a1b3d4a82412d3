"""A data set from named columns: features, a label and, where there are, a client and a place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field
from torch import Tensor

from fedquilt.data.data import Data, Split
from fedquilt.data.numbered import number_clients
from fedquilt.data.ranges import to_range
from fedquilt.data.scale import to_unit
from fedquilt.data.stratified import stratified
from fedquilt.errors import DataError, nearest
from fedquilt.partition.partition import Indices

Values = npt.NDArray[Any]

Classes = Annotated[int, Field(ge=0)]
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
    def places(self) -> tuple[str, ...]:
        """The columns of latitude and longitude, or none."""
        if (self.latitude is None) != (self.longitude is None):
            raise DataError("latitude and longitude go together: name both columns, or neither")
        return () if self.latitude is None or self.longitude is None else (self.latitude, self.longitude)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that are values of their own: the label and the client."""
        return (self.label,) if self.client is None else (self.label, self.client)

    def inputs(self, source: str, known: Sequence[str]) -> tuple[str, ...]:
        """Return the columns of features among those there are; raise a DataError if any named column is missing."""
        wanted = [*self.names, *self.places, *(self.features or ())]
        for name in wanted:
            if name not in known:
                near = nearest(name, known) if known else "its first line names none: is it empty?"
                raise DataError(f"{source}: has no column '{name}'; {near}")
        inputs = self.features or tuple(name for name in known if name not in wanted)
        if not inputs:
            raise DataError(f"{source}: has no columns of features beside {', '.join(wanted)}")
        return inputs


@dataclass(frozen=True)
class Columns:
    """The columns of one file: `x` has a row an example, `names` the label and the client, as they are written."""

    source: str
    x: Values
    names: Mapping[str, Values]
    places: npt.NDArray[np.float64] | None = None

    def rows(self, chosen: Indices) -> Columns:
        """Take some of the rows."""
        names = {name: values[chosen] for name, values in self.names.items()}
        return Columns(self.source, self.x[chosen], names, None if self.places is None else self.places[chosen])


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
    for part in (train, test):
        if part is not None and not len(part.x):
            raise DataError(f"{part.source}: has no rows")
    both = [train] if test is None else [train, test]
    for part in both:
        _require_owners(part, roles.client)
    if train.x.shape[1:] != both[-1].x.shape[1:]:
        raise DataError(f"{both[-1].source}: examples of shape {both[-1].x.shape[1:]}, expected {train.x.shape[1:]}")
    y, count = _targets([(part.source, part.names[roles.label]) for part in both], classes)
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
    first, second = (
        Split(_tensor(part.source, x), torch.from_numpy(labels), None if ids is None else ids[place], part.places)
        for place, (part, x, labels) in enumerate(zip(both, xs, y, strict=True))
    )
    return Data(name, first, second, classes=count, prepare=to_unit if first.x.dtype == torch.uint8 else None)


def _require_owners(part: Columns, client: str | None) -> None:
    """Refuse a client without a name: text that is empty, or a number that is none."""
    for row, name in enumerate([] if client is None else part.names[client], start=1):
        if name is None or name == "" or (isinstance(name, float | np.floating) and np.isnan(name)):
            raise DataError(f"{part.source}: row {row}, column '{client}': is empty")


def _tensor(source: str, x: Values) -> Tensor:
    if x.dtype == np.uint8:  # images stay bytes
        return torch.from_numpy(np.ascontiguousarray(x))
    with np.errstate(over="ignore"):
        single = x.astype(np.float32)
    if not np.isfinite(single).all():
        row = np.flatnonzero(~np.isfinite(single.reshape(len(x), -1)).all(axis=1))[0]
        raise DataError(f"{source}: row {row + 1}: a feature is missing, or no finite number in single precision")
    return torch.from_numpy(single)


def _targets(parts: Sequence[tuple[str, Values]], classes: int | None) -> tuple[list[Values], int]:
    """Return what is to be learnt, as single precision numbers where there are no classes."""
    if classes != 0:
        return number_labels(parts, classes)
    numbers = [_finite(source, values) for source, values in parts]
    if numbers[0].shape[1:] != numbers[-1].shape[1:]:
        raise DataError(f"{parts[-1][0]}: targets of shape {numbers[-1].shape[1:]}, expected {numbers[0].shape[1:]}")
    return numbers, 0


def _finite(source: str, values: Values) -> npt.NDArray[np.float32]:
    if values.dtype.kind not in "biufOSU" or values.ndim > 2:
        raise DataError(f"{source}: targets must be numbers, one an example or a row of them")
    try:
        with np.errstate(over="ignore"):
            numbers = values.astype(np.float64).astype(np.float32)
    except (TypeError, ValueError):
        row, wrong = next((row, value) for row, value in enumerate(values, start=1) if not _is_number(value))
        raise DataError(f"{source}: row {row}: the target is {str(wrong)!r}, not a number") from None
    finite = np.isfinite(numbers.reshape(len(numbers), -1)).all(axis=1)
    if not finite.all():
        row = int(finite.argmin())
        raise DataError(f"{source}: row {row + 1}: the target is {values[row]}, no finite number in single precision")
    return numbers


def _is_number(value: object) -> bool:
    try:
        float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False
    return True


def number_labels(parts: Iterable[tuple[str, Values]], classes: int | None) -> tuple[list[Indices], int]:
    """Return labels as whole numbers from 0, and how many classes there are.

    >>> number_labels([("train", np.array(["cat", "dog"])), ("test", np.array(["dog"]))], classes=None)
    ([array([0, 1]), array([1])], 2)
    """
    read = [(source, values, _whole(source, values)) for source, values in parts]
    if any(numbers is None for _, _, numbers in read):
        texts = [values.astype(str) for _, values, _ in read]
        for (source, _, _), text in zip(read, texts, strict=True):
            if (text == "").any():
                raise DataError(f"{source}: row {np.flatnonzero(text == '')[0] + 1}: the label is empty")
        known = np.unique(np.concatenate(texts))
        labels = [np.searchsorted(known, text).astype(np.int64) for text in texts]
        found = len(known)
    else:
        labels = [numbers for _, _, numbers in read if numbers is not None]
        found = max(int(numbers.max()) for numbers in labels) + 1
        rows = sum(len(numbers) for numbers in labels)
        if classes is None and found > rows + 1:
            raise DataError(
                f"{read[0][0]}: a label is {found - 1}, which makes more classes than there are rows ({rows}); "
                "number labels from 0, or say how many `classes` there are"
            )
    for (source, _, _), numbers in zip(read, labels, strict=True):
        if numbers.min() < 0:
            raise DataError(
                f"{source}: row {int(numbers.argmin()) + 1}: the label is {numbers.min()}; labels start at 0"
            )
        if classes is not None and numbers.max() >= classes:
            row = int(numbers.argmax()) + 1
            raise DataError(
                f"{source}: row {row}: the label is {numbers.max()}, "
                f"but with {classes} classes labels go from 0 to {classes - 1}"
            )
    return labels, classes or found


def _whole(source: str, values: Values) -> Indices | None:
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
            f"{source}: row {wrong[0] + 1}: the label is {values[wrong[0]]}, not a whole number or text; "
            "for targets that are numbers, say classes = 0"
        )
    return whole
