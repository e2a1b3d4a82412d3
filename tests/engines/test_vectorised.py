"""Training in blocks, mapped or compiled: as one by one but for the last bits, and the same as itself to the bit."""

from __future__ import annotations

import multiprocessing
import os
import signal

import every_method
import numpy as np
import pytest
import torch
from torch import nn

import fedquilt
from fedquilt.base.errors import FedquiltError
from fedquilt.compute.tensors import from_bytes, to_bytes
from fedquilt.engines.compiling import planned_steps
from fedquilt.experiment.folder import RunFolder
from fedquilt.partition.partition import Partition
from fedquilt.round.federation import Federation
from fedquilt.round.padded import Shape, _positions

ARGUMENTS = {"fl_hc": {"rounds": 2}}
REFUSED = {"one_shot"}
METHODS = [name for name in every_method.METHODS if name not in REFUSED]
PAIRS = [(name, number) for name, number in every_method.PAIRS if name not in REFUSED]
RANKS = {"krum", "median", "trimmed_mean", "fl_hc", "sign_agreement", "geometric_median"}
"""These decide by rank or threshold: a last bit can decide otherwise, so that they are compared after one round."""


def method(name, variant=None):
    return every_method.made(name, **arguments(name, variant))


def arguments(name, variant=None):
    return ARGUMENTS.get(name, {}) if variant is None else every_method.VARIANTS[name][variant]


def train(name, blobs, held, module, engine, rounds=5, variant=None, **options):
    options["simulate"] = every_method.simulated(name, **arguments(name, variant))
    return fedquilt.train(module, blobs, held, method(name, variant), rounds=rounds, engine=engine, **options)


def test_every_argument_of_every_method_is_tried():
    """With another value than its default, and every value of those that have a few."""
    for name in every_method.METHODS:
        variants, takes = every_method.VARIANTS[name], every_method.parameters(name)
        tried = {key for variant in variants for key, value in variant.items() if value != takes[key].default}
        assert tried == set(takes), name


@pytest.mark.filterwarnings("ignore:.*left out of round:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:krum:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:the run has .* rounds?, but its method has no effect:RuntimeWarning")
@pytest.mark.parametrize(("name", "variant"), PAIRS)
def test_with_every_argument_it_is_the_reference_but_for_the_last_bits(name, variant, blobs, unbalanced, smooth):
    """Most clients' last batch is shorter than the others, so that it is padded."""
    rounds = 1 if name in RANKS else 2
    mapped, plain = (
        train(name, blobs, unbalanced, smooth, engine, rounds, variant)
        for engine in (fedquilt.vectorised(block=3, workers=1), fedquilt.inline())
    )
    for ours, reference in zip(mapped.run.groups, plain.run.groups, strict=True):
        assert (ours.state.model.vector - reference.state.model.vector).abs().max() < 3e-6


@pytest.mark.filterwarnings("ignore:the run has .* rounds?, but its method has no effect:RuntimeWarning")
@pytest.mark.parametrize("name", METHODS)
def test_it_is_the_reference_but_for_the_last_bits(name, blobs, unbalanced, smooth):
    """After one step to 1e-6, after five rounds to 1e-5, on clients of 5 to 100 examples: padded and masked."""
    engine = fedquilt.vectorised(block=3, workers=1)
    rounds = 1 if name in RANKS else 5
    mapped = train(name, blobs, unbalanced, smooth, engine, rounds)
    plain = train(name, blobs, unbalanced, smooth, fedquilt.inline(), rounds)
    for ours, reference in zip(mapped.run.groups, plain.run.groups, strict=True):
        assert (ours.state.model.vector - reference.state.model.vector).abs().max() < 1e-5
    told = {"steps", "examples", "clients", "bytes_up", "bytes_down", "applied"}
    assert [{k: r[k] for k in told} for r in mapped.history] == [{k: r[k] for k in told} for r in plain.history]


@pytest.mark.parametrize("name", ["fed_avg", "scaffold", "fed_ir", "gradient_noise", "ditto"])
def test_workers_do_not_matter_and_blocks_are_cut_by_the_plan(name, blobs, unbalanced, smooth):
    digests = {
        train(name, blobs, unbalanced, smooth, fedquilt.vectorised(block=2, workers=workers)).digest
        for workers in (1, 2, 3)
    }
    assert len(digests) == 1


@pytest.mark.parametrize("name", ["fed_avg_m", "scaffold"])
def test_a_resumed_run_equals_an_uninterrupted_one(name, blobs, unbalanced, smooth, tmp_path):
    def go(rounds, out):
        engine = fedquilt.vectorised(block=2, workers=1)
        return train(name, blobs, unbalanced, smooth, engine, rounds, out=tmp_path / out)

    go(2, "stopped")
    assert go(5, "stopped").digest == go(5, "whole").digest


def test_spawned_workers_give_the_same_bits(blobs, unbalanced, smooth):
    """As on macOS: the program is made anew by every worker."""
    digests = {
        train("fed_avg", blobs, unbalanced, smooth, fedquilt.vectorised(block=3, workers=1, start=start), 1).digest
        for start in ("fork", "spawn")
    }
    assert len(digests) == 1


def test_padding_is_the_clients_own(blobs, smooth):
    """NaN in the first example of the data concerns the client that holds it, and nobody else's padding."""
    x = blobs.train.x.numpy().copy()
    x[0] = np.nan
    data = fedquilt.arrays(x, blobs.train.y.numpy(), blobs.test.x.numpy(), blobs.test.y.numpy())
    held = Partition.of([range(20), range(20, 47), range(47, 100)])  # no size is a multiple of the batch
    method = fedquilt.fed_avg(fraction=1.0, batch=8)
    with pytest.warns(RuntimeWarning, match="client 0 was left out"):
        result = fedquilt.train(smooth, data, held, method, 1, engine=fedquilt.vectorised(block=3, workers=1))
    assert [left["client"] for left in result.history.records[0]["dropped"]] == [0]


def test_a_program_that_fails_is_told_and_not_made_up_for(blobs, unbalanced, smooth):
    def broken(*_):
        raise RuntimeError("no such operation")

    federation = Federation.of(smooth, blobs, unbalanced, fedquilt.fed_avg(batch=8), 1)
    program = fedquilt.vectorised(block=3).execution.program(federation)
    program.__dict__["_run"] = broken
    results = federation.site.run_block(program, federation.start().groups[0].state, 1, [0, 1], [0, 1], [None, None])
    assert [result.client for result in results] == [0, 1]
    assert all("cannot be trained in a block: RuntimeError: no such operation" in result.reason for result in results)


def test_one_step_agrees_to_1e_6(blobs, unbalanced, smooth):
    base = fedquilt.fed_avg(lr=0.1, fraction=1.0, batch=float("inf"), momentum=0.5, weight_decay=0.01)
    plain, mapped = (
        fedquilt.train(smooth, blobs, unbalanced, base, rounds=1, engine=engine).state.vector
        for engine in (fedquilt.inline(), fedquilt.vectorised(block=6, workers=1))
    )
    assert (plain - mapped).abs().max() < 1e-6


def test_compiled_it_is_the_reference_and_itself(compiler, blobs, unbalanced, tmp_path):
    """Whatever the workers, and resumed: unequal clients, momentum, importance, a proximal term, padded batches."""
    torch.manual_seed(0)
    module = nn.Linear(8, 3)
    base = fedquilt.fed_avg(lr=0.1, fraction=0.5, batch=16, momentum=0.5)
    algorithm = fedquilt.fed_prox(fedquilt.fed_ir(base, target="uniform", normalise=False), mu=0.1)

    def go(engine, rounds=5, **options):
        return fedquilt.train(module, blobs, unbalanced, algorithm, rounds, engine=engine, **options)

    plain = go(fedquilt.inline())
    compiled = [go(fedquilt.vectorised(block=2, workers=workers, compute="compiled")) for workers in (1, 2)]
    assert (compiled[0].state.vector - plain.state.vector).abs().max() < 1e-5
    assert compiled[0].digest == compiled[1].digest
    go(fedquilt.vectorised(block=2, workers=1, compute="compiled"), 2, out=tmp_path / "run")
    assert RunFolder(tmp_path / "run").read().tables["python"]["compute"] == "compiled"
    # What was decided at the beginning holds: the engine of the second call leaves it open, and would decide otherwise.
    resumed = go(fedquilt.vectorised(block=2, workers=1, compute="auto"), 5, out=tmp_path / "run")
    assert resumed.digest == compiled[0].digest


def test_what_clients_keep_is_not_compiled_for_anew(compiler, blobs, unbalanced, smooth):
    """A table whose order changes on its way from round to round would be another program every time."""
    torch._dynamo.reset()
    base = fedquilt.fed_avg(fraction=1.0, batch=float("inf"), momentum=0.5, keep_momentum=True)
    federation = Federation.of(smooth, blobs, unbalanced, base, 1)
    program = fedquilt.vectorised(block=2, compute="compiled").execution.program(federation)
    state, client_states = federation.start().groups[0].state, [None, None]
    before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    for round_ in range(1, 5):
        updates = federation.site.train_block(
            program, state, round_, list(zip([1, 3], [0, 1], client_states, strict=True))
        )
        client_states = [from_bytes(to_bytes(update.client_state)) for update in updates]
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] - before == 1


class Mortal(nn.Module):
    """Kills its process, which must be a worker, in a training step of the first block that comes so far; once."""

    def __init__(self, step, note):
        super().__init__()
        self.linear = nn.Linear(8, 3)
        self.left, self.note = step, note

    def forward(self, x):
        if self.training and multiprocessing.parent_process() is not None and not self.note.exists():
            self.left -= 1
            if not self.left:
                self.note.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return self.linear(x)


def test_a_worker_that_dies_in_the_middle_of_a_block_costs_no_bits(blobs, unbalanced, tmp_path):
    torch.manual_seed(0)
    module = Mortal(3, tmp_path / "died")  # the largest block has 13 steps
    base = fedquilt.fed_avg(fraction=1.0, batch=8, momentum=0.5, keep_momentum=True)

    def go(engine):
        return fedquilt.train(module, blobs, unbalanced, base, rounds=2, engine=engine)

    with pytest.warns(RuntimeWarning, match="its work is done again"):
        killed = go(fedquilt.vectorised(block=3, workers=2))
    assert (tmp_path / "died").exists()
    assert killed.digest == go(fedquilt.vectorised(block=3, workers=1)).digest
    assert all(record["dropped"] == [] for record in killed.history)


class Killer:
    """Kills all workers as soon as a block has been heard, while they are at work on the next; once."""

    killed = False

    def begin(self, history, last):
        pass

    def heard(self, clients, total):
        if clients < total and not self.killed:
            self.killed = True
            for worker in multiprocessing.active_children():
                worker.kill()

    def round(self, record):
        pass


@pytest.mark.thorough
def test_compiled_workers_that_die_in_the_middle_of_a_block_cost_no_bits(compiler, blobs, unbalanced):
    torch.manual_seed(0)
    module, base = nn.Linear(8, 3), fedquilt.fed_avg(fraction=1.0, batch=1, epochs=20)

    def go(engine, **options):
        return fedquilt.train(module, blobs, unbalanced, base, rounds=1, engine=engine, **options)

    with pytest.warns(RuntimeWarning, match="its work is done again"):
        killed = go(fedquilt.vectorised(block=2, workers=2, compute="compiled"), watcher=Killer())
    assert killed.digest == go(fedquilt.vectorised(block=2, workers=1, compute="compiled")).digest


@pytest.mark.thorough
def test_rates_and_batches_in_stages_are_resumed_in_the_middle(compiler, blobs, tmp_path):
    """Each batch size is compiled by itself: four shapes, of which torch would take two here unless told to."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    module, firsts = nn.Linear(8, 3), range(1, 5)
    held = Partition.of([range(11), range(11, 23), range(23, 31)])
    lr = {"stages": [[first, 0.2 / first] for first in firsts]}
    base = fedquilt.fed_avg(lr=lr, fraction=1.0, batch={"stages": [[first, 2 + first] for first in firsts]})

    def go(rounds, out, engine):
        with torch._dynamo.config.patch(recompile_limit=2):
            return fedquilt.train(module, blobs, held, base, rounds, engine=engine, out=tmp_path / out)

    whole = go(5, "whole", fedquilt.vectorised(block=3, workers=1, compute="compiled"))
    go(2, "stopped", fedquilt.vectorised(block=3, workers=1, compute="compiled"))
    assert go(5, "stopped", fedquilt.vectorised(block=3, workers=2, compute="compiled")).digest == whole.digest
    plain = go(5, "plain", fedquilt.inline())
    assert (whole.state.vector - plain.state.vector).abs().max() < 1e-5
    assert [record["steps"] for record in whole.history] == [record["steps"] for record in plain.history]
    assert len({record["steps"] for record in whole.history}) > 2


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:the run has .* rounds?, but its method has no effect:RuntimeWarning")
@pytest.mark.parametrize("name", METHODS)
def test_compiled_every_method_is_the_reference_but_for_the_last_bits(name, compiler, blobs, unbalanced):
    """In every engine; and the same bits inline as in processes, and with one worker as with two.

    On one layer: the compiler takes seconds for every layer of every step, and methods do not see layers.
    """
    torch._dynamo.reset()
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(8, 3))
    module.classifier_layer = "0"
    rounds = 1 if name in RANKS else 5

    def go(engine):
        return train(name, blobs, unbalanced, module, engine, rounds)

    plain, alone = go(fedquilt.inline()), go(fedquilt.inline(compute="compiled"))
    blocks = [go(fedquilt.vectorised(block=3, workers=workers, compute="compiled")) for workers in (1, 2)]
    for compiled in (alone, blocks[0]):
        for ours, reference in zip(compiled.run.groups, plain.run.groups, strict=True):
            assert (ours.state.model.vector - reference.state.model.vector).abs().max() < 1e-5
    assert go(fedquilt.processes(workers=2)).digest == plain.digest
    assert go(fedquilt.processes(workers=2, compute="compiled")).digest == alone.digest
    assert blocks[0].digest == blocks[1].digest


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (nn.Sequential(nn.BatchNorm1d(8), nn.Linear(8, 3)), "BatchNorm1d takes statistics of a batch"),
        (nn.Sequential(nn.Linear(8, 3), nn.Dropout(0.5)), "Dropout draws from torch's own generator"),
    ],
)
def test_what_cannot_be_mapped_is_refused_with_the_reason(module, reason, blobs, unbalanced):
    with pytest.raises(FedquiltError, match=reason):
        fedquilt.train(module, blobs, unbalanced, fedquilt.fed_avg(), 1, engine=fedquilt.vectorised(workers=1))


def test_a_method_that_stops_clients_by_themselves_is_refused(blobs, unbalanced, smooth):
    with pytest.raises(FedquiltError, match="one_shot stops each client when it has converged"):
        fedquilt.train(smooth, blobs, unbalanced, fedquilt.one_shot(), 1, engine=fedquilt.vectorised(workers=1))


class Touchy(nn.Module):
    """Raises where an input is larger than the limit, as a user's own check would; vmap cannot look at values."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 3)

    def forward(self, x):
        if float(x.abs().max()) > 1e6:
            raise ValueError("too large")
        return self.linear(x)


def test_a_model_that_looks_at_values_is_refused_before_the_first_round(blobs, unbalanced):
    with pytest.raises(FedquiltError, match="cannot be mapped over clients"):
        fedquilt.train(Touchy(), blobs, unbalanced, fedquilt.fed_avg(), 1, engine=fedquilt.vectorised(workers=1))


def test_a_client_without_data_and_one_with_nan_are_left_out(blobs, smooth):
    x = blobs.train.x.clone()
    x[:20] = float("nan")
    data = fedquilt.arrays(x, blobs.train.y, blobs.test.x, blobs.test.y)
    held = fedquilt.Partition.of([range(20), [], range(20, 60), range(60, 240)])
    algorithm = fedquilt.fed_avg(fraction=1.0)
    with pytest.warns(RuntimeWarning, match="left out"):
        result = fedquilt.train(smooth, data, held, algorithm, 1, engine=fedquilt.vectorised(block=4, workers=1))
    assert {d["client"]: d["reason"] for d in result.history.records[0]["dropped"]} == {
        0: "sent NaN in its update",
        1: "holds no examples",
    }


def test_augmentation_draws_are_the_reference_ones(blobs, unbalanced, smooth):
    from dataclasses import replace

    data = replace(blobs, augment=_shaken)
    plain, mapped = (
        fedquilt.train(smooth, data, unbalanced, fedquilt.fed_avg(fraction=1.0, batch=8), 2, engine=engine).state.vector
        for engine in (fedquilt.inline(), fedquilt.vectorised(block=4, workers=1))
    )
    assert (plain - mapped).abs().max() < 1e-5


def _shaken(x, rng):
    return x + torch.from_numpy(rng.standard_normal(x.shape, dtype=np.float32)) * 0.1


class Moody(nn.Module):
    """Answers otherwise in training than in evaluation, as dropout does."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 3)

    def forward(self, x):
        return self.linear(x) * (0.5 if self.training else 2.0)


def test_a_block_is_trained_in_training_mode_after_an_evaluation(blobs, unbalanced):
    torch.manual_seed(0)
    module, base = Moody(), fedquilt.fed_avg(fraction=1.0, batch=8)
    plain, mapped = (
        fedquilt.train(module, blobs, unbalanced, base, 3, engine=engine).state.vector
        for engine in (fedquilt.inline(), fedquilt.vectorised(block=3, workers=1))
    )
    assert (plain - mapped).abs().max() < 1e-5


def test_positions_of_unequal_batches():
    assert _positions(np.array([3, 3, 2]), 3).tolist() == [0, 1, 2, 3, 4, 5, 6, 7]
    assert _positions(np.array([2, 3, 1]), 3).tolist() == [0, 1, 3, 4, 5, 6]


def test_shape_is_that_of_the_largest_client():
    algorithm = fedquilt.fed_avg(epochs=3, batch=8)
    assert Shape.of(algorithm, 100, 1, most=10) == Shape(steps=10, batch=8)  # 39 steps: 4 calls of 10
    assert Shape.of(fedquilt.fed_sgd(), 100, 1, most=10) == Shape(steps=1, batch=100)


def test_auto_goes_by_the_length_of_the_run(compiler, blobs, unbalanced, smooth):
    federation = Federation.of(smooth, blobs, unbalanced, fedquilt.fed_avg(fraction=1.0, batch=8), 1)
    assert planned_steps(federation, 10) == 10 * 6 * 5  # 40 examples on average: five batches of 8
    engine = fedquilt.vectorised(block=2, compute="auto")
    assert engine.settled(federation, 10).compute == "eager"
    assert engine.settled(federation, 20_000).compute == "compiled"
