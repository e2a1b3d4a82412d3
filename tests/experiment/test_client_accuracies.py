"""Accuracies of clients on their own test examples: in the metrics, in a file, and in a picture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedquilt
from fedquilt.experiment.records import read_client_accuracies
from fedquilt.experiment.sealed import DamagedError, sealed_json
from fedquilt.round.measures import QUANTILES

SPEC: dict[str, Any] = {
    "run": {"rounds": 3, "eval_every": 2},
    "data": {"name": "digits"},
    "partition": {"name": "dirichlet", "clients": 12, "alpha": 1.0, "own_test": True},
    "model": {"name": "softmax_regression", "inputs": 64},
    "method": {"name": "fed_avg", "fraction": 0.5},
    "engine": {"name": "inline"},
}


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> fedquilt.Run:
    return fedquilt.run(SPEC, out=tmp_path_factory.mktemp("runs") / "own")


def test_every_clients_accuracy_is_that_of_the_model(ended: fedquilt.Run) -> None:
    data = fedquilt.digits()
    held = fedquilt.dirichlet(data.train.y.numpy(), clients=12, alpha=1.0, own_test=True, data=data)
    assert held.test is not None
    right = (
        ended.result.model(data.prepare(data.test.x) if data.prepare else data.test.x).argmax(1) == data.test.y
    ).numpy()
    about = json.loads((ended.folder / "clients.json").read_text())
    assert about["round"] == 3
    tested = [k for k in range(12) if held.test.sizes[k]]
    assert about["clients"] == tested
    assert about["right"] == [int(right[held.test.client(k)].sum()) for k in tested]
    assert about["predictions"] == [int(held.test.sizes[k]) for k in tested]
    accuracies = [r / n for r, n in zip(about["right"], about["predictions"], strict=True)]
    assert read_client_accuracies((ended.folder / "clients.json").read_bytes()) == accuracies
    record = ended.result.history.records[-1]
    assert record["per_client_accuracy_quantiles"] == pytest.approx(np.quantile(accuracies, QUANTILES), abs=1e-6)
    assert record["per_client_accuracy_quantiles"][0] == pytest.approx(min(accuracies), abs=1e-6)


@pytest.mark.parametrize("personal", [{}, {"name": "ditto"}, {"name": "fine_tuned"}])
def test_many_clients_have_the_same_accuracies_in_worker_processes(tmp_path: Path, personal: dict[str, str]) -> None:
    """Without a model of their own, 12 or 13 of 200 clients are in a task of one of two workers."""
    changed = SPEC | {"run": {"rounds": 1}, "partition": SPEC["partition"] | {"clients": 200, "alpha": 100.0}}
    changed |= {"wrap": [personal]} if personal else {}
    files = []
    engines: list[dict[str, Any]] = [{"name": "inline"}, {"name": "processes", "workers": 2}]
    for engine in engines:
        folder = fedquilt.run(changed | {"engine": engine}, out=tmp_path / engine["name"]).folder
        files.append((folder / "clients.json").read_text())
    assert files[0] == files[1]
    assert len(json.loads(files[0])["clients"]) > 150


def test_quantiles_stand_where_the_model_is_evaluated(ended: fedquilt.Run) -> None:
    lines = [json.loads(line) for line in (ended.folder / "metrics.jsonl").read_text().splitlines()]
    assert ["per_client_accuracy_quantiles" in line for line in lines] == [False, True, True]


def test_figures_in_the_report(ended: fedquilt.Run, tmp_path: Path) -> None:
    plain = fedquilt.run(SPEC, ["partition.own_test=false"], out=tmp_path / "plain")
    assert not (plain.folder / "clients.json").exists()
    both = fedquilt.report([ended.folder, plain.folder], out=tmp_path / "both")
    assert (tmp_path / "both" / "figures" / "own-data.svg") in both.files
    one = fedquilt.report([plain.folder], out=tmp_path / "one")
    assert not (tmp_path / "one" / "figures" / "own-data.svg").exists()
    assert not any(figure.name == "own-data" for figure in one.parts[0].figures)


@pytest.mark.parametrize("right", [[1], ["a", 1]])
def test_values_that_are_not_one_for_every_client_are_damage(right: list[Any]) -> None:
    whole = {"round": 1, "clients": [0, 3], "right": [1, 2], "predictions": [2, 2]}
    assert read_client_accuracies(sealed_json(whole).encode()) == [0.5, 1.0]
    with pytest.raises(DamagedError):
        read_client_accuracies(sealed_json(whole | {"right": right}).encode())
    with pytest.raises(DamagedError):
        read_client_accuracies(b"{}")


def test_a_run_keeps_its_partition(ended: fedquilt.Run, tmp_path: Path) -> None:
    """Another run on the stored partition is the same run."""
    changed = SPEC | {"partition": {"name": "stored", "path": str(ended.folder / "partition.npz")}}
    again = fedquilt.run(changed, out=tmp_path / "again")
    assert again.result.digest == ended.result.digest
    assert (
        again.result.history.records[-1]["per_client_accuracy"]
        == ended.result.history.records[-1]["per_client_accuracy"]
    )


def test_what_is_stored_is_what_was_given(blobs: fedquilt.Data, smooth, tmp_path: Path) -> None:
    labels = blobs.train.y.numpy()
    held = fedquilt.iid(labels, clients=5)
    method = fedquilt.own_test(fedquilt.server_training(fedquilt.fed_avg(), share=0.2), holdout=0.3)
    fedquilt.train(smooth, blobs, held, method, rounds=1, engine=fedquilt.inline(), out=tmp_path)
    again = fedquilt.stored(tmp_path / "partition.npz", labels)
    assert np.array_equal(again.indices, held.indices)
    assert np.array_equal(again.offsets, held.offsets)
