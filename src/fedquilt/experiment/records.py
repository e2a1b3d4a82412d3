"""What types the values of a run's files have: a record of `metrics.jsonl`, and `clients.json`."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from fedquilt.base.arguments import ArgumentError, Finite, NonNegative, check
from fedquilt.experiment.sealed import DamagedError, unsealed_json

Whole = Annotated[int, Field(ge=0, lt=2**63)]
Number = Annotated[int, Field(ge=1, lt=2**63)]
"""Of a round."""

Metrics = dict[str, Finite | None]


def _names_client(entry: dict[str, Any]) -> dict[str, Any]:
    if type(entry.get("client")) is not int or not isinstance(entry.get("reason"), str):
        raise PydanticCustomError("plain", "must have `client`, an integer, and `reason`, a string")
    return entry


def _is_group(entry: dict[str, Any]) -> dict[str, Any]:
    if type(entry.get("clients")) is not int:
        raise PydanticCustomError("plain", "must have `clients`, an integer")
    return entry


LeftOut = Annotated[dict[str, Any], AfterValidator(_names_client)]
GroupRecord = Annotated[dict[str, Any], AfterValidator(_is_group)]

# What a record without the key is taken to have: a key that is there is never null.
EMPTY: list[Any] = []
NO_METRICS: Metrics = {}


def _record(
    round: Number,  # noqa: A002 - the keys of a record
    accuracy: Finite | None,
    loss: Finite | None,
    dropped: list[LeftOut],
    applied: bool,
    seconds: NonNegative,
    bytes_down: Whole,
    bytes_up: Whole,
    train_loss: Finite | None = None,
    local_loss: float | None = None,
    validation_accuracy: Finite | None = None,
    validation_loss: Finite | None = None,
    clients: list[Whole] = EMPTY,
    steps: Whole = 0,
    examples: Whole = 0,
    batches: Whole = 0,
    gradients: Whole = 0,
    absent: list[LeftOut] = EMPTY,
    simulated_seconds: NonNegative = 0.0,
    metrics: Metrics = NO_METRICS,
    per_client_accuracy: Finite | None = None,
    per_client_accuracy_worst_tenth: Finite | None = None,
    per_client_accuracy_quantiles: Annotated[list[Finite], Field(min_length=7, max_length=7)] = EMPTY,
    groups: list[GroupRecord] = EMPTY,
    conflict_rate: Finite | None = None,
    divergence: Metrics | None = None,
    excess_risk: Metrics | None = None,
    **more: Any,
) -> None:
    """Name the keys of a record and their types; it may have more."""


def _client_accuracies(
    round: Number,  # noqa: A002
    clients: list[Whole],
    right: list[Whole | None],
    predictions: list[Whole],
) -> None:
    """Name the keys of `clients.json` and their types."""


def read_record(line: bytes) -> dict[str, Any]:
    """Read a line of `metrics.jsonl`, or raise a DamagedError that says what is wrong with it.

    >>> from fedquilt.experiment.sealed import sealed_json
    >>> read_record(sealed_json({"round": "one"}).encode())
    Traceback (most recent call last):
    fedquilt.experiment.sealed.DamagedError: round: must be a whole number, got 'one'; accuracy: is required; ...
    """
    return _typed(_record, unsealed_json(line))


def read_client_accuracies(content: bytes) -> list[float]:
    """Return clients' accuracies of the content of `clients.json`, or raise a DamagedError."""
    about = _typed(_client_accuracies, unsealed_json(content))
    right, predictions = about["right"], about["predictions"]
    if not len(right) == len(predictions) == len(about["clients"]):
        raise DamagedError("it does not have one value for every client")
    pairs = [(hits, all_) for hits, all_ in zip(right, predictions, strict=True) if all_ and hits is not None]
    return [hits / all_ for hits, all_ in pairs]


def _typed(types: Any, about: dict[str, Any]) -> dict[str, Any]:
    try:
        check(types, about)
    except ArgumentError as error:
        raise DamagedError("; ".join(f"{problem.key}: {problem.message}" for problem in error.problems)) from None
    return about
