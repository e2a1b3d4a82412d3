"""Arguments are checked against annotations, in words that say what would be right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import inf, nan
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pytest
from torch import nn

import fedquilt
from fedquilt.base.arguments import ArgumentError, BatchSize, Count, Fraction, Positive, Seed, check, takes
from fedquilt.base.registry import Registry


def step(lr: Positive, steps: Count = 1, kind: Literal["plain", "nesterov"] = "plain") -> None:
    """Stand in for a registered function."""


def problems(function: Callable[..., object], arguments: dict[str, object]) -> dict[str, str]:
    with pytest.raises(ArgumentError) as raised:
        check(function, arguments)
    return {problem.key: problem.message for problem in raised.value.problems}


def test_defaults_are_filled_in_and_whole_numbers_become_numbers() -> None:
    checked = check(step, {"lr": 1})
    assert checked == {"lr": 1.0, "steps": 1, "kind": "plain"}
    assert type(checked["lr"]) is float


def test_every_problem_is_listed() -> None:
    assert problems(step, {"steps": 0, "kind": "heavy", "stepz": 1}) == {
        "lr": "is required",
        "steps": "must be at least 1, got 0",
        "kind": "must be one of 'plain' or 'nesterov', got 'heavy'",
        "stepz": "unknown key; did you mean 'steps'? (known: kind, lr, steps)",
    }


def test_error_names_the_function() -> None:
    with pytest.raises(ArgumentError, match=r"^step: lr: must be greater than 0, got 0$"):
        check(step, {"lr": 0})


def test_given_parameters_are_left_to_the_caller() -> None:
    assert check(step, {}, given=frozenset({"lr"})) == {"steps": 1, "kind": "plain"}


@pytest.mark.parametrize("value", [1, 7, inf])
def test_batch_sizes(value: float) -> None:
    def batches(batch: BatchSize) -> None: ...

    checked = check(batches, {"batch": value})["batch"]
    assert checked == value
    assert type(checked) is type(value)


@pytest.mark.parametrize("value", [0, -1, 2.0, 2.5, nan, -inf, True, "10", None, [10], np.zeros(3)])
def test_impossible_batch_sizes(value: object) -> None:
    def batches(batch: BatchSize) -> None: ...

    assert problems(batches, {"batch": value})["batch"].startswith("must be an integer of 1 or more, or inf, got ")


def test_bounds() -> None:
    def bounded(fraction: Fraction = 0.0, seed: Seed = 0) -> None: ...

    assert check(bounded, {"fraction": 1, "seed": 2**63 - 1}) == {"fraction": 1.0, "seed": 2**63 - 1}
    assert problems(bounded, {"fraction": 1.1, "seed": 2**63}).keys() == {"fraction", "seed"}


def test_long_values_are_cut_in_messages() -> None:
    message = problems(step, {"lr": list(range(1000))})["lr"]
    assert message.startswith("must be a number, got [0, 1, 2")
    assert message.endswith("...")
    assert len(message) < 120


def test_lists_become_tuples_and_text_becomes_paths() -> None:
    """TOML has neither tuples nor paths."""

    def net(shape: tuple[int, ...], folder: Path, crop: tuple[int, int] | None = None, other: Path | None = None): ...

    checked = check(net, {"shape": [1, 2, 3], "folder": "here", "crop": [4, 5], "other": "there"})
    assert checked == {"shape": (1, 2, 3), "folder": Path("here"), "crop": (4, 5), "other": Path("there")}
    assert problems(net, {"shape": [1, "a"], "folder": "here"}) == {"shape.1": "must be a whole number, got 'a'"}


def test_names_that_pydantic_reserves_are_ours_to_use() -> None:
    def net(model_config: int, copy: int = 1, _private: int = 2, schema_: int = 3) -> None: ...

    expected = {"model_config": 0, "copy": 5, "_private": 6, "schema_": 3}
    assert check(net, {"model_config": 0, "copy": 5, "_private": 6}) == expected


def test_more_keywords_are_passed_on() -> None:
    def net(width: int = 1, **more: object) -> None: ...

    assert check(net, {"depth": 3}) == {"width": 1, "depth": 3}


def test_callables_of_every_kind() -> None:
    class Plain:
        def __call__(self, width: int = 3) -> None: ...

    @dataclass
    class Unhashable:
        size: int = 1

        def __call__(self, width: int = 3) -> None: ...

    for function in (Plain(), Unhashable(), partial(lambda width, depth: None, depth=2)):
        assert check(function, {"width": 5})["width"] == 5
        assert "widht" in problems(function, {"width": 5, "widht": 5})
    assert check(nn.Linear, {"in_features": 3, "out_features": 2})["bias"] is True
    assert check(dict, {"anything": "goes"}) == {"anything": "goes"}


def test_records_that_may_be_left_out(blobs: fedquilt.Data) -> None:
    """A record among several types is taken as it is, and the other arguments are still checked."""

    def looks(width: Count = 1, data: fedquilt.Data | None = None) -> None: ...

    assert check(looks, {"data": blobs})["data"] is blobs
    assert check(looks, {})["data"] is None
    assert problems(looks, {"width": 0, "data": "blobs"}) == {
        "width": "must be at least 1, got 0",
        "data": "must be a Data, got 'blobs'",
    }


def test_parameters_that_can_be_given_by_name() -> None:
    class Net:
        def __init__(self, width: int, *, data: str) -> None: ...

    def positional(data: str, /) -> None: ...

    def anything(*width: str, **data: str) -> None: ...

    assert takes(Net, "data")
    assert takes(Net, "width")
    assert not takes(Net, "self")
    assert not takes(positional, "data")
    assert not takes(anything, "data")


def test_annotations_that_cannot_be_checked_are_left_alone() -> None:
    def unknown(x: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    def array(x: npt.NDArray[np.float64]) -> None: ...

    assert check(unknown, {"x": 3}) == {"x": 3}
    values = np.zeros(3)
    assert check(array, {"x": values})["x"] is values


def test_registered_functions_check_their_arguments_in_python_too() -> None:
    with pytest.raises(ArgumentError, match=r"fed_avg: lr: must be greater than 0, got -1"):
        fedquilt.fed_avg(lr=-1)
    with pytest.raises(ArgumentError, match="fed_avg: rate: unknown key"):
        fedquilt.fed_avg(rate=1)  # type: ignore[call-arg]


def test_registry_by_name() -> None:
    shapes = Registry("shape")

    @shapes.register
    def square(side: Positive) -> float:
        """The area of a square.

        More.
        """
        return side * side

    made: Any = shapes["square"]
    assert ("square" in shapes, "circle" in shapes, list(shapes)) == (True, False, ["square"])
    assert shapes.summary("square") == "The area of a square."
    assert made(3) == square(side=3) == 9.0
