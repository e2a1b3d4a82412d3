"""What `precision = "bf16"` saves, and what it costs in accuracy, on real MNIST.

    FEDQUILT_DATA=... python bench/precision.py                 # both; about 15 minutes
    python bench/precision.py speed                             # w2 and w4 alone

Speed: rounds of W2 and W4 (bench/workloads.py) in float32 and bfloat16, in turns. Accuracy: the MNIST CNN of McMahan 2017
trained twice on the same clients, cohorts and batches, 100 clients of shards, for as many rounds as asked.
"""

from __future__ import annotations

import argparse
import statistics
import time
from contextlib import ExitStack

import torch
from workloads import SEED, WORKLOADS

import fedquilt
from fedquilt.compute.device import Precision
from fedquilt.models import mnist_cnn
from fedquilt.round.federation import Federation
from fedquilt.round.loop import rounds
from fedquilt.round.measures import Measures

PRECISIONS: tuple[Precision, Precision] = ("float32", "bf16")


def speed(name: str, count: int) -> None:
    work = WORKLOADS[name]
    data = work.data()
    torch.manual_seed(0)
    federation = Federation.of(work.model(), data, work.partition(data), work.method(), SEED)
    spent: dict[str, list[float]] = {precision: [] for precision in PRECISIONS}
    with ExitStack() as stack:
        running = {}
        for precision in PRECISIONS:
            session = stack.enter_context(fedquilt.processes(precision=precision).open(federation))
            measures = Measures(every=10**9)
            running[precision] = rounds(federation.server, session, federation.start(), last=10**6, measures=measures)
            next(running[precision])
        for _ in range(count):
            for precision, ours in running.items():
                begun = time.perf_counter()
                next(ours)
                spent[precision].append(time.perf_counter() - begun)
    middle = {precision: statistics.median(seconds) for precision, seconds in spent.items()}
    ratio = middle["float32"] / middle["bf16"]
    print(
        f"{name}: float32 {middle['float32']:.3f} s, bf16 {middle['bf16']:.3f} s a round: bf16 is {ratio:.2f}× as fast"
    )


def accuracy(count: int) -> None:
    data = fedquilt.mnist()
    held = fedquilt.shards(data.train.y.numpy(), clients=100)
    method = fedquilt.fed_avg(lr=0.1, fraction=0.1, epochs=1, batch=50)
    for precision in PRECISIONS:
        torch.manual_seed(0)
        model = mnist_cnn()
        engine = fedquilt.processes(precision=precision)
        result = fedquilt.train(
            model, data, held, method, count, seed=SEED, eval_every=max(count // 5, 1), engine=engine
        )
        reached = [f"{value:.4f}" for value in result.history.accuracy]
        print(f"{precision}: test accuracy over {count} rounds {', '.join(reached)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", default=["speed", "accuracy"], choices=["speed", "accuracy"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--trained", type=int, default=20, help="rounds of training for the accuracy")
    arguments = parser.parse_args()
    lowered = torch.cpu._is_avx512_bf16_supported()
    print(f"torch {torch.__version__}; the processor {'has' if lowered else 'has no'} bfloat16 arithmetic", flush=True)
    if "speed" in arguments.what:
        for name in ("w2", "w4"):
            speed(name, arguments.rounds)
    if "accuracy" in arguments.what:
        accuracy(arguments.trained)


if __name__ == "__main__":
    main()
