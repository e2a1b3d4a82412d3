"""The engine `ray` beside `processes`: CPU a round, memory a worker, and what goes through the driver.

    python bench/ray.py                              # all; about ten minutes on two free cores
    python bench/ray.py w1 --turns 5
    python bench/ray.py traffic costs

- w1, w2, w6: CPU a round of both engines (bench/workloads.py), with two workers each, one client at a time
- memory: what a worker of either has to itself, with W1's data
- traffic: bytes to and from the driver a round, for cohorts of 10, 100 and 1,000 clients, with and without partial sums
- costs: what a task, a put of a model and a fold of a sum cost the driver: the constants of docs/scaling.md

Both engines take turns of some rounds in one process, because a shared machine's speed changes over time. CPU is that of
the driver and of every process that it started, Ray's own included: the script starts itself again in a namespace of its
own (`unshare`), where there are no other processes, and no network but loopback. Medians over turns.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from workloads import SEED, WORKLOADS, numbers

# This file's own name is that of the package which it measures.
sys.path[:] = [path for path in sys.path if Path(path or ".").resolve() != Path(__file__).parent]

import fedquilt  # noqa: E402
from fedquilt.algorithm.parts.reduction import WeightedMean  # noqa: E402
from fedquilt.algorithm.updates import Cohort, PartialSum  # noqa: E402
from fedquilt.engines.cluster.connection import cluster  # noqa: E402
from fedquilt.partition.partition import Partition  # noqa: E402
from fedquilt.round.federation import Federation  # noqa: E402
from fedquilt.round.loop import rounds  # noqa: E402
from fedquilt.round.measures import Measures  # noqa: E402

LENGTHS = {"w1": 5, "w2": 1, "w6": 2}
ALLOWED = {"w1": 1.15, "w2": 1.05, "w6": 1.25}
COHORTS = (10, 100, 1000)
NEVER, WORKERS, TICKS = 10**9, 2, os.sysconf("SC_CLK_TCK")
INSIDE = "FEDQUILT_BENCH_INSIDE"


def processor_seconds() -> dict[int, float]:
    """Seconds of CPU that each process of this namespace has used, with those of its children that have ended."""
    used = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = file.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        used[int(file.parent.name)] = sum(map(int, fields[11:15])) / TICKS
    return used


def is_daemon(process: int) -> bool:
    """Say whether a process is neither the driver nor one of its actors."""
    try:
        command = Path(f"/proc/{process}/cmdline").read_text()
    except OSError:
        return False
    return process != os.getpid() and not command.startswith("ray::Worker")


def federation_of(name: str) -> Federation:
    work = WORKLOADS[name]
    data = work.data()
    torch.manual_seed(0)
    return Federation.of(work.model(), data, work.partition(data), work.method(), SEED)


def advanced(federation: Federation, session: Any, run: Any, length: int) -> Any:
    *_, (run, _record) = rounds(federation.server, session, run, run.round + length, Measures(NEVER))
    return run


def measure(name: str, turns: int) -> None:
    """Compare both engines on a workload."""
    federation, length = federation_of(name), LENGTHS[name]
    with fedquilt.processes(workers=WORKERS).open(federation) as plain:
        own = {each.process.pid for each in plain.scheduler._transport._workers.values()}
        with cluster("local", WORKERS), fedquilt.ray(workers=WORKERS).open(federation) as on_ray:
            sessions = {"processes": plain, "ray": on_ray}
            runs = dict.fromkeys(sessions, federation.start())
            spent: dict[str, list[float]] = {way: [] for way in sessions}
            clock: dict[str, list[float]] = {way: [] for way in sessions}
            daemons: list[float] = []
            for _ in range(turns + 1):
                for way, session in sessions.items():
                    before, begun = processor_seconds(), time.perf_counter()
                    runs[way] = advanced(federation, session, runs[way], length)
                    clock[way].append((time.perf_counter() - begun) / length)
                    after, me = processor_seconds(), os.getpid()
                    counted = [p for p in after if p == me or (p in own) == (way == "processes")]
                    if way == "ray":
                        daemons.append(sum(after[p] - before.get(p, 0.0) for p in counted if is_daemon(p)) / length)
                    spent[way].append(sum(after[p] - before.get(p, 0.0) for p in counted) / length)
            same = {federation.layout.digest(run.groups[0].state.model) for run in runs.values()}
            assert len(same) == 1, "the engines differ"
    for way in sessions:
        cpu, seconds = statistics.median(spent[way][1:]), statistics.median(clock[way][1:])
        print(f"{name}: {way:10s} {cpu:.3f} s of CPU a round, {seconds:.3f} s")
    share = statistics.median(daemons[1:])
    print(f"{name}: {share:.3f} s of ray's are its daemons', which use some by the second, also while nothing is to do")
    ratio = statistics.median(b / a for a, b in zip(spent["processes"][1:], spent["ray"][1:], strict=True))
    verdict = "within" if ratio <= ALLOWED[name] else "over"
    print(
        f"{name}: ray takes {ratio:.3f}× the CPU of processes ({verdict} {ALLOWED[name]:g}; median of {turns} turns)",
        flush=True,
    )


def private(process: int | str) -> int:
    """Bytes of memory that a process has to itself."""
    lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))


def memory() -> None:
    """Compare what workers have to themselves."""
    federation = federation_of("w1")
    with fedquilt.processes(workers=WORKERS).open(federation) as plain:
        advanced(federation, plain, federation.start(), 1)
        plain_bytes = [private(each.process.pid) for each in plain.scheduler._transport._workers.values()]
    with cluster("local", WORKERS) as found, fedquilt.ray(workers=WORKERS).open(federation) as on_ray:
        advanced(federation, on_ray, federation.start(), 1)
        actors = on_ray.scheduler._transport._actors.values()
        ray_bytes = found.ray.get([actor.handle.memory.remote() for actor in actors])
        site = on_ray.scheduler._transport.traffic.site
    for way, sizes in (("processes", plain_bytes), ("ray", ray_bytes)):
        print(f"memory: {way:10s} {statistics.median(sizes) / 2**20:.0f} MiB a worker to itself")
    print(f"memory: the data, {site / 2**20:.0f} MiB, lie in the object store once", flush=True)


def traffic() -> None:
    """Count what goes through the driver, by the size of the cohort."""
    with cluster("local", WORKERS):
        for cohort in COHORTS:
            data = numbers(5 * max(COHORTS), 784, 10)
            held = Partition.by_sizes(np.arange(len(data.train)), np.full(max(COHORTS), 5, dtype=np.int64))
            torch.manual_seed(0)
            module, method = WORKLOADS["w1"].model(), fedquilt.fed_avg(lr=0.1, cohort=cohort, batch=5)
            federation = Federation.of(module, data, held, method, SEED)
            for sums in (True, False):
                with fedquilt.ray(workers=WORKERS, sums=sums).open(federation) as session:
                    counted = session.scheduler._transport.traffic
                    run = advanced(federation, session, federation.start(), 1)
                    before = counted.out, counted.back
                    advanced(federation, session, run, 2)
                    out, back = (counted.out - before[0]) / 2, (counted.back - before[1]) / 2
                what = "partial sums" if sums else "single updates"
                print(
                    f"traffic: {cohort:5d} clients, {what:14s} {out / 2**20:.2f} MiB out, {back / 2**20:.2f} back a round",
                    flush=True,
                )


def costs() -> None:
    """Measure what a task, a put and a fold cost the driver."""
    with cluster("local", WORKERS) as found:
        federation = federation_of("w1")
        with fedquilt.ray(workers=1).open(federation) as session:
            (actor,) = session.scheduler._transport._actors.values()
            found.ray.get([actor.handle.__ray_ready__.remote() for _ in range(20)])
            calls, cpu, begun = 300, time.process_time(), time.perf_counter()
            for _ in range(calls):
                found.ray.get(actor.handle.__ray_ready__.remote())
            each, own = (time.perf_counter() - begun) / calls, (time.process_time() - cpu) / calls
            print(f"costs: a call {1e3 * each:.2f} ms, {1e3 * own:.2f} ms of it the driver's CPU")
        for parameters in (10_000, 200_000, 1_600_000, 10_000_000):
            vector, total = np.zeros(parameters, dtype=np.float32), torch.ones(parameters, dtype=torch.int64)
            put = timed(lambda vector=vector: found.ray.put(vector))
            fold = WeightedMean(Cohort(parameters, 100.0, 10, 10))
            part = PartialSum([0], [0], total, [1.0], [0.0], [1], [1])
            get = found.ray.put(total.numpy())
            take = timed(lambda get=get: np.array(found.ray.get(get)))
            print(
                f"costs: {parameters:10,} parameters: put {1e3 * put:.2f} ms, take over a sum {1e3 * take:.2f} ms, "
                f"fold it {1e3 * timed(lambda fold=fold, part=part: fold.add_sum(part)):.2f} ms",
                flush=True,
            )


def timed(function: Any, times: int = 15) -> float:
    """Median seconds of CPU of a call."""
    found = []
    for _ in range(times):
        begun = time.process_time()
        function()
        found.append(time.process_time() - begun)
    return statistics.median(found)


def main() -> None:
    """Start again inside, then measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    choices = [*LENGTHS, "memory", "traffic", "costs"]
    parser.add_argument("names", nargs="*", choices=[*choices, []])
    parser.add_argument("--turns", type=int, default=5)
    arguments = parser.parse_args()
    if INSIDE not in os.environ:
        os.environ[INSIDE] = "1"
        namespace = ["unshare", "-n", "-p", "-f", "--mount-proc", "--kill-child"]
        up = ["sh", "-c", 'ip link set lo up && exec "$@"', "sh", sys.executable, *sys.argv]
        os.execvp(namespace[0], [*namespace, *up])
    for name in arguments.names or choices:
        {"memory": memory, "traffic": traffic, "costs": costs}.get(
            name, lambda name=name: measure(name, arguments.turns)
        )()


if __name__ == "__main__":
    main()
