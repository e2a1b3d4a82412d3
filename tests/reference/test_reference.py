"""The package against scripts written from the papers alone, in double precision: five rounds, parameters to 1e-6.

Every test also runs the script without what the method adds, and asks that this ends elsewhere by a thousand times the
tolerance or more: otherwise the comparison would show nothing.
"""

from __future__ import annotations

import math

import pytest
import torch
from reference import hsu_2019, hsu_2020, mcmahan_2017, ozdayi_2020, wei_2022
from reference.federation import (
    CLIENTS,
    INF,
    ROUNDS,
    Fourier,
    cohorts,
    distance,
    draws,
    named,
    network,
    noise,
    passes,
    plain,
    trained,
)

import fedquilt

TOLERANCE = 1e-6
APART = 1e-3


def agree(method, expected, other=None, module=None):
    """Ask that the package ends where the script does, and elsewhere than the other one."""
    module = network() if module is None else module
    found = trained(module, method).model
    found = named(found) if isinstance(module, Fourier) else plain(found)
    assert distance(found, expected) < TOLERANCE
    assert other is None or distance(other, expected) > APART


def test_fed_sgd():
    agree(fedquilt.fed_sgd(lr=0.3, fraction=1.0), mcmahan_2017.fed_sgd(plain(network()), CLIENTS, 0.3, ROUNDS))


@pytest.mark.parametrize("fraction", [1.0, 0.5])
@pytest.mark.parametrize("batch", [8, INF])
@pytest.mark.parametrize("momentum", [0.0, 0.5])
@pytest.mark.parametrize("reshuffle", [True, False])
def test_fed_avg(fraction, batch, momentum, reshuffle):
    method = fedquilt.fed_avg(
        lr={"initial": 0.1, "factor": 0.9},
        fraction=fraction,
        epochs=2,
        batch=batch,
        momentum=momentum,
        reshuffle=reshuffle,
    )
    rounds = passes(method, epochs=2)
    expected = mcmahan_2017.fed_avg(plain(network()), CLIENTS, 0.1, batch, rounds, momentum, lr_decay=0.9)
    agree(method, expected, mcmahan_2017.fed_sgd(plain(network()), CLIENTS, 0.1, ROUNDS))


def test_fed_avg_with_momentum_that_lives_on():
    method = fedquilt.fed_avg(lr=0.05, fraction=0.5, epochs=2, batch=8, momentum=0.5, keep_momentum=True)
    assert len({k for cohort in cohorts(method) for k in cohort}) > 2
    expected, anew = (
        mcmahan_2017.fed_avg(plain(network()), CLIENTS, 0.05, 8, passes(method, 2), 0.5, keep_momentum=keep)
        for keep in (True, False)
    )
    agree(method, expected, anew)


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize(("fraction", "batch", "server_lr"), [(1.0, INF, 1.0), (0.5, 8, 1.0), (1.0, 8, 0.5)])
def test_fed_avg_m(nesterov, fraction, batch, server_lr):
    method = fedquilt.fed_avg_m(
        lr=0.05,
        fraction=fraction,
        epochs=2,
        batch=batch,
        server_momentum=0.7,
        nesterov=nesterov,
        server_lr=server_lr,
        weight_decay=0.004,
    )
    given = (plain(network()), CLIENTS, 0.05, batch, passes(method, 2), 0.7, server_lr, 0.004)
    forms = [hsu_2019.fed_avg_m(*given), hsu_2019.fed_avg_m_nesterov(*given)]
    agree(method, forms[nesterov], forms[not nesterov])


@pytest.mark.parametrize("momentum", [0.0, 0.7])
@pytest.mark.parametrize("size", [8, 24, 48])
def test_fed_vc(size, momentum):
    """Of the sizes 12, 40, 25 and 18: every client has 8 examples, two have 24, none has 48."""
    base = fedquilt.fed_avg_m(lr=0.05, fraction=1.0, batch=8, server_momentum=momentum, server_lr=0.8)
    method = fedquilt.fed_vc(base, size=size)
    rounds = [[(k, [rows]) for k, rows in drawn] for drawn in draws(method)]
    assert any(len({k for k, _ in drawn}) < len(drawn) for drawn in rounds)  # a client with two virtual ones
    given = {"beta": momentum, "gamma": 0.8}
    expected = hsu_2020.train(plain(network()), CLIENTS, 0.05, 8, rounds, 3, n_vc=size, **given)
    agree(method, expected, hsu_2020.train(plain(network()), CLIENTS, 0.05, 8, rounds, 3, **given))


@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize("target", ["population", "uniform", [5.0, 3.0, 2.0]])
@pytest.mark.parametrize(("batch", "momentum"), [(INF, 0.0), (8, 0.0), (8, 0.7)])
def test_fed_ir(normalise, target, batch, momentum):
    base = fedquilt.fed_avg_m(lr=0.05, fraction=1.0, epochs=2, batch=batch, server_momentum=momentum)
    method = fedquilt.fed_ir(base, target=target, normalise=normalise)
    p = {"population": None, "uniform": torch.full((3,), 1 / 3, dtype=torch.float64)}.get(
        str(target), torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    )
    rounds = [list(drawn.items()) for drawn in passes(method, 2)]
    given = (plain(network()), CLIENTS, 0.05, batch, rounds, 3)
    forms = ["equation 4", "equation 1"]
    expected = hsu_2020.train(*given, form=forms[not normalise], target=p, beta=momentum)
    agree(method, expected, hsu_2020.train(*given, form=forms[normalise], target=p, beta=momentum))
    assert distance(expected, hsu_2020.train(*given, beta=momentum)) > APART


def test_fed_vc_and_fed_ir_together():
    base = fedquilt.fed_avg_m(lr=0.05, fraction=1.0, batch=8, server_momentum=0.7)
    method = fedquilt.fed_ir(fedquilt.fed_vc(base, size=24))
    rounds = [[(k, [rows]) for k, rows in drawn] for drawn in draws(method)]
    given = (plain(network()), CLIENTS, 0.05, 8, rounds, 3)
    expected = hsu_2020.train(*given, n_vc=24, form="equation 4", beta=0.7)
    agree(method, expected, hsu_2020.train(*given, n_vc=24, beta=0.7))


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_fed_prox(momentum):
    base = fedquilt.fed_avg(lr=0.05, fraction=1.0, epochs=4, batch=INF, momentum=momentum)
    given = (named(Fourier()), CLIENTS, 0.05, 4, ROUNDS)
    expected = wei_2022.fed_prox(*given, 0.8, momentum)
    agree(fedquilt.fed_prox(base, mu=0.8), expected, wei_2022.fed_prox(*given, 0.0, momentum), Fourier())


@pytest.mark.parametrize(("centre", "radius"), [("origin", 1.9), ("start", 0.05)])
@pytest.mark.parametrize("batch", [8, INF])
def test_projected(centre, radius, batch):
    base = fedquilt.fed_avg(lr=0.1, fraction=1.0, epochs=2, batch=batch, weight_decay=5e-4)
    given = (plain(network()), CLIENTS, 0.1, batch, passes(base, 2), 5e-4)
    expected = ozdayi_2020.train(*given, radius=radius, around=centre)
    agree(fedquilt.projected(base, radius=radius, centre=centre), expected, ozdayi_2020.train(*given))


@pytest.mark.parametrize("batch", [8, INF])
def test_gradient_noise(batch):
    base = fedquilt.fed_avg(lr=0.1, fraction=1.0, epochs=2, batch=batch, weight_decay=5e-4)
    method = fedquilt.gradient_noise(base, std=0.1)
    drawn = noise(method, network(), lambda n: 2 * math.ceil(n / min(batch, n)))
    given = (plain(network()), CLIENTS, 0.1, batch, passes(base, 2), 5e-4)
    expected = ozdayi_2020.train(*given, std=0.1, noise=drawn)
    agree(method, expected, ozdayi_2020.train(*given))


def test_projection_and_noise_together():
    """Table 3's last row, with the momentum of §3.3 at the server."""
    base = fedquilt.fed_avg_m(lr=0.1, fraction=1.0, epochs=2, batch=8, server_momentum=0.5, server_lr=0.9)
    method = fedquilt.projected(fedquilt.gradient_noise(base, std=0.1), radius=1.9)
    drawn = noise(method, network(), lambda n: 2 * math.ceil(n / 8))
    given = (plain(network()), CLIENTS, 0.1, 8, passes(base, 2))
    expected = ozdayi_2020.train(*given, std=0.1, noise=drawn, radius=1.9, beta=0.5, eta=0.9)
    agree(method, expected, ozdayi_2020.train(*given, std=0.1, noise=drawn, beta=0.5, eta=0.9))
