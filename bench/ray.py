"""The engine `ray` beside `processes`: CPU a round, memory a worker, and what goes through the driver.

    python bench/ray.py                              # all; about ten minutes on two free cores
    python bench/ray.py w1 --turns 5
    python bench/ray.py traffic costs
    python bench/ray.py w1 --turns 1 --out runs/bench  # only to try it

- w1, w2, w6: CPU a round of both engines (bench/workloads.py), with two workers each, one client at a time
- memory: what a worker of either has to itself, with W1's data
- traffic: bytes to and from the driver a round, for cohorts of 10, 100 and 1,000 clients, with and without partial sums
- costs: what a task, a put of a model and a fold of a sum cost the driver: the constants of docs/scaling.md

What was measured goes into results/ray.json, part by part, and from there into the tables of docs/scaling.md, with what
bench/scaling.py makes of it; with `--out`, into copies of both in a folder.

Both engines take turns of some rounds in one process, because a shared machine's speed changes over time. CPU is that of
the driver and of every process that it started, Ray's own included: the script starts itself again in a namespace of its
own (`unshare`), where there are no other processes, and no network but loopback. Medians over turns.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import shutil
import statistics
import subprocess
import sys
import time
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import scaling
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


def measure(name: str, turns: int) -> scaling.Found:
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
    found: scaling.Found = {"about": WORKLOADS[name].about, "turns": turns}
    for way in sessions:
        found[way], seconds = statistics.median(spent[way][1:]), statistics.median(clock[way][1:])
        print(f"{name}: {way:10s} {found[way]:.3f} s of CPU a round, {seconds:.3f} s")
    found["daemons"] = statistics.median(daemons[1:])
    print(f"{name}: {found['daemons']:.3f} s of ray's are its daemons', which use some by the second, also while idle")
    found["ratio"] = statistics.median(b / a for a, b in zip(spent["processes"][1:], spent["ray"][1:], strict=True))
    verdict = "within" if found["ratio"] <= scaling.ALLOWED[name] else "over"
    print(
        f"{name}: ray takes {found['ratio']:.3f}× the CPU of processes ({verdict} {scaling.ALLOWED[name]:g})",
        flush=True,
    )
    return found


def private(process: int | str) -> int:
    """Bytes of memory that a process has to itself."""
    lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))


def memory() -> scaling.Found:
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
    each = {"processes": statistics.median(plain_bytes), "ray": statistics.median(ray_bytes), "data": site}
    found = {what: size / 2**20 for what, size in each.items()}
    print("memory: " + ", ".join(f"{what} {size:.0f} MiB" for what, size in found.items()), flush=True)
    return found


def traffic() -> scaling.Found:
    """Count what goes through the driver, by the size of the cohort."""
    found: dict[str, dict[str, tuple[float, float]]] = {}
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
                found.setdefault(str(cohort), {})[what] = out, back
                print(
                    f"traffic: {cohort:5d} clients, {what:14s} {out / 2**20:.2f} MiB out, {back / 2**20:.2f} back a round"
                )
    return {"cohorts": found}


def costs() -> scaling.Found:
    """Measure what a task, a put and a fold cost the driver."""
    found: scaling.Found = {"put": {}, "take": {}, "fold": {}}
    with cluster("local", WORKERS) as there:
        federation = federation_of("w1")
        with fedquilt.ray(workers=1).open(federation) as session:
            (actor,) = session.scheduler._transport._actors.values()
            there.ray.get([actor.handle.__ray_ready__.remote() for _ in range(20)])
            calls, cpu, begun = 300, time.process_time(), time.perf_counter()
            for _ in range(calls):
                there.ray.get(actor.handle.__ray_ready__.remote())
            each, found["call"] = (time.perf_counter() - begun) / calls, (time.process_time() - cpu) / calls
            print(f"costs: a call {1e3 * each:.2f} ms, {1e3 * found['call']:.2f} ms of it the driver's CPU")
        for size in scaling.SIZES:
            vector, total = np.zeros(size, dtype=np.float32), torch.ones(size, dtype=torch.int64)
            fold = WeightedMean(Cohort(size, 100.0, 10, 10))
            part = PartialSum([0], [0], total, [1.0], [0.0], [1], [1])
            stored = there.ray.put(total.numpy())
            ways = {
                "put": lambda vector=vector: there.ray.put(vector),
                "take": lambda stored=stored: np.array(there.ray.get(stored)),
                "fold": lambda fold=fold, part=part: fold.add_sum(part),
            }
            for name, way in ways.items():
                found[name][str(size)] = timed(way)
            said = ", ".join(f"{name} {1e3 * found[name][str(size)]:.2f} ms" for name in ways)
            print(f"costs: {size:10,} parameters: {said}", flush=True)
    return found


def timed(function: Any, times: int = 15) -> float:
    """Median seconds of CPU of a call."""
    found = []
    for _ in range(times):
        begun = time.process_time()
        function()
        found.append(time.process_time() - begun)
    return statistics.median(found)


def conditions(arguments: argparse.Namespace) -> dict[str, str]:
    """Say of which commit, when, on what and how this is measured."""
    root = Path(__file__).resolve().parent.parent

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False).stdout.strip()

    changed = git("status", "--porcelain", "--", "src", "bench/*.py")
    return {
        "commit": (git("rev-parse", "--short=10", "HEAD") or "unknown") + (" with changes" if changed else ""),
        "when": time.strftime("%Y-%m-%d"),
        "command": shlex.join(["python", "bench/ray.py", *arguments.names, "--turns", str(arguments.turns)]),
        "machine": f"{os.cpu_count()} cores ({platform.machine()}), Python {platform.python_version()}, torch "
        f"{torch.__version__}, Ray {version('ray')}, load {os.getloadavg()[0]:.1f} at the start",
    }


def keep(name: str, found: scaling.Found, results: Path) -> None:
    """Write a part's figures beside those of the others."""
    known = json.loads(results.read_text()) if results.exists() else {}
    results.write_text(json.dumps(known | {name: found}, indent=1) + "\n")


def main() -> None:
    """Start again inside, then measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    choices = [*LENGTHS, "memory", "traffic", "costs"]
    parser.add_argument("names", nargs="*", choices=[*choices, []])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument(
        "--out", type=Path, help="a folder for ray.json and scaling.md, instead of those of the project"
    )
    arguments = parser.parse_args()
    if INSIDE not in os.environ:
        os.environ[INSIDE] = "1"
        namespace = ["unshare", *(["-r"] if os.geteuid() else []), "-n", "-p", "-f", "--mount-proc", "--kill-child"]
        up = ["sh", "-c", 'ip link set lo up && exec "$@"', "sh", sys.executable, *sys.argv]
        os.execvp(namespace[0], [*namespace, *up])
    results, page = scaling.RESULTS, scaling.PAGE
    if arguments.out is not None:
        arguments.out.mkdir(parents=True, exist_ok=True)
        results, page = (Path(shutil.copy(file, arguments.out)) for file in (results, page))
    at = conditions(arguments)
    ways = {name: partial(measure, name, arguments.turns) for name in LENGTHS}
    ways |= {"memory": memory, "traffic": traffic, "costs": costs}
    for name in arguments.names or choices:
        keep(name, {"at": at} | ways[name](), results)
        scaling.publish(page, results)


if __name__ == "__main__":
    main()
