"""Server-side training (Ozdayi 2020, §3.1): the server's share, and what it does with it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

import fedquilt
from fedquilt.base.errors import FedquiltError, SpecError
from fedquilt.partition import Partition
from fedquilt.round.federation import Federation
from fedquilt.round.server_data import take_share

INF = float("inf")
BASE = {"lr": 0.1, "fraction": 1.0, "batch": INF}


def test_the_share_is_stratified_and_taken_from_the_clients(blobs, unbalanced):
    labels = blobs.train.y.numpy()
    left, taken = take_share(unbalanced, labels, 0.1, seed=1)
    assert np.bincount(labels[taken]).tolist() == [8, 8, 8]  # a tenth of 80 each
    assert len(left) == len(unbalanced)
    assert sorted([*left.indices, *taken]) == list(range(240))
    for client in range(len(unbalanced)):
        assert set(left.client(client)) <= set(unbalanced.client(client))


def test_examples_that_belong_to_nobody_stay_nobodys(blobs):
    left, taken = take_share(Partition.of([range(0, 60), range(60, 90)]), blobs.train.y.numpy(), 0.2, seed=1)
    assert max(taken) < 90
    assert len(left.indices) + len(taken) == 90


def test_one_full_batch_step_at_the_server_by_hand(blobs, unbalanced, smooth):
    """W' = (w + Δ) − η∇F_server(w + Δ): the difference from the run without the server's step is one gradient."""
    method = fedquilt.server_training(fedquilt.fed_avg(**BASE), share=0.1, lr=0.3, batch=INF)
    result = fedquilt.train(smooth, blobs, unbalanced, method, rounds=1, engine=fedquilt.inline(), seed=3)
    federation = Federation.of(smooth, blobs, unbalanced, method, 3)
    plain = fedquilt.train(
        smooth, blobs, federation.partition, fedquilt.fed_avg(**BASE), rounds=1, engine=fedquilt.inline(), seed=3
    )
    rows = torch.from_numpy(federation.server_rows)
    loss = functional.cross_entropy(plain.model(blobs.train.x[rows]), blobs.train.y[rows])
    gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(plain.model.parameters()))])
    assert torch.allclose(result.state.vector, plain.state.vector - 0.3 * gradient, atol=1e-6)


def test_a_share_of_zero_is_the_wrapped_method():
    base = fedquilt.fed_avg()
    assert fedquilt.server_training(base, share=0.0) is base


def test_a_share_too_small_is_refused(blobs, unbalanced, smooth):
    method = fedquilt.server_training(fedquilt.fed_avg(), share=0.001)
    with pytest.raises(FedquiltError, match="leaves the server without data"):
        fedquilt.train(smooth, blobs, unbalanced, method, rounds=1, engine=fedquilt.inline())


def test_the_server_does_not_train_in_a_round_without_updates(blobs, smooth):
    """Every client sends NaN: nobody is left, and the model stays as it was, to the bit."""
    method = fedquilt.server_training(fedquilt.fed_avg(lr=0.1, fraction=1.0), share=0.5)
    held = Partition.of([range(120), range(120, 240)])
    broken = [fedquilt.corrupt(share=0.99, kind="nan")]
    with pytest.warns(RuntimeWarning, match="no client was left"), pytest.warns(RuntimeWarning, match="run diverged"):
        result = fedquilt.train(smooth, blobs, held, method, rounds=1, engine=fedquilt.inline(), simulate=broken)
    assert torch.equal(result.state.vector, torch.cat([p.detach().flatten() for p in smooth.parameters()]))
    honest = fedquilt.train(smooth, blobs, held, method, rounds=1, engine=fedquilt.inline())
    assert not torch.equal(honest.state.vector, result.state.vector)


def test_clients_without_data_leave_the_server_without_any(blobs, smooth):
    method = fedquilt.server_training(fedquilt.fed_avg(lr=0.1, fraction=1.0), share=0.01)
    with pytest.raises(FedquiltError, match="leaves the server without data"):
        fedquilt.train(smooth, blobs, Partition.of([[3], []]), method, rounds=1, engine=fedquilt.inline())


def test_training_that_diverges_at_the_server_is_an_error_with_advice(blobs, unbalanced):
    torch.manual_seed(0)
    steep = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.ReLU(), torch.nn.Linear(6, 3))
    method = fedquilt.server_training(fedquilt.fed_avg(), share=0.1, lr=1e30, batch=1, epochs=5)
    with pytest.raises(FedquiltError, match="diverged in round 1: use a smaller lr"):
        fedquilt.train(steep, blobs, unbalanced, method, rounds=1, engine=fedquilt.inline())


def test_the_servers_buffers_are_trained_too(blobs, unbalanced):
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 3))
    base = fedquilt.fed_avg(lr=0.1, fraction=1.0, batch=INF)
    federation = Federation.of(module, blobs, unbalanced, fedquilt.server_training(base, share=0.2), 1)
    plain = fedquilt.train(module, blobs, federation.partition, base, rounds=1, engine=fedquilt.inline(), seed=1)
    method = fedquilt.server_training(base, share=0.2, batch=INF)
    ours = fedquilt.train(module, blobs, unbalanced, method, rounds=1, engine=fedquilt.inline(), seed=1)
    mean = blobs.train.x[torch.from_numpy(federation.server_rows)].mean(dim=0)
    before = dict(plain.model.named_buffers())["0.running_mean"]
    after = dict(ours.model.named_buffers())["0.running_mean"]
    assert torch.allclose(after, 0.9 * before + 0.1 * mean, atol=1e-6)


def test_fed_ir_aims_at_the_servers_classes(blobs, unbalanced, smooth):
    labels = blobs.train.y.numpy()
    base = fedquilt.server_training(fedquilt.fed_avg(), share=0.1)
    federation = Federation.of(smooth, blobs, unbalanced, fedquilt.fed_ir(base, target="server"), 1)
    expected = np.bincount(labels[federation.server_rows], minlength=3) / len(federation.server_rows)
    assert torch.allclose(federation.broadcast["fed_ir"]["target"], torch.from_numpy(expected).float())
    with pytest.raises(SpecError, match="wrap the method in server_training as well"):
        Federation.of(smooth, blobs, unbalanced, fedquilt.fed_ir(fedquilt.fed_avg(), target="server"), 1)
