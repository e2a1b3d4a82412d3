"""Wrong kinds of argument to `train` are refused in words."""

from __future__ import annotations

import inspect
import re
from dataclasses import MISSING, fields
from pathlib import Path

import pytest
from torch import nn

import fedquilt
from fedquilt.base.arguments import ArgumentError
from fedquilt.experiment.options import Options


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"method": fedquilt.fed_avg}, "train: method: must be a method, such as fedquilt.fed_avg()"),
        ({"method": "fed_avg"}, "train: method: must be a method, such as fedquilt.fed_avg(), got 'fed_avg'"),
        ({"engine": "inline"}, "train: engine: must be an engine, such as inline(), got 'inline'"),
        (
            {"partition": [[0, 1], [2]]},
            "train: partition: must be a fedquilt.Partition; create one with fedquilt.Partition.of",
        ),
        ({"data": (1, 2)}, "train: data: must be a fedquilt.Data; create one with fedquilt.arrays(...), got (1, 2)"),
        ({"model": nn.Linear}, "train: model: must be a torch.nn.Module, got"),
        ({"rounds": 0}, "train: rounds: must be at least 1, got 0"),
        ({"seed": -1}, "train: seed: must be at least 0, got -1"),
        ({"stop_at": 97}, "train: stop_at: must be at most 1, got 97"),
    ],
)
def test_wrong_arguments(changed, message, blobs, unbalanced, smooth):
    arguments = {"model": smooth, "data": blobs, "partition": unbalanced, "method": fedquilt.fed_avg(), "rounds": 1}
    with pytest.raises(ArgumentError) as caught:
        fedquilt.train(**arguments | changed)
    assert str(caught.value).startswith(message)


def test_it_stops_at_the_accuracy_that_was_asked_for(blobs, unbalanced, smooth):
    method = fedquilt.fed_avg(lr=0.3, fraction=1.0)
    result = fedquilt.train(
        smooth, blobs, unbalanced, method, rounds=50, stop_at=0.9, engine=fedquilt.inline(), eval_every=2
    )
    assert len(result.history) < 50
    assert result.history.accuracy[-1] >= 0.9 > max(result.history.accuracy[:-1], default=0)
    assert result.history.rounds == list(range(2, len(result.history) + 1, 2))


def test_the_loss_on_the_training_set_is_measured_where_asked(blobs, unbalanced, smooth):
    method = fedquilt.fed_avg(fraction=0.5)
    result = fedquilt.train(smooth, blobs, unbalanced, method, rounds=1, train_loss=True, engine=fedquilt.inline())
    expected = nn.functional.cross_entropy(result.model(blobs.train.x), blobs.train.y).item()
    assert result.history.records[0]["train_loss"] == pytest.approx(expected, rel=1e-5)


def test_every_argument_of_train_is_documented():
    page = (Path(__file__).parents[2] / "docs" / "python.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", page, re.MULTILINE)
    documented = [name for row in rows for name in row.replace("`", "").split(", ")]
    assert sorted(documented) == sorted(inspect.signature(fedquilt.train).parameters)


def test_train_has_the_options_of_a_spec_with_the_same_defaults():
    signature = inspect.signature(fedquilt.train).parameters
    options = {field.name: field.default for field in fields(Options)}
    del options["import_from"]  # Python imports its own code
    assert options.pop("rounds") is MISSING
    assert signature["rounds"].default is inspect.Parameter.empty
    assert {name: signature[name].default for name in options} == options
