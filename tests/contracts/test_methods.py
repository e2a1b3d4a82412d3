"""What every registered method must keep, tested for each of them automatically."""

from __future__ import annotations

import copy
from contextlib import contextmanager
from dataclasses import replace

import every_method
import pytest
import torch
from every_method import METHODS

import fedquilt
from fedquilt.algorithm.exchange import Exchange, Parting
from fedquilt.algorithm.transform import Transform, chain
from fedquilt.compute.tensors import flat
from fedquilt.experiment import under_way
from fedquilt.experiment.folder import RunFolder

ROUNDS = 4

ARGUMENTS = {
    "fl_hc": {"rounds": 2},  # so that the clustering round is one of those tested, the third
    "one_shot": {"max_epochs": 3},
}
"""What a method is given where its defaults would leave out what is to be tested."""


class StopError(Exception):
    """Raised in the middle of a run, as a crash would."""


class StopAfter:
    def __init__(self, round_):
        self.last = round_

    def begin(self, history, last):
        pass

    def heard(self, clients, total):
        pass

    def round(self, record):
        if record["round"] == self.last:
            raise StopError


def made(name):
    return every_method.made(name, **ARGUMENTS.get(name, {}))


def train(name, blobs, unbalanced, smooth, **options):
    options = {"engine": fedquilt.inline(), "simulate": every_method.simulated(name)} | options
    return fedquilt.train(smooth, blobs, unbalanced, made(name), rounds=ROUNDS, **options)


@pytest.fixture(scope="module")
def wholes():
    return {}


@pytest.fixture
def whole(wholes, blobs, unbalanced, smooth, tmp_path_factory):
    """An undisturbed run of a method, inline, and its folder; made once for all that is compared with it."""

    def of(name):
        if name not in wholes:
            folder = tmp_path_factory.mktemp("whole") / "run"
            wholes[name] = train(name, blobs, unbalanced, smooth, out=folder), folder
        return wholes[name]

    return of


@pytest.mark.parametrize("name", METHODS)
def test_same_seed_same_bits_other_seed_other_bits(name, blobs, unbalanced, smooth, whole):
    first, _ = whole(name)
    assert first.digest == train(name, blobs, unbalanced, smooth).digest
    assert first.digest != train(name, blobs, unbalanced, smooth, seed=2).digest


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("workers", [1, 3])
def test_workers_do_not_matter(name, workers, blobs, unbalanced, smooth, whole):
    plain, _ = whole(name)
    parallel = train(name, blobs, unbalanced, smooth, engine=fedquilt.processes(workers=workers))
    assert parallel.digest == plain.digest
    assert _without_seconds(parallel.history) == _without_seconds(plain.history)


@pytest.mark.parametrize("name", METHODS)
def test_a_resumed_run_equals_an_uninterrupted_one(name, blobs, unbalanced, smooth, whole, tmp_path):
    expected, folder = whole(name)
    stop = StopAfter(min(2, made(name).course.last_round or ROUNDS))
    with pytest.raises(StopError):
        train(name, blobs, unbalanced, smooth, out=tmp_path / "broken", watcher=stop, checkpoint_seconds=0.0)
    resumed = train(name, blobs, unbalanced, smooth, out=tmp_path / "broken")
    assert resumed.digest == expected.digest
    assert _same(resumed.run, expected.run)
    assert _timeless(folder) == _timeless(tmp_path / "broken")


@pytest.mark.parametrize("name", METHODS)
def test_everything_that_a_run_carries_is_in_its_checkpoint(name, whole):
    """Models, groups, the server's memory, the broadcast, and client state: to the bit, and nothing less."""
    result, folder = whole(name)
    saved, _ = RunFolder(folder).latest()
    assert _same(saved, result.run)
    method = made(name)
    announcing = {exchange.name for exchange in method.exchanges if exchange.first_broadcast is not None}
    assert all(set(group.state.broadcast) == announcing for group in saved.groups)


class CtrlC:
    """Presses Ctrl-C while the third round is being evaluated."""

    def __init__(self, inner):
        self.inner, self.count = inner, 0

    @contextmanager
    def open(self, federation):
        with self.inner.open(federation) as session:
            self.session = session
            yield self

    def run(self, planned, model, store):
        yield from self.session.run(planned, model, store)

    def evaluate(self, model, split):
        self.count += 1
        if self.count == 3:
            raise KeyboardInterrupt
        return self.session.evaluate(model, split)

    def evaluate_clients(self, state, clients, store):
        return self.session.evaluate_clients(state, clients, store)


KEEPING = {
    "kept momentum": lambda: fedquilt.fed_avg_m(fraction=0.5, momentum=0.9, keep_momentum=True),
    "centralised": lambda: fedquilt.centralised(momentum=0.9, batch=20),
    "scaffold": lambda: fedquilt.scaffold(fedquilt.fed_avg(fraction=0.5)),
    "fed_dyn": lambda: fedquilt.fed_dyn(fedquilt.fed_avg(fraction=0.5)),
    "ditto": lambda: fedquilt.ditto(fedquilt.fed_avg(fraction=0.5)),
}


@pytest.mark.parametrize("name", KEEPING)
def test_ctrl_c_in_the_middle_of_a_round_loses_nothing_that_clients_keep(name, blobs, unbalanced, smooth, tmp_path):
    def go(engine, out):
        return fedquilt.train(smooth, blobs, unbalanced, KEEPING[name](), rounds=5, engine=engine, out=tmp_path / out)

    whole = go(fedquilt.inline(), "whole")
    stopped = go(CtrlC(fedquilt.inline()), "stopped")
    assert stopped.interrupted
    assert len(stopped.history) == 2
    resumed = go(fedquilt.inline(), "stopped")
    assert resumed.digest == whole.digest
    assert _timeless(tmp_path / "whole") == _timeless(tmp_path / "stopped")


def test_ctrl_c_between_a_round_and_its_record_saves_the_round_before(blobs, unbalanced, smooth, tmp_path, monkeypatch):
    """A checkpoint of a round that is not in the metrics would be passed over with a warning, which is an error here."""

    def go(out):
        method = fedquilt.fed_avg_m(fraction=0.5)
        return fedquilt.train(smooth, blobs, unbalanced, method, rounds=5, engine=fedquilt.inline(), out=tmp_path / out)

    def interrupt(history):
        if len(history) == 3:
            raise KeyboardInterrupt

    whole = go("whole")
    with monkeypatch.context() as patched:
        patched.setattr(under_way, "warn_of_left_out", interrupt)
        assert go("stopped").interrupted
    assert fedquilt.summary(tmp_path / "stopped")["saved_round"] == 2
    assert go("stopped").digest == whole.digest
    assert _timeless(tmp_path / "whole") == _timeless(tmp_path / "stopped")


def _first_and_last(direction, state, at):
    """Add what the state holds first, less what it holds last: another order of the table is another direction."""
    first, *_, last = state.values()
    shift = float(first.mean()) - 0.5 * float(last.mean())
    return {name: d + 0.1 * shift for name, d in direction.items()}, {
        name: state[name] + d for name, d in direction.items()
    }


def _zeros(params):
    return {name: torch.zeros_like(params[name]) for name in reversed(params)}


def ordered():
    """A method whose clients keep a table, and whose result depends on the order in which it was written."""
    base = fedquilt.fed_avg(fraction=1.0, batch=8)
    return replace(base, local=replace(chain(Transform(_zeros, _first_and_last), base.local), keep=True))


def test_what_a_client_keeps_comes_back_in_the_order_of_writing(blobs, unbalanced, smooth, tmp_path):
    """From a worker and from a checkpoint: safetensors has an order of its own, another one every time."""

    def go(rounds=3, engine=None, **options):
        engine = engine or fedquilt.inline()
        return fedquilt.train(smooth, blobs, unbalanced, ordered(), rounds, engine=engine, **options)

    whole = go()
    assert [go(engine=fedquilt.processes(workers=2)).digest for _ in range(3)] == [whole.digest] * 3
    go(1, out=tmp_path / "run")
    assert go(3, out=tmp_path / "run").digest == whole.digest


def _mark(visit, trained):
    """Keep a table without content, and one more level of them: their presence alone counts the client's rounds."""
    assert visit.client_state in (None, {}, {"again": {}}), visit.client_state
    return Parting(client_state={} if visit.client_state is None else {"again": {}})


def _slower(direction, state, at):
    return {name: d * at.given["mark"]["scale"] for name, d in direction.items()}, state


def _scale(visit):
    return {
        "scale": torch.tensor(
            {None: 1.0, 0: 0.5, 1: 0.25}[None if visit.client_state is None else len(visit.client_state)]
        )
    }


def marked():
    """A method whose clients train more slowly by what they keep, all of which is empty tables."""
    base = fedquilt.fed_avg(fraction=1.0, batch=8)
    exchange = Exchange("mark", begin=_scale, end=_mark, remembers=True)
    return replace(base, local=chain(Transform(lambda params: {}, _slower), base.local), exchanges=(exchange,))


def test_an_empty_table_that_a_client_keeps_comes_back(blobs, unbalanced, smooth, tmp_path):
    """From a worker and from a checkpoint: safetensors holds tensors alone."""

    def go(rounds=4, engine=None, **options):
        engine = engine or fedquilt.inline()
        return fedquilt.train(smooth, blobs, unbalanced, marked(), rounds, engine=engine, **options)

    whole = go()
    assert whole.run.store.get(0) == {"mark": {"again": {}}}
    assert go(engine=fedquilt.processes(workers=2)).digest == whole.digest
    for rounds in (1, 2):
        go(rounds, out=tmp_path / "run")
    assert go(4, out=tmp_path / "run").digest == whole.digest


def test_there_are_methods_to_test():
    methods = {"fed_avg", "fed_avg_m", "fed_sgd", "centralised", "local_only", "one_shot"}
    wrappers = {
        "fed_vc",
        "fed_prox",
        "projected",
        "gradient_noise",
        "scaffold",
        "fed_nova",
        "fed_dyn",
        "ditto",
        "fl_hc",
    }
    assert methods | wrappers <= set(METHODS)
    assert set(ARGUMENTS) <= set(METHODS)


@pytest.mark.parametrize("name", METHODS)
def test_what_is_given_is_not_changed(name, blobs, unbalanced, smooth):
    before = copy.deepcopy(smooth.state_dict())
    x, indices = blobs.train.x.clone(), unbalanced.indices.copy()
    train(name, blobs, unbalanced, smooth)
    assert all(torch.equal(before[key], value) for key, value in smooth.state_dict().items())
    assert torch.equal(blobs.train.x, x)
    assert (unbalanced.indices == indices).all()


def _timeless(path):
    return _without_seconds(RunFolder(path).history())


def _without_seconds(history):
    return [{k: v for k, v in record.items() if k != "seconds"} for record in history]


def _same(one, other):
    """Whether two runs carry the same, to the bit."""
    left, right = (
        [
            run.round,
            [None if group.clients is None else group.clients.tolist() for group in run.groups],
            *(_bits({**vars(group.state.model)}) for group in run.groups),
            *(_bits(group.state.optimiser) for group in run.groups),
            *(_bits(group.state.broadcast) for group in run.groups),
            {client: _bits(kept) for client, kept in run.store.items()},
        ]
        for run in (one, other)
    )
    return left == right


def _bits(state):
    return {name: (tensor.dtype, tuple(tensor.shape), tensor.numpy().tobytes()) for name, tensor in flat(state)}
