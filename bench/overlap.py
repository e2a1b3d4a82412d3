"""What is gained by work that overlaps: evaluation with the next round's clients, groups of clients with each other.

    python bench/overlap.py                          # all; about two minutes on two free cores
    python bench/overlap.py w1 --turns 9

- w1, w2: MNIST 2NN, MNIST CNN (bench/workloads.py), the model evaluated on 10,000 examples after every round
- groups: the 2NN of every client on its own (`local_only`), 20 clients of 600
- waiting, waiting-groups: 9 clients and 10 pieces of an evaluation, or 20 clients on their own, that sleep for 50 and 30 ms
  instead of computing: what the order of work alone gives, on a busy machine too

Beside our engine runs the same engine with every wait that it spares: each evaluation and each group is waited for before
anything else begins. Both take turns of some rounds, on the same workers, because a shared machine's speed changes over
time; where other programs keep the cores busy there is nothing to gain. A turn's last round is evaluated and has nothing
to overlap with. Medians over turns.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from workloads import SEED, WORKLOADS

import fedquilt
from fedquilt.algorithm.state import ClientStore, ServerState
from fedquilt.algorithm.updates import Answer
from fedquilt.compute.layout import ModelState
from fedquilt.data.data import Split
from fedquilt.engines import processes
from fedquilt.partition.partition import Partition
from fedquilt.round.evaluation import Counted, Evaluation, SplitName
from fedquilt.round.federation import Federation
from fedquilt.round.loop import rounds
from fedquilt.round.measures import Measures
from fedquilt.round.plan import Plan
from fedquilt.round.session import Pending, Session

TESTED = 10_000
NEVER = 10**9
LENGTHS = {"w1": 10, "w2": 3, "groups": 2, "waiting": 3, "waiting-groups": 3}


@dataclass(frozen=True)
class OneByOne:
    """A session that begins nothing before what came earlier has ended."""

    session: Session

    def run(self, planned: Plan, state: ServerState, store: ClientStore) -> Iterator[Answer]:
        """Begin when the first answer is asked for."""
        yield from self.session.run(planned, state, store)

    def evaluate(self, model: ModelState, split: SplitName) -> Pending[Evaluation]:
        """Wait for the evaluation."""
        found = self.session.evaluate(model, split)()
        return lambda: found

    def evaluate_clients(
        self, state: ServerState, clients: Sequence[int], store: ClientStore
    ) -> Pending[list[Counted]]:
        """Wait for the evaluation."""
        found = self.session.evaluate_clients(state, clients, store)()
        return lambda: found


class Sleeper(nn.Module):
    """Sleeps in every step and in every piece of an evaluation."""

    def __init__(self, step: float, piece: float) -> None:
        super().__init__()
        self.linear, self.step, self.piece = nn.Linear(784, 10), step, piece

    def forward(self, x: Tensor) -> Tensor:
        """Sleep, then answer."""
        time.sleep(self.step if self.training else self.piece)
        return self.linear(x.flatten(1))  # type: ignore[no-any-return]


def sleeping(name: str) -> Federation:
    alone = name == "waiting-groups"
    data = WORKLOADS["w1"].data()
    data = replace(data, test=Split(data.train.x[:TESTED], data.train.y[:TESTED]))
    held = Partition.of([range(10 * k, 10 * k + 10) for k in range(20 if alone else 9)])
    method = fedquilt.local_only(batch=10, holdout=0.0) if alone else fedquilt.fed_avg(fraction=1.0, batch=10)
    return Federation.of(Sleeper(0.05, 0.0 if alone else 0.03), data, held, method, SEED)


def workload(name: str) -> Federation:
    if name.startswith("waiting"):
        return sleeping(name)
    work = WORKLOADS["w1" if name == "groups" else name]
    data = work.data()
    tested = 100 if name == "groups" else TESTED
    data = replace(data, test=Split(data.train.x[:tested], data.train.y[:tested]))
    held, method = work.partition(data), work.method()
    if name == "groups":
        held, method = Partition.of([held.client(k) for k in range(20)]), fedquilt.local_only(lr=0.05, batch=10)
    torch.manual_seed(0)
    return Federation.of(work.model(), data, held, method, SEED)


def measure(name: str, turns: int, length: int, workers: int) -> None:
    federation = workload(name)
    with processes(workers=workers).open(federation) as session:
        every = NEVER if name.endswith("groups") else 1
        ways = {"one by one": (OneByOne(session), every), "overlapped": (session, every)}
        if every == 1:
            ways["not evaluated"] = (session, NEVER)
        runs = dict.fromkeys(ways, federation.start())
        spent: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(turns + 1):
            for way, (chosen, often) in ways.items():
                begun = time.perf_counter()
                ours = rounds(federation.server, chosen, runs[way], runs[way].round + length, Measures(often))
                *_, (runs[way], _record) = ours
                spent[way].append((time.perf_counter() - begun) / length)
    middle = {way: statistics.median(seconds[1:]) for way, seconds in spent.items()}
    for way, seconds in middle.items():
        print(f"{name}: {way:14s} {seconds:.4f} s a round, {1 / seconds:.2f} rounds a second")
    ratio = statistics.median(a / b for a, b in zip(spent["one by one"][1:], spent["overlapped"][1:], strict=True))
    print(f"{name}: overlapped is {ratio:.3f}× as fast as one by one (median over {turns} pairs of turns)", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*LENGTHS, []])
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--length", type=int, help=f"rounds a turn (default: {LENGTHS})")
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    for name in arguments.names or LENGTHS:
        measure(name, arguments.turns, arguments.length or LENGTHS[name], arguments.workers)


if __name__ == "__main__":
    main()
