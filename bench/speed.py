"""Times a round of fedquilt and of a plain PyTorch loop side by side, in one run.

    python bench/speed.py                 # both workloads
    python bench/speed.py 2nn --rounds 15

The plain loop is what one writes first: one model, `torch.optim.SGD`, a client after the other, on tensors that are ready
in memory. It runs with torch's default threads and with one. All three take turns, round by round, because a shared
machine's speed changes over time; the figures are medians after warm-up. They train on the same batches, and the models
after the first round must agree to 1e-4.
"""

from __future__ import annotations

import argparse
import copy
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

import fedquilt
from fedquilt.core.algorithm import Algorithm
from fedquilt.core.driver import Measures, rounds
from fedquilt.core.federation import Federation
from fedquilt.core.plan import plan
from fedquilt.core.population import Population
from fedquilt.core.rng import generator
from fedquilt.core.state import RunState
from fedquilt.data.data import Data, Split
from fedquilt.models import mnist_2nn, mnist_cnn
from fedquilt.partition.partition import Partition

SEED = 1
THREADS = torch.get_num_threads()


@dataclass(frozen=True)
class Work:
    """A workload of McMahan 2017: 100 clients of 600 examples, 10 a round, one epoch."""

    model: Callable[[], nn.Module]
    batch: int


WORKLOADS = {"2nn": Work(mnist_2nn, 10), "cnn": Work(mnist_cnn, 50)}


def images() -> Data:
    """60,000 random images: time does not depend on what they show."""
    rng = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (60_000, 1, 28, 28), dtype=torch.uint8, generator=rng)
    y = torch.randint(0, 10, (60_000,), generator=rng)
    return Data("random", Split(x, y), Split(x[:1000], y[:1000]), 10, prepare=scale)


def scale(x: Tensor) -> Tensor:
    return x.float().div_(255.0)


def plain_round(model: nn.Module, x: Tensor, y: Tensor, method: Algorithm, held: Partition, run: RunState) -> None:
    """One round of federated averaging as one writes it first, on the batches of our own plan."""
    total = {name: torch.zeros_like(value) for name, value in model.state_dict().items()}
    population = Population(held, y.numpy(), 10)
    chosen = plan(method, run.groups[0], population, SEED).clients.tolist()
    for slot, client in enumerate(chosen):
        local = copy.deepcopy(model)
        optimiser = torch.optim.SGD(local.parameters(), lr=0.05)
        rows = torch.from_numpy(held.client(client))
        own_x, own_y = x[rows], y[rows]
        keys = (run.round + 1, client, slot)
        order, cuts = method.sample(len(rows), generator(SEED, "sample", *keys))
        for first, last in pairwise(cuts):
            batch = torch.from_numpy(order[first:last])
            optimiser.zero_grad()
            functional.cross_entropy(local(own_x[batch]), own_y[batch]).backward()
            optimiser.step()
        for name, value in local.state_dict().items():
            total[name] += value / len(chosen)
    model.load_state_dict(total)


def measure(name: str, work: Work, count: int, warm_up: int) -> None:
    data = images()
    held = fedquilt.iid(data.train.y.numpy(), clients=100, seed=SEED)
    method = fedquilt.fed_avg(lr=0.05, fraction=0.1, epochs=1, batch=work.batch)
    torch.manual_seed(0)
    start = work.model()
    federation = Federation.of(start, data, held, method, SEED)
    ready = scale(data.train.x)
    loops = {THREADS: copy.deepcopy(start), 1: copy.deepcopy(start)}
    times: dict[str, list[float]] = {"fedquilt": [], **{f"plain loop, {n} threads": [] for n in loops}}
    with fedquilt.processes().open(federation) as session:
        run = federation.start()
        ours = rounds(federation, session, run, last=10**6, measures=Measures(every=10**9))
        for turn in range(warm_up + count):
            before = run
            begun = time.perf_counter()
            run, _ = next(ours)
            spent = {"fedquilt": time.perf_counter() - begun}
            for threads, model in loops.items():
                torch.set_num_threads(threads)
                begun = time.perf_counter()
                plain_round(model, ready, data.train.y, method, held, before)
                spent[f"plain loop, {threads} threads"] = time.perf_counter() - begun
            torch.set_num_threads(1)
            if turn == 0:
                check_agreement(federation, run, loops[1])
            if turn >= warm_up:
                for key, seconds in spent.items():
                    times[key].append(seconds)
    report(name, work, times)


def check_agreement(federation: Federation, run: RunState, model: nn.Module) -> None:
    apart = float((federation.layout.read(model).vector - run.groups[0].state.model.vector).abs().max())
    print(f"models after the first round differ by {apart:.1e} at most", flush=True)
    if apart > 1e-4:
        raise SystemExit("the two do not do the same work")


def report(name: str, work: Work, times: dict[str, list[float]]) -> None:
    middle = {key: statistics.median(values) for key, values in times.items()}
    print(f"\n{name}, batches of {work.batch}: seconds a round, median of {len(times['fedquilt'])}")
    for key, seconds in middle.items():
        ratio = "" if key == "fedquilt" else f"   fedquilt is {seconds / middle['fedquilt']:.2f}× as fast"
        print(f"  {key:24s} {seconds:7.3f}{ratio}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", choices=[*WORKLOADS, []], help="2nn, cnn (default: both)")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--warm-up", type=int, default=2)
    arguments = parser.parse_args()
    print(f"{os.cpu_count()} cores, torch {torch.__version__}, default threads {THREADS}")
    for name in arguments.workloads or WORKLOADS:
        measure(name, WORKLOADS[name], arguments.rounds, arguments.warm_up)


if __name__ == "__main__":
    main()
