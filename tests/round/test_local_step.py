"""The local step is a pure function: it can be mapped over clients and compiled, with the same result."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from fedquilt.algorithm.parts.descent import sgd
from fedquilt.algorithm.parts.losses import cross_entropy
from fedquilt.algorithm.transform import At
from fedquilt.round.local_step import EAGER, FUNCTIONAL, Batch, Carried, Recipe, local_step

LOCAL = sgd(0.1, momentum=0.9, nesterov=True, weight_decay=0.01)


def clients(module, count=4, examples=6):
    generator = torch.Generator().manual_seed(0)
    params = {name: p.detach().clone() for name, p in module.named_parameters()}
    x = torch.randn(count, examples, 8, generator=generator)
    y = torch.randint(0, 3, (count, examples), generator=generator)
    weights = torch.ones(count, examples)
    weights[1, 3:] = 0.0  # padding
    return params, x, y, weights


def one_by_one(module, steps=3):
    params, x, y, weights = clients(module)
    recipe = Recipe(module, cross_entropy(), LOCAL, FUNCTIONAL)
    rates = [torch.tensor(0.1)]
    ends = []
    for client in range(len(x)):
        now, carried = params, Carried(LOCAL.init(params), {})
        for _ in range(steps):
            batch = Batch(x[client], y[client], weights[client])
            now, carried, _ = local_step(recipe, carried, batch, At(now, params, rates))
        ends.append(now)
    return {name: torch.stack([end[name] for end in ends]) for name in params}


def all_at_once(module, wrap, steps=3):
    params, x, y, weights = clients(module)
    recipe = Recipe(module, cross_entropy(), LOCAL, FUNCTIONAL)

    def step(now, optimiser, batch_x, batch_y, batch_weights, start, rate):
        batch, at = Batch(batch_x, batch_y, batch_weights), At(now, start, [rate])
        now, carried, loss = local_step(recipe, Carried(optimiser, {}), batch, at)
        return now, carried.optimiser, loss

    mapped = wrap(torch.func.vmap(step, in_dims=(0, 0, 0, 0, 0, None, None)))
    now = {name: p.expand(len(x), *p.shape).clone() for name, p in params.items()}
    single = LOCAL.init(params)
    optimiser = torch.utils._pytree.tree_map(lambda leaf: leaf.expand(len(x), *leaf.shape).clone(), single)
    for _ in range(steps):
        now, optimiser, _ = mapped(now, optimiser, x, y, weights, params, torch.tensor(0.1))
    return now


def distance(a, b):
    return max(float((a[name] - b[name]).detach().abs().max()) for name in a)


def test_mapped_over_clients_it_is_the_loop(smooth):
    assert distance(one_by_one(smooth), all_at_once(smooth, lambda step: step)) < 1e-6


def test_compiled_it_is_the_loop(smooth, compiler):
    torch._dynamo.reset()
    compiled = all_at_once(smooth, lambda step: torch.compile(step, fullgraph=True, dynamic=False))
    assert distance(one_by_one(smooth), compiled) < 1e-6


def test_both_modes_agree_and_the_functional_one_changes_nothing(smooth):
    params, x, y, _ = clients(smooth)
    rates = [torch.tensor(0.1)]
    before = copy.deepcopy(params)
    functional = Recipe(smooth, cross_entropy(), LOCAL, FUNCTIONAL)
    pure, _, _ = local_step(functional, Carried(LOCAL.init(params), {}), Batch(x[0], y[0]), At(params, params, rates))
    assert distance(params, before) == 0.0
    own = dict(smooth.named_parameters())
    eager = Recipe(smooth, cross_entropy(), LOCAL, EAGER)
    stepped, _, _ = local_step(eager, Carried(LOCAL.init(params), {}), Batch(x[0], y[0]), At(own, params, rates))
    assert distance(pure, {name: p.detach() for name, p in stepped.items()}) < 1e-6
    assert stepped["0.weight"] is own["0.weight"]


def test_padding_has_no_weight_in_the_loss():
    loss = cross_entropy()
    outputs, targets = torch.randn(6, 3), torch.tensor([0, 1, 2, 0, 1, 2])
    weights = torch.tensor([1.0, 1.0, 1.0, 0.0, 0.0, 0.0])
    assert torch.allclose(loss(outputs, targets, weights), loss(outputs[:3], targets[:3]))


def test_weights_of_one_give_the_gradient_of_the_mean_to_the_bit():
    loss = cross_entropy()
    outputs = torch.randn(10, 3, requires_grad=True)
    targets = torch.randint(0, 3, (10,))
    (plain,) = torch.autograd.grad(loss(outputs, targets), outputs)
    (weighted,) = torch.autograd.grad(loss(outputs, targets, torch.ones(10)), outputs)
    assert torch.equal(plain, weighted)


@pytest.mark.parametrize(
    ("momentum", "nesterov", "decay"), [(0, False, 0), (0.9, False, 0), (0.9, True, 0.01), (0, False, 0.1)]
)
def test_local_descent_is_torch_sgd(smooth, momentum, nesterov, decay):
    params, x, y, _ = clients(smooth)
    local = sgd(0.1, momentum=momentum, nesterov=nesterov, weight_decay=decay)
    twin = copy.deepcopy(smooth)
    optimiser = torch.optim.SGD(twin.parameters(), lr=0.1, momentum=momentum, nesterov=nesterov, weight_decay=decay)
    recipe = Recipe(smooth, cross_entropy(), local, EAGER)
    own, carried = dict(smooth.named_parameters()), Carried(local.init(params), {})
    for _ in range(5):
        own, carried, _ = local_step(recipe, carried, Batch(x[0], y[0]), At(own, params, [torch.tensor(0.1)]))
        optimiser.zero_grad()
        nn.functional.cross_entropy(twin(x[0]), y[0]).backward()
        optimiser.step()
    assert distance(dict(twin.named_parameters()), own) < 1e-6
