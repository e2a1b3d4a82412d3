"""Local training by the kernel for stacks of linear layers: as one by one but for the last bits, and alike in any block."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace

import every_method
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook

import fedquilt
from fedquilt.algorithm.context import ClientBlock
from fedquilt.algorithm.parts.sampling import Steps
from fedquilt.algorithm.penalty import Penalty
from fedquilt.compute.kernels.build import trouble
from fedquilt.compute.kernels.stack import KERNEL, stack_of
from fedquilt.engines.execution import Execution
from fedquilt.models import random_fourier
from fedquilt.round.federation import Federation

pytestmark = pytest.mark.skipif(trouble(KERNEL) is not None, reason=f"nothing can be compiled here: {trouble(KERNEL)}")

RANKS = {"krum", "median", "trimmed_mean", "fl_hc", "sign_agreement", "geometric_median"}
"""These decide by rank or threshold: a last bit can decide otherwise, so that they are compared after one round."""

PAIRS = [(name, n) for name, n in every_method.PAIRS if "layer" not in every_method.VARIANTS[name][n]]
"""Every method, with every argument but the names of another model's layers."""

TAKEN = {
    "fed_avg", "fed_avg_m", "fed_sgd", "fed_prox", "scaffold", "fed_dyn", "fed_ir", "fed_vc", "fed_adam", "fed_yogi",
    "fed_adagrad", "fed_nova", "sign_agreement", "krum", "median", "trimmed_mean", "dropout", "corrupt", "stragglers",
    "fed_avg_r",
}  # fmt: skip
"""Methods whose local steps the kernel takes, with their arguments' defaults; others may too."""


@pytest.fixture
def fourier():
    torch.manual_seed(0)
    return random_fourier(inputs=8, features=20, classes=3, sigma=0.3)


@pytest.fixture
def perceptron():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(8, 37),
        nn.ReLU(),
        nn.Sequential(nn.Linear(37, 5, bias=False), nn.ReLU(), nn.Linear(5, 3)),
    )


def train(name, variant, blobs, held, module, engine, rounds, **options):
    given = {} if variant is None else every_method.VARIANTS[name][variant]
    options["simulate"] = every_method.simulated(name, **given)
    return fedquilt.train(module, blobs, held, every_method.made(name, **given), rounds, engine=engine, **options)


def apart(one, other):
    pairs = zip(one.run.groups, other.run.groups, strict=True)
    return max(float((a.state.model.vector - b.state.model.vector).abs().max()) for a, b in pairs)


@pytest.mark.filterwarnings("ignore:.*left out of round:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:krum:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:the run has .* rounds?, but its method has no effect:RuntimeWarning")
@pytest.mark.parametrize(("name", "variant"), PAIRS)
def test_every_method_is_the_reference_but_for_the_last_bits(name, variant, blobs, unbalanced, fourier, recwarn):
    """With every argument: weights, momentum, decay, batches of one and of all. What it cannot take is trained eagerly."""
    rounds = 1 if name in RANKS else 2
    fused, plain = (
        train(name, variant, blobs, unbalanced, fourier, engine, rounds)
        for engine in (fedquilt.inline(compute="fused"), fedquilt.inline())
    )
    assert apart(fused, plain) < 3e-6
    method = every_method.made(name, **every_method.VARIANTS[name][variant])
    federation = Federation.of(fourier, blobs, unbalanced, method, 0)
    why = Execution().unfusable(federation)
    said = [str(each.message) for each in recwarn.list if 'compute = "fused"' in str(each.message)]
    assert said == ([] if why is None else [f'compute = "fused": training runs eagerly: {why}'])
    if why is not None:
        assert fused.digest == plain.digest


@pytest.mark.parametrize("name", sorted(TAKEN))
def test_methods_that_it_takes(name, blobs, unbalanced, fourier):
    federation = Federation.of(fourier, blobs, unbalanced, every_method.made(name), 0)
    assert Execution().unfusable(federation) is None


@pytest.mark.parametrize("batch", [1, 7, 13, float("inf")])
@pytest.mark.parametrize("inputs", [1, 8])
def test_one_step_agrees_to_1e_6(batch, inputs, blobs, unbalanced, perceptron):
    """Layers of widths that fill no register, batches of more rows than a register has, ReLU, one layer alone."""
    data = fedquilt.arrays(
        blobs.train.x[:, :inputs].numpy(), blobs.train.y.numpy(), blobs.test.x[:, :inputs].numpy(), blobs.test.y.numpy()
    )
    base = fedquilt.fed_avg(lr=0.1, fraction=1.0, batch=batch, momentum=0.5, weight_decay=0.01)
    one_step = replace(base, sample=Steps(1, batch)) if batch != float("inf") else base
    modules = [nn.Linear(inputs, 3, bias=False), nn.Sequential(nn.Linear(inputs, 3))]
    for module in modules + ([perceptron] if inputs == 8 else []):
        plain, fused = (
            fedquilt.train(module, data, unbalanced, one_step, rounds=1, engine=engine).state.vector
            for engine in (fedquilt.inline(), fedquilt.inline(compute="fused"))
        )
        assert (plain - fused).abs().max() < 1e-6


def test_loss_and_counts_are_those_of_the_reference(blobs, unbalanced, fourier):
    plain, fused = (
        fedquilt.train(fourier, blobs, unbalanced, fedquilt.fed_avg(fraction=1.0, epochs=2, batch=8), 2, engine=engine)
        for engine in (fedquilt.inline(), fedquilt.inline(compute="fused"))
    )
    told = ("steps", "examples", "clients", "bytes_up", "bytes_down", "applied")
    assert [[record[key] for key in told] for record in fused.history] == [
        [record[key] for key in told] for record in plain.history
    ]
    federation = Federation.of(fourier, blobs, unbalanced, fedquilt.fed_avg(fraction=1.0, epochs=2, batch=8), 1)
    site, state = federation.site, federation.start().groups[0].state
    (block,) = site.run_block(Execution(6, "fused").program(federation), state, 1, range(6), range(6), [None] * 6)
    for client, loss in zip(block.clients, block.losses, strict=True):
        assert loss == pytest.approx(site.run_client(state, 1, client, client, None).loss, abs=1e-6)


@pytest.mark.parametrize("name", ["fed_avg", "scaffold", "fed_ir", "fed_avg_r"])
def test_neither_blocks_nor_workers_nor_their_start_matter(name, blobs, unbalanced, fourier, monkeypatch):
    def digest(engine):
        return train(name, None, blobs, unbalanced, fourier, engine, 2).digest

    engines = [fedquilt.inline(compute="fused"), fedquilt.processes(2, compute="fused")]
    engines += [fedquilt.vectorised(block, workers, compute="fused") for block, workers in ((2, 1), (3, 2), (6, 2))]
    digests = {digest(engine) for engine in engines}
    if name == "fed_avg":
        digests.add(digest(fedquilt.vectorised(3, 1, start="spawn", compute="fused")))
    # Some clients' examples are made ready some steps at a time.
    monkeypatch.setattr("fedquilt.round.fused.AT_ONCE", 160)
    digests.add(digest(fedquilt.inline(compute="fused", block=6)))
    assert len(digests) == 1


@pytest.mark.parametrize(("features", "classes"), [(20, 3), (2, 3), (3, 3), (5, 9)])
def test_penalties_on_classifiers_of_any_shape(features, classes, blobs, unbalanced):
    """More classes than features, of full rank and of less, beside control variates: one step agrees to 1e-6."""
    torch.manual_seed(0)
    module = random_fourier(inputs=8, features=features, classes=classes, sigma=0.3)
    with torch.no_grad():
        module.classifier.weight[1] = 2 * module.classifier.weight[0]
    base = replace(fedquilt.fed_avg(lr=0.1, fraction=1.0, momentum=0.5), sample=Steps(1, 7))
    method = fedquilt.fed_avg_r(fedquilt.scaffold(base), alpha=0.5, beta=0.2, gamma=0.3)
    plain, fused, without = (
        fedquilt.train(module, blobs, unbalanced, method, rounds=1, engine=engine).state.vector
        for method, engine in (
            (method, fedquilt.inline()),
            (method, fedquilt.inline(compute="fused")),
            (base, fedquilt.inline()),
        )
    )
    assert (plain - fused).abs().max() < 1e-6
    assert (plain - without).abs().max() > 1e-3


def test_a_wide_classifier_is_left_to_torch(blobs, unbalanced):
    module = random_fourier(inputs=8, features=40, classes=33)
    federation = Federation.of(module, blobs, unbalanced, fedquilt.fed_avg_r(fedquilt.fed_avg()), 0)
    assert "more than 32 classes" in str(Execution().unfusable(federation))
    narrow = fedquilt.fed_avg_r(fedquilt.fed_avg(), alpha=0.0)
    assert Execution().unfusable(Federation.of(module, blobs, unbalanced, narrow, 0)) is None


def test_a_penalty_of_your_own_is_left_to_torch(blobs, unbalanced, fourier):
    def small(seen):
        return 0.1 * seen.classifier.square().sum()

    method = replace(fedquilt.fed_avg(), penalties=(Penalty("small", small),))
    assert "does not know" in str(Execution().unfusable(Federation.of(fourier, blobs, unbalanced, method, 0)))


def test_a_resumed_run_equals_an_uninterrupted_one(blobs, unbalanced, fourier, tmp_path):
    """Also in other blocks, which change nothing."""

    def go(rounds, out, engine):
        return train("scaffold", None, blobs, unbalanced, fourier, engine, rounds, out=tmp_path / out)

    go(2, "stopped", fedquilt.vectorised(2, 1, compute="fused"))
    whole = go(4, "whole", fedquilt.inline(compute="fused"))
    assert go(4, "stopped", fedquilt.vectorised(5, 2, compute="auto")).digest == whole.digest


def test_augmented_examples_are_those_of_the_reference(blobs, unbalanced, fourier):
    def shaken(x, rng):
        return x + torch.from_numpy(rng.normal(size=x.shape).astype(np.float32))

    data = replace(blobs, augment=shaken)
    plain, fused = (
        fedquilt.train(fourier, data, unbalanced, fedquilt.fed_avg(fraction=1.0, momentum=0.5), 2, engine=engine)
        for engine in (fedquilt.inline(), fedquilt.inline(compute="fused", block=4))
    )
    assert apart(plain, fused) < 3e-6


def test_cosines_of_large_numbers_are_right(unbalanced):
    """The numbers are exact, as products with powers of two: rounded, two ways to large numbers have other cosines."""
    x = np.array([[1e-3], [3.0], [-700.0], [8000.0], [1e5], [-3e7]] * 40, dtype=np.float32)
    data = fedquilt.arrays(x, np.arange(240) % 3, x[:6], [0, 1, 2, 0, 1, 2])
    torch.manual_seed(0)
    module = random_fourier(inputs=1, features=3, classes=3)
    with torch.no_grad():
        module.frequencies.copy_(torch.tensor([1.0, -0.5, 0.25]).view_as(module.frequencies))
        module.phases.zero_()
    module.phases.requires_grad_(False)
    assert stack_of(module) is None  # not all of it is trained
    module.phases.requires_grad_(True)
    method = fedquilt.fed_avg(lr=1e-9, fraction=1.0, batch=float("inf"))
    plain, fused = (
        fedquilt.train(module, data, unbalanced, method, 1, engine=engine).state.vector
        for engine in (fedquilt.inline(), fedquilt.inline(compute="fused"))
    )
    assert (plain - fused).abs().max() < 1e-6


def test_a_clients_impossible_label_is_its_own_fault(blobs, unbalanced, fourier):
    """The kernel would write outside of its memory."""

    def wrong(labels, classes):
        return labels + classes

    federation = Federation.of(fourier, blobs, unbalanced, fedquilt.fed_avg(fraction=1.0), 1)
    program = Execution(3, "fused").program(federation)
    site, state = federation.site, federation.start().groups[0].state
    datas = [replace(site._data_of(client), relabel=wrong if client == 1 else None) for client in range(3)]
    contexts = [site.context(state, 1, client, client, None) for client in range(3)]
    with pytest.raises(ValueError, match="class 4 is out of range: the model has scores for 3 classes"):
        program.train_locally(ClientBlock.of(contexts, datas), [{}])
    labels = replace(blobs.train, y=blobs.train.y + 3)
    datas = [replace(site._data_of(client), split=labels) for client in range(3)]
    with pytest.raises(ValueError, match="is out of range: the model has scores for 3 classes"):
        program.train_locally(ClientBlock.of(contexts, datas), [{}])


def test_what_is_no_stack():
    tied = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
    tied[2].weight = tied[0].weight
    hooked = nn.Linear(2, 2)
    hooked.register_forward_hook(lambda *_: None)

    class Own(nn.Linear):
        def forward(self, x):
            return super().forward(x) * 2

    patched = nn.Sequential(nn.Linear(2, 2))
    patched[0].forward = lambda x: 2 * x
    whole = nn.Sequential(nn.Linear(2, 2))
    whole.forward = lambda x: 2 * x
    buffered = nn.Sequential(nn.Linear(2, 2))
    buffered.register_buffer("seen", torch.zeros(1))
    none = [buffered, patched, whole]
    none += [
        tied,
        hooked,
        Own(2, 2),
        nn.Sequential(nn.ReLU(), nn.Linear(2, 2)),
        nn.Sequential(nn.Linear(2, 2), nn.ReLU()),
    ]
    none += [nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5), nn.Linear(2, 2)), nn.Bilinear(2, 2, 2)]
    none += [nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)), nn.Sequential(nn.Flatten(0), nn.Linear(2, 2))]
    assert [stack_of(module) for module in none] == [None] * len(none)
    assert stack_of(nn.Linear(2, 2)) is not None
    hook = register_module_forward_hook(lambda *_: None)
    assert stack_of(nn.Linear(2, 2)) is None
    hook.remove()


ACTS = {
    "raises": lambda delta: sys.exit(3),
    "sends NaN": lambda delta: delta * float("nan"),
    "sends another type": lambda delta: delta.half(),
    "dies": lambda delta: os._exit(5),
}


@dataclass(frozen=True)
class Hostile:
    """Stands where `corrupt` does, and lets one client do as it likes with its update."""

    act: object
    labels: None = None

    def hits(self, client, population, seed):
        return client == 3

    def update(self, delta, rng):
        return self.act(delta)


@pytest.mark.filterwarnings("ignore:client 3 was left out:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:worker process .* died:RuntimeWarning")
def test_who_fails_is_left_out_and_changes_nobody_elses_bits(blobs, unbalanced, perceptron):
    """In whatever way, in whatever block: of two, it shares one with the largest client."""
    digests = set()
    for name, act in ACTS.items():
        for engine in (fedquilt.vectorised(2, 2, compute="fused"), fedquilt.inline(compute="fused", block=6)):
            if name == "dies" and engine.table["name"] == "inline":
                continue
            simulate = [fedquilt.Simulation("hostile", corruption=(Hostile(act),))]
            method = fedquilt.fed_avg(lr=0.1, fraction=1.0, batch=8, momentum=0.5)
            result = fedquilt.train(perceptron, blobs, unbalanced, method, 2, engine=engine, simulate=simulate)
            assert [[left["client"] for left in record["dropped"]] for record in result.history] == [[3], [3]], name
            digests.add(result.digest)
    assert len(digests) == 1


@pytest.mark.filterwarnings("ignore:client 3 was left out:RuntimeWarning")
@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e30])
def test_an_example_that_is_no_number_costs_who_holds_it(value, blobs, unbalanced, perceptron):
    """The kernel must not lose it on its way through exponentials, maxima and ReLU."""
    x = blobs.train.x.clone()
    x[unbalanced.client(3)[0], 0] = value
    data = replace(blobs, train=replace(blobs.train, x=x))
    method = fedquilt.fed_avg(lr=0.1, fraction=1.0, batch=8)
    fused, plain = (
        fedquilt.train(perceptron, data, unbalanced, method, 1, engine=engine)
        for engine in (fedquilt.inline(compute="fused", block=6), fedquilt.inline())
    )
    assert [[left["client"] for left in record["dropped"]] for record in (*fused.history, *plain.history)] == [[3], [3]]
    assert apart(fused, plain) < 3e-6
