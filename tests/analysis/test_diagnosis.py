"""The diagnosis of a round, on models whose disagreement is known."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch import nn

import fedquilt
from fedquilt.analysis.diagnosis import diagnose
from fedquilt.analysis.excess_risk import excess_risk
from fedquilt.base.errors import RunError
from fedquilt.compute.layout import ModelState
from fedquilt.experiment.diagnosis import diagnose_run
from fedquilt.round.federation import Federation


def linear(weight):
    module = nn.Linear(8, 3)
    module.classifier_layer = ""
    with torch.no_grad():
        module.weight.zero_()
        module.bias.copy_(torch.tensor(weight))
    return module


def test_conflicts_and_divergence_by_hand(blobs, unbalanced):
    """Three models with constant predictions 0, 0 and 2: of the three pairs two disagree, always."""
    biases = [[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    federation = Federation.of(linear(biases[0]), blobs, unbalanced, fedquilt.fed_avg(), 1)
    models = [federation.layout.read(linear(bias)) for bias in biases]
    found = diagnose(federation, None, models)
    assert found["conflict_rate"] == pytest.approx(2 / 3)
    # mean (2/3, 0, 1/3): distances √(1/9 + 1/9) twice, √(4/9 + 4/9) once
    distance = (2 * np.sqrt(2 / 9) + np.sqrt(8 / 9)) / 3
    assert found["divergence"]["distance"] == pytest.approx(distance, rel=1e-6)
    assert found["divergence"]["relative"] == pytest.approx(distance / np.sqrt(5 / 9), rel=1e-6)
    assert "excess_risk" not in found


def test_the_excess_risk_is_that_of_the_clients_features(blobs, unbalanced):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 3))
    net.classifier_layer = "2"
    federation = Federation.of(net, blobs, unbalanced, fedquilt.fed_avg(), 1)
    found = diagnose(federation, federation.initial, [])["excess_risk"]
    features = [torch.tanh(net[0](blobs.train.x[torch.from_numpy(unbalanced.client(k))])).detach() for k in range(6)]
    norms = [float(held.norm()) for held in features]
    means = torch.stack([held.double().mean(dim=0) for held in features])
    expected = excess_risk(net[2].weight.detach().T, norms, means, unbalanced.sizes.tolist())
    assert found["agnostic"] == pytest.approx(expected.agnostic, rel=1e-5)
    assert found["approximation"] == pytest.approx(expected.approximation, rel=1e-5)
    assert found["federated"] == pytest.approx(expected.federated, rel=1e-5)
    assert found["skew"] == pytest.approx(1.0)


def test_logged_every_evaluated_round_where_asked(blobs, unbalanced, smooth):
    method = fedquilt.fed_avg(fraction=1.0)
    result = fedquilt.train(
        smooth, blobs, unbalanced, method, rounds=4, eval_every=2, diagnose=True, engine=fedquilt.inline()
    )
    assert ["conflict_rate" in record for record in result.history] == [False, True, False, True]
    assert all(0 < record["conflict_rate"] < 1 for record in result.history.records[1::2])
    plain = fedquilt.train(smooth, blobs, unbalanced, method, rounds=4, engine=fedquilt.inline())
    assert result.digest == plain.digest


def test_a_diverged_model_is_written_as_json(blobs, unbalanced):
    federation = Federation.of(linear([0.0, 0.0, 0.0]), blobs, unbalanced, fedquilt.fed_avg(), 1)
    broken = ModelState(torch.full((27,), float("nan")), torch.zeros(0), torch.zeros(0, dtype=torch.int64))
    json.dumps(diagnose(federation, None, [broken, broken]), allow_nan=False)


SPEC = {
    "run": {"rounds": 1},
    "data": {"name": "digits"},
    "partition": {"name": "shards", "clients": 10},
    "model": {"name": "softmax_regression", "inputs": 64},
    "method": {"name": "fed_avg", "fraction": 0.5},
    "engine": {"name": "inline"},
}


def test_a_folder_is_diagnosed_and_left_as_it_was(tmp_path):
    fedquilt.run(SPEC, out=tmp_path / "run")
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    found = diagnose_run(tmp_path / "run")
    assert found["excess_risk"]["skew"] == pytest.approx(1.0)
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before


def test_a_folder_without_a_checkpoint_is_refused(tmp_path):
    ended = fedquilt.run(SPEC, out=tmp_path / "run")
    for path in (ended.folder / "checkpoints").iterdir():
        path.unlink()
    with pytest.raises(RunError, match="has no checkpoint yet"):
        diagnose_run(ended.folder)


def test_the_skew_is_that_of_the_methods_own_weights(blobs, unbalanced):
    """S = Σ p̂_k² / (n_k/n): 1 for FedAvg and FedVC, more where clients of different sizes count equally."""
    found = {}
    for name, method in {
        "fed_avg": fedquilt.fed_avg(),
        "scaffold": fedquilt.scaffold(fedquilt.fed_avg()),
        "fed_vc": fedquilt.fed_vc(fedquilt.fed_avg(batch=8), size=16),
    }.items():
        module = linear([0.0, 0.0, 0.0])
        module = nn.Sequential(module)
        module.classifier_layer = "0"
        federation = Federation.of(module, blobs, unbalanced, method, 1)
        found[name] = diagnose(federation, federation.initial, [])["excess_risk"]["skew"]
    assert found["fed_avg"] == found["fed_vc"] == pytest.approx(1.0)
    assert found["scaffold"] == pytest.approx(sum((1 / 6) ** 2 / (n / 240) for n in unbalanced.sizes.tolist()))


def test_models_that_the_server_refused_are_not_diagnosed(blobs, unbalanced, smooth):
    base = fedquilt.fed_avg(fraction=1.0)
    with pytest.warns(RuntimeWarning, match="sent NaN"):
        corrupted = fedquilt.train(
            smooth,
            blobs,
            unbalanced,
            base,
            1,
            simulate=[fedquilt.corrupt(share=0.5, kind="nan")],
            diagnose=True,
            engine=fedquilt.inline(),
        )
    (record,) = corrupted.history.records
    assert len(record["clients"]) == 3
    assert record["divergence"]["distance"] is not None
