"""A client may do anything: the run goes on without it, it is named, and nobody else's bits change. In every engine.

One of six clients misbehaves in the last thing that it does, when it makes its update ready to be sent. The others must
send what they send in a run in which that client fails in an ordinary way.

Workers are started once for the runs of a method, and the client is told what to do next: starting them would take longer
than training, and whatever a client leaves behind in its worker meets the next run, too.
"""

from __future__ import annotations

import ctypes
import faulthandler
import math
import os
import signal
import socket
import stat
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from multiprocessing import Value
from typing import Any

import numpy as np
import pytest
import torch

import fedquilt
from fedquilt.algorithm.exchange import Exchange, Parting
from fedquilt.base.errors import ExampleError
from fedquilt.base.text import LONGEST_TEXT
from fedquilt.compute.interrupts import TooSlowError
from fedquilt.compute.pinned import SETTINGS
from fedquilt.round.federation import Federation
from fedquilt.round.hosting import SpoiledError

pytestmark = [
    pytest.mark.filterwarnings("ignore:client .* was left out:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:worker process .* died:RuntimeWarning"),
    # What clients do makes torch and Python warn, in workers that stay for later tests.
    pytest.mark.filterwarnings("ignore:.*quantize.*"),
    pytest.mark.filterwarnings("ignore:.*nested tensors.*"),
    pytest.mark.filterwarnings("ignore:.*deprecated.*"),
    pytest.mark.filterwarnings("ignore:.*Anomaly Detection.*"),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]

HOSTILE = 3
"""It holds 60 examples: of the blocks of two, it shares one with the largest client."""

WORKERS = {
    "processes": lambda: fedquilt.processes(workers=2),
    "vectorised": lambda: fedquilt.vectorised(block=2, workers=2),
}
ENGINES = {"inline": fedquilt.inline} | WORKERS


@dataclass(frozen=True)
class Hostile:
    """Stands where `corrupt` does, and lets one client do as it likes with its update."""

    act: object
    who: Callable[[], int] = lambda: HOSTILE
    labels: None = None

    def hits(self, client, population, seed):
        return client == self.who()

    def update(self, delta, rng):
        return self.act(delta)


class Chosen:
    """Does what was chosen last. Workers see the choice as well: it lies in memory that they share."""

    def __init__(self, choices: Iterable[Callable[..., Any]]):
        self.choices, self.number = list(choices), Value("i", 0)

    def choose(self, choice: Callable[..., Any]) -> None:
        self.number.value = self.choices.index(choice)

    def __call__(self, *given: Any) -> Any:
        return self.choices[self.number.value](*given)


class Standing:
    """An engine whose workers stay for the next run; all of its runs are of one federation."""

    def __init__(self, engine, stack):
        self.engine, self.stack, self.session = engine, stack, None

    @contextmanager
    def open(self, federation):
        if self.session is None:
            self.session = self.stack.enter_context(self.engine.open(federation))
        yield self.session


@pytest.fixture(scope="module")
def standing():
    """Return an engine by its name and that of what it is used for: the same one every time, unless it has no workers."""
    engines = {}
    with ExitStack() as stack:

        def of(name, use, make=None):
            if name == "inline":
                return fedquilt.inline()
            if (name, use) not in engines:
                engines[name, use] = Standing((make or ENGINES[name])(), stack)
            return engines[name, use]

        yield of


def simulated(act, who=lambda: HOSTILE):
    return [fedquilt.Simulation("hostile", corruption=(Hostile(act, who),))]


def plain():
    return fedquilt.fed_avg(lr=0.1, fraction=1.0, batch=8)


@pytest.fixture
def go(blobs, unbalanced, smooth):
    def going(engine, act, rounds=2, **options):
        options["simulate"] = simulated(act)
        return fedquilt.train(smooth, blobs, unbalanced, plain(), rounds, engine=ENGINES[engine](), **options)

    return going


@pytest.fixture
def ask(blobs, unbalanced, smooth, standing):
    """Train with workers that are there already: what one of the clients does is one of `ACTS`."""

    def asking(engine, act, rounds=2):
        ACT.choose(act)
        options = {"engine": standing(engine, "acts"), "simulate": simulated(ACT)}
        return fedquilt.train(smooth, blobs, unbalanced, plain(), rounds, **options)

    return asking


@pytest.fixture
def ask_method(blobs, unbalanced, smooth, standing):
    """Train by a method in which something is chosen."""

    def asking(engine, method, chosen, choice):
        chosen.choose(choice)
        return fedquilt.train(smooth, blobs, unbalanced, method, rounds=2, engine=standing(engine, id(chosen)))

    return asking


def left_out(result, kind):
    """Make sure that it was this client alone that was left out of every round; return the reasons."""
    for record in result.history:
        assert [(fault["client"], fault["kind"]) for fault in record["dropped"]] == [(HOSTILE, kind)]
        assert sorted(record["clients"]) == [0, 1, 2, 4, 5]
        assert record["applied"]
    return [record["dropped"][0]["reason"] for record in result.history]


def raising(error):
    def act(delta):
        raise error

    return act


class MuteError(Exception):
    """Has no text."""

    def __str__(self):
        raise SystemExit(7)


class BareError(BaseException):
    pass


RAISED = {
    "an exception": (raising(RuntimeError("the sensor is broken")), "RuntimeError: the sensor is broken"),
    "sys.exit": (lambda delta: sys.exit(3), "SystemExit: 3"),
    "KeyboardInterrupt": (raising(KeyboardInterrupt()), "KeyboardInterrupt"),
    "GeneratorExit": (raising(GeneratorExit()), "GeneratorExit"),
    "BaseException": (raising(BareError("odd")), "BareError: odd"),
    "no text": (raising(MuteError()), "MuteError, without a message: its __str__ raises SystemExit"),
    "a text of 5 MB": (raising(ValueError("a" * 5_000_000)), f"ValueError: {'a' * 400}"),
    "escapes": (
        raising(ValueError("\x1b[2J\nround 9: \u202eall is well\x00")),
        r"ValueError: \x1b[2J\nround 9: \u202eall",
    ),
}


ORDINARY = {
    "raises": raising(RuntimeError()),
    "sends NaN": lambda delta: delta * float("nan"),
    "behaves": lambda delta: delta,
}


@pytest.fixture(scope="module")
def known():
    return {}


@pytest.fixture
def ordinary(ask, known):
    """What a run tells in which the client fails in an ordinary way, or not at all; made once."""

    def of(engine, name, rounds=2):
        if (engine, name, rounds) not in known:
            known[engine, name, rounds] = what_is_known(ask(engine, ORDINARY[name], rounds))
        return known[engine, name, rounds]

    return of


def what_is_known(result):
    """The digest, and what is known of each round."""
    timeless = [{k: v for k, v in r.items() if k not in ("seconds", "dropped")} for r in result.history]
    return result.digest, timeless


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", RAISED)
def test_what_a_client_raises_is_its_own_fault(name, engine, ask, ordinary):
    act, text = RAISED[name]
    expected = ordinary(engine, "raises")
    result = ask(engine, act)
    for reason in left_out(result, "error"):
        assert reason.startswith(text)
        assert reason.isprintable()
        assert len(reason) < LONGEST_TEXT + 100
    assert what_is_known(result) == expected


@pytest.mark.parametrize("engine", ENGINES)
def test_the_others_get_the_same_bits_whichever_way_a_client_fails(engine, ordinary):
    """Found only at the end, it was trained with them in a block; in a block without it they must not notice."""
    assert ordinary(engine, "raises") == ordinary(engine, "sends NaN")


METHODS = {
    "fed_avg": plain,
    "scaffold": lambda: fedquilt.scaffold(plain()),
    "momentum": lambda: fedquilt.fed_avg(lr=0.1, fraction=1.0, batch=8, momentum=0.9, keep_momentum=True),
}


@pytest.mark.parametrize("who", range(6))
@pytest.mark.parametrize("method", METHODS)
def test_nobody_in_a_block_notices_who_is_missing(method, who, blobs, smooth, standing):
    """Sizes matter: without the one whose last batch is short there would be no padding, and with it other bits."""
    ends = np.cumsum([0, 48, 37, 32, 24, 17, 16])
    held = fedquilt.Partition.of([range(first, last) for first, last in pairwise(ends)])
    engine = standing("vectorised", method, lambda: fedquilt.vectorised(block=3, workers=1))
    digests = set()
    WHO.choose(CLIENTS[who])
    acts = [ORDINARY["raises"], ORDINARY["sends NaN"]]
    if (
        method == "fed_avg" or who == HOSTILE
    ):  # each takes six workers, and what they then do is the same for all methods
        acts.append(DEATHS["os._exit"][0])
    for act in acts:
        ACT.choose(act)
        simulate = simulated(ACT, WHO)
        result = fedquilt.train(smooth, blobs, held, METHODS[method](), rounds=2, engine=engine, simulate=simulate)
        assert [[fault["client"] for fault in record["dropped"]] for record in result.history] == [[who]] * 2
        digests.add(result.digest)
    assert len(digests) == 1


class Sub(torch.Tensor):
    pass


def emptied(delta):
    delta = delta.clone()
    delta.untyped_storage().resize_(0)
    return delta


FORMS = {
    "None": lambda delta: None,
    "a list": lambda delta: delta.tolist(),
    "text": lambda delta: "update",
    "an array": lambda delta: delta.numpy(),
    "a subclass": lambda delta: delta.as_subclass(Sub),
    "sparse": lambda delta: delta.to_sparse(),
    "meta": lambda delta: delta.to("meta"),
    "quantized": lambda delta: torch.quantize_per_tensor(delta, 0.1, 0, torch.qint8),
    "float16": lambda delta: delta.half(),
    "float64": lambda delta: delta.double(),
    "float8": lambda delta: delta.to(torch.float8_e4m3fn),
    "complex": lambda delta: delta.to(torch.complex64),
    "whole": lambda delta: delta.long(),
    "bool": lambda delta: delta.bool(),
    "expanded": lambda delta: delta[:1].expand(len(delta)),
    "strided": lambda delta: delta.repeat_interleave(2)[::2],
    "with a graph": lambda delta: delta.clone().requires_grad_() * 2,
    "longer": lambda delta: torch.cat([delta, delta]),
    "a matrix": lambda delta: delta[None],
    "without memory": emptied,
    "nested": lambda delta: torch.nested.nested_tensor([delta]),
    "NaN": lambda delta: delta * float("nan"),
    "infinite": lambda delta: delta + float("inf"),
    "large": lambda delta: delta + 2.0**20,
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", FORMS)
def test_an_update_that_is_none(name, engine, ask, ordinary):
    expected = ordinary(engine, "sends NaN")
    result = ask(engine, FORMS[name])
    for reason in left_out(result, "overflow" if name in ("NaN", "infinite", "large") else "unusable update"):
        assert reason.startswith("sent ")
    assert what_is_known(result) == expected


def abort(delta):
    faulthandler.disable()
    os.abort()


def segfault(delta):
    faulthandler.disable()
    ctypes.string_at(0)


def close_files(delta):
    os.closerange(3, 256)
    return delta


def into_every_pipe(message):
    """Write into every socket that this process has, as a client that has lost its way might."""

    def act(delta):
        for descriptor in range(3, 256):
            try:
                if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                    with socket.socket(fileno=os.dup(descriptor)) as pipe:
                        pipe.setblocking(False)
                        pipe.send(message)
            except OSError:
                continue
        return delta

    return act


NO_MESSAGE = "the last one sent an invalid message: not a message of a worker"
DEATHS = {
    "os._exit": (lambda delta: os._exit(5), "(exit code 5)"),
    "a signal": (lambda delta: os.kill(os.getpid(), signal.SIGKILL), "(signal SIGKILL)"),
    "abort": (abort, "(signal SIGABRT)"),
    "a segmentation fault": (segfault, "(signal SIGSEGV)"),
    "closed files": (close_files, "(a client changed process settings that cannot be restored"),
    "a little garbage": (into_every_pipe(b"\x00"), f"({NO_MESSAGE})"),
    "much garbage": (into_every_pipe(b"\x7f\xff" * 5000), f"({NO_MESSAGE}"),
    "text": (into_every_pipe(b"done, thank you\n"), f"({NO_MESSAGE}"),
}


@pytest.mark.parametrize("engine", WORKERS)
@pytest.mark.parametrize("name", DEATHS)
def test_a_client_that_kills_its_worker_is_left_out_after_three_deaths(name, engine, ask, ordinary):
    act, text = DEATHS[name]
    rounds = 2 if name == "os._exit" else 1  # three workers each
    expected = ordinary(engine, "raises", rounds)
    result = ask(engine, act, rounds)
    for reason in left_out(result, "died"):
        assert reason.startswith(f"3 worker processes died on it {text}")
    assert what_is_known(result) == expected


@pytest.mark.parametrize("engine", WORKERS)
def test_deaths_by_chance_cost_nobody_his_place_and_no_bits(engine, go, ordinary, tmp_path):
    """Workers are killed three times on one task, as a system that is short of memory does: not the client's doing.

    A client of a block behaves when it is tried alone; the block is run again, since its bits are a block's. A client by
    itself cannot be told from one that kills, and gets two chances.
    """
    note = tmp_path / "deaths"
    chances = 3 if engine == "vectorised" else 2

    def unlucky(delta):
        died = note.stat().st_size if note.exists() else 0
        if died < chances:
            note.write_bytes(b"." * (died + 1))
            os.kill(os.getpid(), signal.SIGKILL)
        return delta

    result = go(engine, unlucky)
    assert note.stat().st_size == chances
    assert what_is_known(result) == ordinary(engine, "behaves")


def test_a_client_that_is_drawn_twice_is_left_out_in_both_slots(blobs, smooth):
    """FedVC's virtual clients: one client in several slots of a round, and so of a block."""
    held = fedquilt.Partition.of([range(200), range(200, 240)])
    x = blobs.train.x.clone()
    x[200:] = 1e7
    data = replace(blobs, train=replace(blobs.train, x=x))
    method = fedquilt.fed_vc(plain(), size=16)
    method = replace(method, select=lambda sizes, rng: np.array([1, 0, 1, 0]))
    for engine in WORKERS:
        module, simulate = Deadly(), []
        if engine == "vectorised":
            module = smooth
            simulate = simulated(lambda delta: os._exit(5), who=lambda: 1)
        result = fedquilt.train(module, data, held, method, rounds=1, engine=ENGINES[engine](), simulate=simulate)
        (record,) = result.history.records
        assert [(fault["client"], fault["kind"]) for fault in record["dropped"]] == [(1, "died")] * 2
        assert record["clients"] == [0, 0]


class Deadly(torch.nn.Module):
    """Ends its process when it is trained on large inputs."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 3)

    def forward(self, x):
        if self.training and x.max() > 1e6:
            os._exit(5)
        return self.linear(x)


def test_closed_files_end_an_inline_run_and_name_the_client(go, tmp_path):
    """In a process of its own: pytest needs its files."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            go("inline", close_files)
        except SpoiledError as error:
            status = 0 if f"client {HOSTILE} changed process settings that cannot be restored" in str(error) else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_timer_that_a_client_leaves_running_ends_nobody(go):
    """In a process of its own: its signal would end it."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            result = go("inline", lasting(lambda: signal.setitimer(signal.ITIMER_REAL, 0.05)))
            time.sleep(0.1)
            status = sum(len(record["dropped"]) for record in result.history)
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def sleeping(delta):
    time.sleep(600)


def stubborn(delta):
    while True:
        with suppress(Exception):
            time.sleep(600)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("act", [sleeping, stubborn])
def test_a_client_that_never_ends_is_left_out_when_its_time_is_up(act, engine, go, ordinary):
    begun = time.monotonic()
    result = go(engine, act, rounds=1, client_seconds=1.5)
    for reason in left_out(result, "too slow"):
        assert reason == "took longer than the 1.5 s of run.client_seconds"
    assert time.monotonic() - begun < 30
    assert what_is_known(result) == ordinary(engine, "raises", rounds=1)


def lasting(change):
    def act(delta):
        change()
        return delta

    return act


class Doubling(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        return result * 2 if isinstance(result, torch.Tensor) and result.is_floating_point() else result


def fork():
    os.fork()


SETTERS = {
    "threads": lambda: torch.set_num_threads(4),
    "gradients": lambda: torch.set_grad_enabled(False),
    "inference mode": lambda: torch.inference_mode().__enter__(),
    "autocast": lambda: torch.autocast("cpu").__enter__(),
    "default dtype": lambda: torch.set_default_dtype(torch.float64),
    "default device": lambda: torch.set_default_device("meta"),
    "matmul precision": lambda: torch.set_float32_matmul_precision("medium"),
    "convolutions": lambda: setattr(torch.backends.mkldnn.conv, "fp32_precision", "bf16"),  # type: ignore[attr-defined]
    "mkldnn": lambda: setattr(torch.backends.mkldnn, "enabled", False),
    "deterministic": lambda: torch.use_deterministic_algorithms(True),
    "anomalies": lambda: torch.autograd.set_detect_anomaly(True),
    "denormal numbers": lambda: torch.set_flush_denormal(True),
    "a function mode": lambda: Doubling().__enter__(),
    "the folder": lambda: os.chdir("/"),
    "the seed": lambda: torch.manual_seed(1),
    "the type of autocast": lambda: torch.set_autocast_dtype("cpu", torch.float16),
    "hooks of all modules": lambda: torch.nn.modules.module.register_module_forward_hook(lambda m, x, y: y * 1.5),
    "full hooks": lambda: torch.nn.modules.module.register_module_full_backward_hook(lambda m, x, y: (2 * x[0],)),  # type: ignore[index]
    "a fork": fork,
}
CHANGES = {name: lasting(change) for name, change in SETTERS.items()}

ACTS = [*(act for act, _ in RAISED.values()), *ORDINARY.values(), *FORMS.values(), *(act for act, _ in DEATHS.values())]
ACT = Chosen([*ACTS, *CHANGES.values()])
CLIENTS = [lambda client=client: client for client in range(6)]
WHO = Chosen(CLIENTS)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", CHANGES)
def test_settings_that_a_client_changes_are_put_back(name, engine, ask, ordinary):
    """Its own update is as good as any; nobody else notices, and neither does the process that asked for the run."""
    before = [setting.read() for setting in SETTINGS]
    expected = ordinary(engine, "behaves")
    result = ask(engine, CHANGES[name])
    assert what_is_known(result) == expected
    assert all(record["dropped"] == [] for record in result.history)
    assert [setting.read() for setting in SETTINGS] == before


class Fickle(torch.nn.Module):
    """Does something to itself when it is trained on the examples of one client."""

    def __init__(self, change):
        super().__init__()
        self.first, self.act, self.last = torch.nn.Linear(8, 6), torch.nn.Tanh(), torch.nn.Linear(6, 3)
        self.change, self.scales, self.scale, self.seen = change, [1.0], 1.0, None

    def forward(self, x):
        if self.training and x[0, 0] > 1e6:
            self.change(self)
        self.seen = x  # as honest models do
        words = x.clamp(-3, 3).unflatten(1, (1, 2, 4))
        attended = torch.nn.functional.scaled_dot_product_attention(words, words, words)
        return self.scale * self.scales[-1] * self.last(self.act(self.first(attended.flatten(1))))


class Doubled(Fickle):
    def forward(self, x):
        return 2 * super().forward(x)


def autocast_left_on(net):
    """Weights that torch has cast stay in its cache."""
    torch.set_autocast_enabled("cpu", True)
    net.last(net.act(net.first(torch.ones(1, 8))))
    torch.set_autocast_enabled("cpu", False)


def halved(net, inputs):
    return (inputs[0] / 2,)


def packing(net):
    torch.autograd.graph.saved_tensors_hooks(lambda kept: kept / 2, lambda kept: kept).__enter__()


MODELS = {
    "another part": lambda net: setattr(net, "act", torch.nn.Identity()),
    "a part less": lambda net: delattr(net, "act") if hasattr(net, "act") else None,
    "another class": lambda net: setattr(net, "__class__", Doubled),
    "a method": lambda net: setattr(net.first, "forward", lambda x: x[:, :6]),
    "an attribute": lambda net: setattr(net, "scale", 3.0),
    "a list": lambda net: net.scales.append(3.0),
    "frozen": lambda net: net.first.weight.requires_grad_(False),
    "another parameter": lambda net: setattr(net.first, "weight", torch.nn.Parameter(torch.ones(6, 8))),
    "another layout": lambda net: setattr(net.first.weight, "data", torch.ones(8, 6).t()),
    "a hook": lambda net: net.last.register_forward_pre_hook(halved),
    "a hook on a parameter": lambda net: net.first.weight.register_hook(lambda gradient: 2 * gradient),
    "evaluation mode": lambda net: net.eval(),
    "autocast": autocast_left_on,
    "an open autocast": lambda net: torch.autocast("cpu", dtype=torch.bfloat16).__enter__(),
    "hooks of all modules": lambda net: torch.nn.modules.module.register_module_forward_pre_hook(halved),
    "hooks of saved tensors": packing,
    "attention": lambda net: torch.backends.cuda.enable_flash_sdp(False),
    "no attention": lambda net: torch.backends.cuda.enable_math_sdp(False),
    "the precision of all operators": lambda net: setattr(torch.backends, "fp32_precision", "bf16"),
}


@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("name", MODELS)
def test_what_a_client_does_to_the_model_reaches_nobody_else(name, precision, blobs, unbalanced):
    """Whoever is trained after it, in the same process, must send what it sends from a process of its own."""
    x = blobs.train.x.clone()
    x[unbalanced.client(HOSTILE)] = 1e7
    data = replace(blobs, train=replace(blobs.train, x=x))
    sent = []
    for select in ([HOSTILE, 0, 1], [0, 1]):
        torch.manual_seed(3)
        method = plain()
        method = replace(method, select=lambda sizes, rng, select=select: np.array(select))
        federation = Federation.of(Fickle(MODELS[name]), data, unbalanced, method, 1)
        with fedquilt.inline(precision=precision).open(federation) as session:
            state = federation.start().groups[0].state
            updates = [session.site.run_client(state, 1, client, client, None) for client in select]
        sent.append([update.delta for update in updates[-2:]])
    assert all(torch.equal(*pair) for pair in zip(*sent, strict=True))


def test_memory_that_a_client_takes_from_the_model_ends_an_inline_run(blobs, unbalanced):
    x = blobs.train.x.clone()
    x[unbalanced.client(HOSTILE)] = 1e7
    data = replace(blobs, train=replace(blobs.train, x=x))
    taking = Fickle(lambda net: net.first.weight.untyped_storage().resize_(0))
    method = plain()
    with pytest.raises(SpoiledError, match=f"client {HOSTILE} changed .*: the memory of the model's parameters"):
        fedquilt.train(taking, data, unbalanced, method, rounds=1, engine=fedquilt.inline())
    result = fedquilt.train(taking, data, unbalanced, method, rounds=1, engine=fedquilt.processes(workers=2))
    left_out(result, "died")


def telling(told):
    """SCAFFOLD, but one client tells something else than its control variate."""
    method = fedquilt.scaffold(plain())
    (exchange,) = method.exchanges

    def end(visit, trained):
        parting = exchange.end(visit, trained)
        if visit.context.client != HOSTILE:
            return parting
        return Parting(parting.client_state, told(parting.extra_upload["variate"]))

    return replace(method, exchanges=(replace(exchange, end=end),))


TOLD = {
    "nothing": lambda variate: None,
    "an empty table": lambda variate: {},
    "another name": lambda variate: {"variance": variate},
    "one more": lambda variate: {"variate": variate, "more": variate},
    "shorter": lambda variate: {"variate": variate[1:]},
    "none": lambda variate: {"variate": None},
    "text": lambda variate: {"variate": "c"},
    "half": lambda variate: {"variate": variate.half()},
    "sparse": lambda variate: {"variate": variate.to_sparse()},
    "expanded": lambda variate: {"variate": variate[:1].expand(len(variate))},
    "1e30": lambda variate: {"variate": variate + 1e30},
    "NaN": lambda variate: {"variate": variate * float("nan")},
}
TELL = Chosen(TOLD.values())


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", TOLD)
def test_what_is_told_besides_the_update_is_checked_as_well(name, engine, ask_method, known):
    if (engine, "tells NaN") not in known:
        known[engine, "tells NaN"] = what_is_known(ask_method(engine, telling(TELL), TELL, TOLD["NaN"]))
    expected = known[engine, "tells NaN"]
    result = ask_method(engine, telling(TELL), TELL, TOLD[name])
    for reason in left_out(result, "unusable update"):
        assert "variate" in reason or "scaffold" in reason
    assert what_is_known(result) == expected


STEPS = {steps: lambda steps=steps: steps for steps in ("0.0", "-3.0", "1e-30", "1e300", "nan")}
CLAIM = Chosen(STEPS.values())


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("steps", STEPS)
def test_steps_that_cannot_be(steps, engine, ask_method):
    """FedNova divides by them."""
    method = fedquilt.fed_nova(plain())
    (exchange,) = method.exchanges

    def end(visit, trained):
        claimed = float(CLAIM()) if visit.context.client == HOSTILE else trained.effective_steps
        return Parting(extra_upload={"steps": torch.tensor([claimed], dtype=torch.float64)})

    method = replace(method, exchanges=(replace(exchange, end=end),))
    result = ask_method(engine, method, CLAIM, STEPS[steps])
    left_out(result, "unusable update")
    assert torch.isfinite(result.state.vector).all()


def holding(levels):
    """Tables that hold each other, each the next one twice; the last one holds the first if `levels` is infinite."""
    first = table = {}
    for _ in range(100 if math.isinf(levels) else levels):
        inner = {}
        table |= {"a": inner, "b": inner}
        table = inner
    table |= {"a": first} if math.isinf(levels) else {"a": torch.ones(1)}
    return first


class Reading(dict[str, Any]):
    def items(self):
        raise SystemExit


KEPT = {
    "a list": lambda: [1.0],
    "none": lambda: {"own": None},
    "a number": lambda: {"own": 3.0},
    "sparse": lambda: {"own": torch.eye(2).to_sparse()},
    "meta": lambda: {"own": torch.zeros(2, device="meta")},
    "complex": lambda: {"own": torch.zeros(2, dtype=torch.complex64)},
    "odd names": lambda: {3: torch.zeros(2)},
    "a table that holds itself": lambda: holding(math.inf),
    "very deep": lambda: holding(5000),
    "too many": lambda: dict.fromkeys(map(str, range(200_000)), torch.ones(1)),
    "a table that raises": lambda: {"own": Reading(a=torch.ones(1))},
    "nested": lambda: {"own": torch.nested.nested_tensor([torch.ones(2)])},
    "a negative view": lambda: {"own": torch._neg_view(torch.ones(2))},
    "without memory": lambda: {"own": emptied(torch.ones(2))},
    "a view of no memory": lambda: {"own": emptied(torch.ones(2, 2).t())},
}
KEEP = Chosen(KEPT.values())


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", KEPT)
def test_what_a_client_keeps_must_be_fit_to_be_kept(name, engine, ask_method):
    def end(visit, trained):
        return Parting(client_state=KEEP() if visit.context.client == HOSTILE else {"own": torch.ones(2)})

    method = replace(plain(), exchanges=(Exchange("memory", end=end, remembers=True),))
    result = ask_method(engine, method, KEEP, KEPT[name])
    left_out(result, "error" if name == "a list" else "unusable update")


class Explosive(type):
    """Ends the process that asks for the name of its classes."""

    @property
    def __name__(cls):
        os._exit(5)


class Bomb(metaclass=Explosive):
    pass


@pytest.mark.parametrize("block", [1, 3, 6])
def test_a_client_that_ends_its_worker_when_it_is_answered_for_is_the_one_to_blame(block, blobs, unbalanced, smooth):
    """Its update is examined after the others have been trained."""

    def end(visit, trained):
        return Parting(client_state={"own": Bomb() if visit.context.client == HOSTILE else torch.ones(2)})

    method = plain()
    method = replace(method, exchanges=(Exchange("memory", end=end, remembers=True),))
    engine = fedquilt.vectorised(block=block, workers=1)
    result = fedquilt.train(smooth, blobs, unbalanced, method, rounds=2, engine=engine)
    for reason in left_out(result, "died"):
        assert reason.startswith("3 worker processes died on it (exit code 5)")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "error", [ExampleError("row 7: no such file"), OSError("gone"), ValueError("not a picture")], ids=repr
)
def test_an_example_that_cannot_be_read_is_the_fault_of_who_holds_it(error, engine, blobs, unbalanced, smooth):
    """Also where a program is tried out before the first round, and of the largest label, which is looked at then."""
    x = blobs.train.x.clone()
    x[unbalanced.client(0)] = 1e9
    x[unbalanced.client(5)] = 1e9

    def prepare(raw):
        if raw.max() > 1e8:
            raise error
        return raw

    data = replace(blobs, train=replace(blobs.train, x=x), prepare=prepare)
    method = plain()
    result = fedquilt.train(smooth, data, unbalanced, method, rounds=2, engine=ENGINES[engine]())
    for record in result.history:
        assert {fault["client"] for fault in record["dropped"]} == {0, 5}
        assert sorted(record["clients"]) == [1, 2, 3, 4]


def test_ctrl_c_is_not_taken_for_a_clients_own(go):
    """The system delivers the signal while a client is at work: it ends the run, as always."""
    result = go("inline", lasting(lambda: os.kill(os.getpid(), signal.SIGINT)))
    assert result.interrupted
    assert len(result.history) == 0


class Signalled(torch.nn.Module):
    """In whose training the system delivers a signal, once the first round has begun."""

    begun = False

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 3)

    def forward(self, x):
        if self.training and Signalled.begun:
            os.kill(os.getpid(), signal.SIGINT)
        return self.linear(x)


class Begins:
    def begin(self, history, last):
        Signalled.begun = True

    def heard(self, clients, total): ...

    def round(self, record): ...


def test_nor_is_it_in_a_local_step(blobs, unbalanced, monkeypatch):
    monkeypatch.setattr(Signalled, "begun", False)
    method = fedquilt.fed_avg(fraction=1.0)
    result = fedquilt.train(
        Signalled(), blobs, unbalanced, method, rounds=2, engine=fedquilt.inline(), watcher=Begins()
    )
    assert result.interrupted
    assert len(result.history) == 0


def test_time_cannot_be_limited_where_it_cannot_be_watched(go):
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as threads:
        future = threads.submit(go, "inline", lambda delta: delta, client_seconds=1.0)
        with pytest.raises(fedquilt.FedquiltError, match="in the main thread only"):
            future.result()


def test_an_alarm_that_a_client_is_not_asked_about_is_no_exception_of_its_own():
    assert not issubclass(TooSlowError, Exception)


class Untestable(torch.nn.Module):
    """Does something when it is tested on the examples of one client."""

    def __init__(self, act):
        super().__init__()
        self.linear = torch.nn.Linear(8, 3)
        self.act = act

    def forward(self, x):
        if not self.training and x.max() > 1e6:
            self.act(x)
        return self.linear(x.clamp(max=10))


TESTED = {
    "raises": (raising(RuntimeError("the sensor is broken")), "error"),
    "dies": (lambda x: os._exit(5), "died"),
    "hangs": (sleeping, "too slow"),
}


@pytest.mark.filterwarnings("ignore:client .* failed its per-client test:RuntimeWarning")
@pytest.mark.parametrize(
    ("engine", "name"), [("inline", "raises"), ("inline", "hangs"), *(("processes", n) for n in TESTED)]
)
def test_a_client_that_cannot_be_tested_on_its_own_data_is_named(engine, name, blobs, unbalanced):
    act, kind = TESTED[name]
    x = blobs.train.x.clone()
    x[unbalanced.client(HOSTILE)] = 1e7
    data = replace(blobs, train=replace(blobs.train, x=x))
    method = fedquilt.fl_hc(fedquilt.fed_avg(fraction=1.0), rounds=9)
    options = {"engine": ENGINES[engine](), "client_seconds": 1.5}
    with pytest.warns(RuntimeWarning, match="has no effect before"):
        result = fedquilt.train(Untestable(act), data, unbalanced, method, rounds=1, **options)
    (record,) = result.history.records
    assert [(fault["client"], fault["kind"]) for fault in record["per_client_dropped"]] == [(HOSTILE, kind)]
    assert record["dropped"] == []
    assert 0 < record["per_client_accuracy"] <= 1
