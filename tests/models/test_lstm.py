"""The LSTM layer with peepholes, beside its equations written out, `nn.LSTM`, and mapped over clients."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

import fedquilt
from fedquilt.data.data import IGNORED, Data
from fedquilt.engines.compiling import pays
from fedquilt.models import char_lstm
from fedquilt.models.lstm import PeepholeLSTM
from fedquilt.round.federation import Federation


def layer(peepholes: bool = True, biases: int = 1) -> PeepholeLSTM:
    torch.manual_seed(0)
    return PeepholeLSTM(3, 2, peepholes, biases).double()  # type: ignore[arg-type]


def sequences() -> torch.Tensor:
    return torch.randn(2, 4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def by_hand(layer: PeepholeLSTM, x: torch.Tensor) -> list[list[list[float]]]:
    """Compute the outputs number by number, from the equations in the module's docstring."""
    w, u, b = (p.tolist() for p in (layer.weight_ih, layer.weight_hh, layer.bias.sum(0)))
    units = len(u[0])
    peepholes = [[0.0] * units] * 3 if layer.peepholes is None else layer.peepholes.tolist()

    def sigma(z: float) -> float:
        return 1 / (1 + math.exp(-z))

    outputs = []
    for sequence in x.tolist():
        h, c = [0.0] * units, [0.0] * units
        places = []
        for now in sequence:
            z = [
                sum(a * v for a, v in zip(w[row], now, strict=True))
                + sum(a * v for a, v in zip(u[row], h, strict=True))
                + b[row]
                for row in range(4 * units)
            ]
            new_h, new_c = [], []
            for k in range(units):
                i = sigma(z[k] + peepholes[0][k] * c[k])
                f = sigma(z[units + k] + peepholes[1][k] * c[k])
                g = math.tanh(z[2 * units + k])
                new_c.append(f * c[k] + i * g)
                o = sigma(z[3 * units + k] + peepholes[2][k] * new_c[k])
                new_h.append(o * math.tanh(new_c[k]))
            h, c = new_h, new_c
            places.append(h)
        outputs.append(places)
    return outputs


@pytest.mark.parametrize("peepholes", [True, False])
@pytest.mark.parametrize("biases", [1, 2])
def test_it_computes_its_equations(peepholes: bool, biases: int) -> None:
    made, x = layer(peepholes, biases), sequences()
    torch.testing.assert_close(made(x), torch.tensor(by_hand(made, x), dtype=torch.float64), rtol=1e-13, atol=1e-14)


def test_gradients_are_right_in_double_precision() -> None:
    made, x = layer(), sequences().requires_grad_()
    names = [name for name, _ in made.named_parameters()]

    def outputs(x: torch.Tensor, *values: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = torch.func.functional_call(made, dict(zip(names, values, strict=True)), (x,))
        return result

    assert torch.autograd.gradcheck(outputs, (x, *made.parameters()))


def test_without_peepholes_it_is_torchs() -> None:
    made, x = layer(peepholes=False, biases=2), sequences()
    theirs = nn.LSTM(3, 2, batch_first=True).double()
    with torch.no_grad():
        theirs.get_parameter("weight_ih_l0").copy_(made.weight_ih)
        theirs.get_parameter("weight_hh_l0").copy_(made.weight_hh)
        theirs.get_parameter("bias_ih_l0").copy_(made.bias[0])
        theirs.get_parameter("bias_hh_l0").copy_(made.bias[1])
    torch.testing.assert_close(made(x), theirs(x)[0])


@pytest.fixture(scope="module")
def lines() -> Data:
    rng = np.random.default_rng(0)
    text = (rng.integers(0, 7, size=(60, 1)) + np.arange(9)) % 7
    x, y = text[:, :-1].copy(), text[:, 1:].copy()
    y[::3, 5:] = IGNORED
    return fedquilt.arrays(x[:50], y[:50], x[50:], y[50:], name="lines")


def small() -> nn.Module:
    torch.manual_seed(0)
    return char_lstm(vocabulary=7, embedding=4, hidden=12, peepholes=True, biases=1)


def test_it_trains_mapped_over_clients_as_one_by_one(lines: Data) -> None:
    """Sequences with padding, clients of 3 to 25 lines, two layers."""
    held = fedquilt.Partition.by_sizes(np.arange(50), np.array([3, 25, 10, 12]))
    method = fedquilt.fed_avg(lr=1.0, fraction=1.0, epochs=2, batch=5)
    plain, mapped, processes = (
        fedquilt.train(small(), lines, held, method, rounds=3, engine=engine)
        for engine in (fedquilt.inline(), fedquilt.vectorised(block=2, workers=1), fedquilt.processes(workers=2))
    )
    assert (plain.state.vector - mapped.state.vector).abs().max() < 1e-5
    assert plain.digest == processes.digest
    assert plain.history.loss[-1] < plain.history.loss[0]


def test_auto_leaves_it_uncompiled(lines: Data) -> None:
    """Its program grows with the sequence: compiling would take longer than it saves."""
    held = fedquilt.iid(lines.train.y.numpy(), clients=5)
    federation = Federation.of(small(), lines, held, fedquilt.fed_avg(fraction=1.0), seed=1)
    assert not pays(federation, rounds=10**9)
