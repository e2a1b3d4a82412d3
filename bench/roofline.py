"""How near a round comes to the machine's limit: its multiply-adds a second, as a share of the matrix-multiply peak.

    python bench/roofline.py               # w1 w2 w4 w5; see bench/workloads.py
    python bench/roofline.py w2 --rounds 9

The work of a round is counted, not guessed: `torch.utils.flop_counter` counts the operations of a forward and a backward
pass on one batch. The peak is measured in the same run, before the first round and after every one, with one thread in
each of as many processes as there are cores, on matrices of 1,024: that is what the workers have, too. Time and peak are
medians.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import time
from multiprocessing.connection import Connection

import torch
from torch.utils.flop_counter import FlopCounterMode
from workloads import SEED, WORKLOADS, Work

from fedquilt.base.rng import generator
from fedquilt.round.federation import Federation
from fedquilt.round.loop import rounds
from fedquilt.round.measures import Measures
from fedquilt.round.plan import plan
from fedquilt.round.session import Settling

SIDE = 1024
REPEATS = 8
PLANNED = 10**6


def multiply(pipe: Connection) -> None:
    """Multiply matrices whenever asked, and answer with the operations a second."""
    torch.set_num_threads(1)
    a, b, out = torch.randn(SIDE, SIDE), torch.randn(SIDE, SIDE), torch.empty(SIDE, SIDE)
    torch.mm(a, b, out=out)
    while pipe.recv():
        begun = time.perf_counter()
        for _ in range(REPEATS):
            torch.mm(a, b, out=out)
        pipe.send(REPEATS * 2 * SIDE**3 / (time.perf_counter() - begun))


def peak(pipes: list[Connection]) -> float:
    """Measure all cores at once."""
    for pipe in pipes:
        pipe.send(True)
    return sum(pipe.recv() for pipe in pipes)


def operations(federation: Federation, work: Work) -> float:
    """Count the operations of the first round: forward and backward, of every batch of every client."""
    method, module = work.method(), work.model()
    planned = plan(method, federation.start().groups[0], federation.population, SEED)
    by_size: dict[int, float] = {}
    total = 0.0
    for slot, client in planned.client_of.items():
        rows = federation.partition.client(client)
        cuts = method.sample(len(rows), generator(SEED, "sample", 1, client, slot), 1).cuts
        for size in (cuts[1:] - cuts[:-1]).tolist():
            if size not in by_size:
                by_size[size] = _batch_operations(federation, module, size)
            total += by_size[size]
    return total


def _batch_operations(federation: Federation, module: torch.nn.Module, size: int) -> float:
    data = federation.data
    x, y = data.batch(data.train, range(size))
    with FlopCounterMode(display=False) as counter:
        federation.algorithm.loss(module(x), y).backward()
    return float(counter.get_total_flops()) + _recurrent(module, y.numel())


def _recurrent(module: torch.nn.Module, places: int) -> float:
    """Count what the counter does not see: an LSTM's matrices, twice a place forward and twice as much backward."""
    lstms = [part for part in module.modules() if isinstance(part, torch.nn.LSTM)]
    weights = [p.numel() for lstm in lstms for name, p in lstm.named_parameters() if name.startswith("weight")]
    return 3.0 * 2.0 * places * sum(weights)


def measure(name: str, work: Work, count: int, pipes: list[Connection]) -> None:
    data, method = work.data(), work.method()
    torch.manual_seed(0)
    federation = Federation.of(work.model(), data, work.partition(data), method, SEED)
    done = operations(federation, work)
    engine = work.engine()
    chosen = engine.settled(federation, PLANNED) if isinstance(engine, Settling) else engine
    seconds, peaks = [], []
    with chosen.open(federation) as session:
        ours = rounds(federation.server, session, federation.start(), last=PLANNED, measures=Measures(every=10**9))
        next(ours)
        peaks.append(peak(pipes))
        for _ in range(count):
            begun = time.perf_counter()
            next(ours)
            seconds.append(time.perf_counter() - begun)
            peaks.append(peak(pipes))
    middle, top = statistics.median(seconds), statistics.median(peaks)
    print(
        f"{name}  {done / 1e9:8.2f} GFLOP a round  {middle:7.3f} s  {done / middle / 1e9:6.1f} of {top / 1e9:6.1f} GFLOP/s"
        f"  {100 * done / middle / top:5.1f}%   {work.about}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", choices=[*WORKLOADS, []], help="w1 to w7 (default: w1 w2 w4 w5)")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    pairs = [context.Pipe() for _ in range(os.cpu_count() or 1)]
    workers = [context.Process(target=multiply, args=(theirs,), daemon=True) for _, theirs in pairs]
    for worker in workers:
        worker.start()
    pipes = [ours for ours, _ in pairs]
    peak(pipes)
    try:
        for name in arguments.workloads or ("w1", "w2", "w4", "w5"):
            measure(name, WORKLOADS[name], arguments.rounds, pipes)
    finally:
        for worker in workers:
            worker.kill()


if __name__ == "__main__":
    main()
