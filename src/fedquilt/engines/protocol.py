"""What a worker may answer to a task: checked in full before anybody believes it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, get_args

from safetensors import SafetensorError

from fedquilt.core.client import Kind
from fedquilt.core.tensors import from_bytes
from fedquilt.core.transform import State
from fedquilt.engines.frames import ProtocolError

WHOLE, FLOAT, NUMBER = frozenset({int}), frozenset({float}), frozenset({int, float})
COLUMNS = {"clients": WHOLE, "slots": WHOLE, "weights": FLOAT, "losses": FLOAT, "steps": WHOLE, "examples": WHOLE}
"""What is said of a block besides its values."""

SINGLE = {"client": WHOLE, "slot": WHOLE, "weight": FLOAT, "loss": FLOAT, "steps": WHOLE, "examples": WHOLE}
"""What is said of one client's update besides its values."""

_KINDS = frozenset(get_args(Kind))


def read(message: bytes) -> Any:
    """Read what a worker said."""
    try:
        return json.loads(message)
    except (ValueError, RecursionError):
        raise ProtocolError("its message is not JSON") from None


def read_more(message: bytes) -> State:
    """Read the tensors that go with it."""
    try:
        return from_bytes(message)
    except (SafetensorError, ValueError, TypeError, AttributeError, KeyError):
        raise ProtocolError("its message holds no tensors") from None


def check(task: Mapping[str, Any], said: Any, more: State) -> None:
    """Raise a ProtocolError unless this answers the task.

    >>> task = {"do": "train", "clients": [4], "slots": [0]}
    >>> check(task, {"answers": [{"client": 4, "slot": 9, "fault": "late", "kind": "error"}]}, {})
    Traceback (most recent call last):
    fedquilt.engines.frames.ProtocolError: it answered for other clients than it was given
    """
    try:
        if task["do"] == "train":
            _check_training(task, said, more)
        elif not (isinstance(said, dict) and isinstance(said["error"], str)):
            for each in said if task["do"] == "own" else [said]:
                if task["do"] == "own" and isinstance(each, dict):
                    _check_fault(each, set())
                else:
                    _check_counted(each)
            if task["do"] == "own" and len(said) != len(task["clients"]):
                raise ProtocolError("it answered for other clients than it was given")
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ProtocolError("its answer has another form than a worker's") from None


def _check_training(task: Mapping[str, Any], said: Any, more: State) -> None:
    heard: list[tuple[int, int]] = []
    rows = 0
    for about in said["answers"]:
        if "fault" in about:
            _check_fault(about, {"client", "slot"})
            heard.append((about["slot"], about["client"]))
        elif "clients" in about:
            _require(about.keys() == COLUMNS.keys())
            _require(all({*map(type, about[name])} <= types for name, types in COLUMNS.items()))
            _require(len({len(column) for column in about.values()}) == 1)
            heard += zip(about["slots"], about["clients"], strict=True)
            rows += len(about["clients"])
        else:
            _require(about.keys() == SINGLE.keys())
            _require(all(type(about[name]) in types for name, types in SINGLE.items()))
            heard.append((about["slot"], about["client"]))
            rows += 1
    if sorted(heard) != sorted(zip(task["slots"], task["clients"], strict=True)):
        raise ProtocolError("it answered for other clients than it was given")
    for row, besides in more.items():
        _require(int(row) in range(rows) and isinstance(besides, dict) and besides.keys() <= {"keep", "told"})
        _require(all(isinstance(table, dict) for table in besides.values()))


def _check_fault(about: dict[str, Any], who: set[str]) -> None:
    _require(about.keys() == {"fault", "kind"} | who and about["kind"] in _KINDS and isinstance(about["fault"], str))


def _check_counted(counted: Any) -> None:
    loss, right, predictions, sums = counted
    _require(type(loss) in NUMBER and (right is None or type(right) is int) and type(predictions) is int)
    _require(all(type(each) in NUMBER for each in sums))


def _require(holds: bool) -> None:
    if not holds:
        raise ValueError
