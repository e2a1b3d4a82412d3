"""Times a round of fedquilt and of a plain PyTorch loop side by side, in one run.

    python bench/speed.py                    # all workloads; see bench/workloads.py
    python bench/speed.py w1 w3 --rounds 15

The plain loop is what one writes first: one model, `torch.optim.SGD`, a client after the other, on tensors that are ready
in memory. It runs with torch's default threads and with one. All three take turns, round by round, because a shared
machine's speed changes over time; the figures are medians after warm-up, and compiling is told apart. They train on the
same batches, and the models after the first round must agree to 1e-4.
"""

from __future__ import annotations

import argparse
import copy
import os
import statistics
import time
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional
from workloads import SEED, WORKLOADS, Work

from fedquilt.core.algorithm import Algorithm
from fedquilt.core.driver import rounds
from fedquilt.core.engine import Settling
from fedquilt.core.federation import Federation
from fedquilt.core.measures import Measures
from fedquilt.core.plan import plan
from fedquilt.core.rng import generator
from fedquilt.core.state import RunState

THREADS = torch.get_num_threads()
PLANNED = 10**6
"""Rounds that the run is planned for: `compute = "auto"` goes by that."""


def plain_round(
    model: nn.Module, x: Tensor, y: Tensor, method: Algorithm, federation: Federation, run: RunState, work: Work
) -> None:
    """One round of federated averaging as one writes it first, on the batches of our own plan."""
    total = {name: torch.zeros_like(value) for name, value in model.state_dict().items()}
    planned = plan(method, run.groups[0], federation.population, SEED)
    for slot, client in planned.client_of.items():
        local = copy.deepcopy(model)
        optimiser = torch.optim.SGD(local.parameters(), lr=work.lr, momentum=work.momentum)
        rows = torch.from_numpy(federation.partition.client(client))
        own_x, own_y = x[rows], y[rows]
        order, cuts = method.sample(len(rows), generator(SEED, "sample", run.round + 1, client, slot), run.round + 1)
        for first, last in pairwise(cuts):
            batch = torch.from_numpy(order[first:last])
            optimiser.zero_grad()
            scores = local(own_x[batch])
            functional.cross_entropy(scores.flatten(0, -2), own_y[batch].flatten()).backward()
            optimiser.step()
        for name, value in local.state_dict().items():
            total[name] += value * (len(rows) / int(planned.sizes.sum()))
    model.load_state_dict(total)


def measure(name: str, work: Work, count: int, warm_up: int) -> None:
    data, method = work.data(), work.method()
    torch.manual_seed(0)
    start = work.model()
    federation = Federation.of(start, data, work.partition(data), method, SEED)
    ready = data.train.x if data.prepare is None else data.prepare(data.train.x)
    loops = {THREADS: copy.deepcopy(start), 1: copy.deepcopy(start)}
    times: dict[str, list[float]] = {"fedquilt": [], **{f"plain loop, {n} threads": [] for n in loops}}
    engine = work.engine()
    begun = time.perf_counter()
    chosen = engine.settled(federation, PLANNED) if isinstance(engine, Settling) else engine
    with chosen.open(federation) as session:
        opened = time.perf_counter() - begun
        how = getattr(chosen, "execution", "")
        print(f"\n{name}: {work.about}\n{how}, ready in {opened:.1f} s", flush=True)
        run = federation.start()
        ours = rounds(federation, session, run, last=PLANNED, measures=Measures(every=10**9))
        for turn in range(warm_up + count):
            before = run
            begun = time.perf_counter()
            run, _ = next(ours)
            spent = {"fedquilt": time.perf_counter() - begun}
            for threads, model in loops.items():
                torch.set_num_threads(threads)
                begun = time.perf_counter()
                plain_round(model, ready, data.train.y, method, federation, before, work)
                spent[f"plain loop, {threads} threads"] = time.perf_counter() - begun
            torch.set_num_threads(1)
            if turn == 0:
                check_agreement(federation, run, loops[1])
            if turn >= warm_up:
                for key, seconds in spent.items():
                    times[key].append(seconds)
    report(times)


def check_agreement(federation: Federation, run: RunState, model: nn.Module) -> None:
    apart = float((federation.layout.read(model).vector - run.groups[0].state.model.vector).abs().max())
    print(f"models after the first round differ by {apart:.1e} at most", flush=True)
    if apart > 1e-4:
        raise SystemExit("the two do not do the same work")


def report(times: dict[str, list[float]]) -> None:
    middle = {key: statistics.median(values) for key, values in times.items()}
    print(f"seconds a round, median of {len(times['fedquilt'])}")
    for key, seconds in middle.items():
        ratio = "" if key == "fedquilt" else f"   fedquilt is {seconds / middle['fedquilt']:.2f}× as fast"
        print(f"  {key:24s} {seconds:8.4f}{ratio}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", choices=[*WORKLOADS, []], help="w1 to w7 (default: all)")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--warm-up", type=int, default=2)
    arguments = parser.parse_args()
    print(f"{os.cpu_count()} cores, torch {torch.__version__}, default threads {THREADS}")
    for name in arguments.workloads or WORKLOADS:
        measure(name, WORKLOADS[name], arguments.rounds, arguments.warm_up)


if __name__ == "__main__":
    main()
