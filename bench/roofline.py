"""How near a round comes to the machine's limit: its operations and its bytes, against what the cores can do.

    python bench/roofline.py               # w1 w2 w4 w5 w6 w7 w8 w10; see bench/workloads.py
    python bench/roofline.py w2 --rounds 9

What was found is written to peers/results/roofline.json, a line a workload, and into the table of peers/README.md.

The work of a round is counted, not guessed. `torch.utils.flop_counter` counts the operations of a forward and a backward
pass on one batch. Of convolutions that fedquilt computes by Winograd's algorithm, the operations are those of its products,
a sixth to a quarter of those of the definition, which are counted apart; what goes before and after the products is left
out. The bytes are those of the weights, which every step reads forward and backward, reads again and writes: 16 for each
parameter. Activations, data and what goes between processes are left out, so that the share is never too high.

The limits are measured in the same run, before the first round and after every one, with one thread in each of as many
processes as there are cores, as the workers have: products of matrices of 1,024, and numbers read and written in an array
as large as the model, so that they come from the cache that holds it; of 65,536 numbers at least, since of fewer, it would
be the calls that are measured. The attainable time of a round is the longer of the two, operations over the one rate or
bytes over the other. Times and rates are medians.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import statistics
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path

import torch
from torch.utils.flop_counter import FlopCounterMode
from workloads import SEED, WORKLOADS, Work

from fedquilt.base.rng import generator
from fedquilt.compute.kernels.convolution import FEW, convolved
from fedquilt.round.federation import Federation
from fedquilt.round.loop import rounds
from fedquilt.round.measures import Measures
from fedquilt.round.plan import plan
from fedquilt.round.session import Settling

SIDE = 1024
REPEATS = 8
MOVED = 2 * 10**7
"""Numbers that are read and written for a measurement, at least."""
LEAST = 2**16
A_PARAMETER = 16.0
"""Bytes that a step moves for each parameter."""
PLANNED = 10**6
PEERS = Path(__file__).resolve().parent / "peers"


def work_hard(pipe: Connection) -> None:
    """Multiply matrices, and read and write as many numbers as asked; answer with operations and bytes a second."""
    torch.set_num_threads(1)
    a, b, out = torch.randn(SIDE, SIDE), torch.randn(SIDE, SIDE), torch.empty(SIDE, SIDE)
    torch.mm(a, b, out=out)
    while size := pipe.recv():
        begun = time.perf_counter()
        for _ in range(REPEATS):
            torch.mm(a, b, out=out)
        operations = REPEATS * 2 * SIDE**3 / (time.perf_counter() - begun)
        numbers, repeats = torch.ones(size), max(MOVED // size, 1)
        numbers.mul_(1.0)
        begun = time.perf_counter()
        for _ in range(repeats):
            numbers.mul_(1.0)
        pipe.send((operations, repeats * 8 * size / (time.perf_counter() - begun)))


def limits(pipes: list[Connection], size: int) -> tuple[float, float]:
    """Measure all cores at once: operations and bytes a second, of all of them together."""
    for pipe in pipes:
        pipe.send(size)
    operations, moved = zip(*(pipe.recv() for pipe in pipes), strict=True)
    return sum(operations), sum(moved)


def operations(federation: Federation, work: Work) -> tuple[float, float, float]:
    """Count the operations of the first round, forward and backward, and the bytes, of every batch of every client.

    The third number is what the definition of a convolution has in operations besides.
    """
    method, module = work.method(), work.model()
    planned = plan(method, federation.start().groups[0], federation.population, SEED)
    by_size: dict[int, tuple[float, float]] = {}
    total = moved = spared = 0.0
    for slot, client in planned.client_of.items():
        rows = federation.partition.client(client)
        cuts = method.sample(len(rows), generator(SEED, "sample", 1, client, slot), 1).cuts
        for size in (cuts[1:] - cuts[:-1]).tolist():
            if size not in by_size:
                by_size[size] = _batch_operations(federation, module, size)
            total += by_size[size][0]
            spared += by_size[size][1]
            moved += A_PARAMETER * federation.layout.size
    return total, moved, spared


def _batch_operations(federation: Federation, module: torch.nn.Module, size: int) -> tuple[float, float]:
    data = federation.data
    x, y = data.batch(data.train, range(size))
    spared: list[float] = []
    tiled = [part for part in module.modules() if type(part) is torch.nn.Conv2d and _in_tiles(part)]
    hooks = [part.register_forward_hook(lambda part, _, out: spared.append(_spared(part, out))) for part in tiled]
    with FlopCounterMode(display=False) as counter:
        federation.algorithm.loss(module(x), y).backward()
    for hook in hooks:
        hook.remove()
    return float(counter.get_total_flops()) - sum(spared) + _recurrent(module, y.numel()), sum(spared)


def _in_tiles(part: torch.nn.Conv2d) -> bool:
    return convolved(part) and part.in_channels > FEW


def _spared(part: torch.nn.Conv2d, out: torch.Tensor) -> float:
    """Count the operations of a convolution, forward and backward, that Winograd's algorithm does not need.

    Of 4 × 4 outputs, a filter of 3 needs products at 6 × 6 points, and one of 5 at 8 × 8.
    """
    images, filters, height, width = out.shape
    by_definition = height * width * part.kernel_size[0] ** 2
    by_tiles = math.ceil(height / 4) * math.ceil(width / 4) * (part.kernel_size[0] + 3) ** 2
    return 3.0 * 2.0 * images * part.in_channels * filters * (by_definition - by_tiles)


def _recurrent(module: torch.nn.Module, places: int) -> float:
    """Count what the counter does not see: an LSTM's matrices, twice a place forward and twice as much backward."""
    lstms = [part for part in module.modules() if isinstance(part, torch.nn.LSTM)]
    weights = [p.numel() for lstm in lstms for name, p in lstm.named_parameters() if name.startswith("weight")]
    return 3.0 * 2.0 * places * sum(weights)


def measure(name: str, work: Work, count: int, pipes: list[Connection]) -> dict[str, object]:
    load = os.getloadavg()[0]
    data, method = work.data(), work.method()
    torch.manual_seed(0)
    federation = Federation.of(work.model(), data, work.partition(data), method, SEED)
    done, moved, spared = operations(federation, work)
    size = max(federation.layout.size, LEAST)
    engine = work.engine()
    chosen = engine.settled(federation, PLANNED) if isinstance(engine, Settling) else engine
    seconds, peaks = [], []
    with chosen.open(federation) as session:
        ours = rounds(federation.server, session, federation.start(), last=PLANNED, measures=Measures(every=10**9))
        next(ours)
        peaks.append(limits(pipes, size))
        for _ in range(count):
            begun = time.perf_counter()
            next(ours)
            seconds.append(time.perf_counter() - begun)
            peaks.append(limits(pipes, size))
    middle = statistics.median(seconds)
    fastest, widest = (statistics.median(each) for each in zip(*peaks, strict=True))
    attainable = max(done / fastest, moved / widest)
    bound = "operations" if done / fastest >= moved / widest else "bytes"
    print(
        f"{name}  {done / 1e9:7.2f} GFLOP at {fastest / 1e9:5.0f}/s  {moved / 1e9:7.2f} GB at {widest / 1e9:4.0f}/s"
        f"  attainable {attainable:7.4f} s (by {bound})  taken {middle:7.4f} s  {100 * attainable / middle:5.1f}%"
        f"   of the peak of products alone {100 * done / fastest / middle:4.1f}%"
        f"   by definition {100 * (done + spared) / fastest / middle:4.1f}%   {work.about}",
        flush=True,
    )
    return {
        "operations": done,
        "spared": spared,
        "operations_a_second": fastest,
        "bytes": moved,
        "bytes_a_second": widest,
        "attainable": attainable,
        "bound": bound,
        "taken": middle,
        "rounds": count,
        "load": round(load, 1),
    }


def keep(name: str, found: dict[str, object]) -> None:
    """Write what was found of a workload beside the others, and the tables anew."""
    sys.path.append(str(PEERS))
    from findings import LIMITS, keep_row  # noqa: PLC0415
    from run import where  # noqa: PLC0415
    from table import publish  # noqa: PLC0415

    keep_row(PEERS, LIMITS, name, where() | found)
    publish(PEERS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", choices=[*WORKLOADS, []], help="w1 to w10 (default: all but w3 and w9)")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    pairs = [context.Pipe() for _ in range(os.cpu_count() or 1)]
    workers = [context.Process(target=work_hard, args=(theirs,), daemon=True) for _, theirs in pairs]
    for worker in workers:
        worker.start()
    pipes = [ours for ours, _ in pairs]
    limits(pipes, SIDE)
    try:
        for name in arguments.workloads or ("w1", "w2", "w4", "w5", "w6", "w7", "w8", "w10"):
            keep(name, measure(name, WORKLOADS[name], arguments.rounds, pipes))
    finally:
        for worker in workers:
            worker.kill()


if __name__ == "__main__":
    main()
