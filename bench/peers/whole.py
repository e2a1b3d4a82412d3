"""Whole runs, as users start them: seconds from the start of the process to the last record.

    python bench/peers/whole.py                           # everything; hours, because other programs are slow
    python bench/peers/whole.py w3 w1 --lengths 10,100    # these
    python bench/peers/whole.py --only plain,fedjax       # beside these alone

fedquilt chooses its engine itself. With a cold cache, its folder for compiled code is empty; no other program has such a
folder, so that each is measured once for both. Programs take turns. Who takes longer than --patience times fedquilt, and
longer than --least, is stopped: the table says "more than". Every measurement is kept at once, in results/whole.json; the
same command goes on from there, and measures nothing twice. --again measures programs anew, at the lengths that are asked
for. Tables and chart are written at the end, also of a run that is interrupted.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import psutil
from environments import SkippedError
from run import FEDQUILT, HERE, PEERS, Peer, chosen, conditions, every_name, installed, launched, title
from table import publish
from wholes import CACHES, COLD, LENGTHS, LONG, OURS, Whole, keep_wholes, kept_wholes
from work import WORKLOADS, Work


def measured(command: list[str], known: dict[str, str], longest: float) -> tuple[float, bool, str]:
    """Run a program to its end: seconds, whether it got there, and how it went about it."""
    reading, writing = os.pipe()
    begun = time.perf_counter()
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            pass_fds=[writing],
            env=known | {"PEERS_ANSWERS": str(writing), "PEERS_WHOLE": "1"},
            start_new_session=True,
        )
        os.close(writing)
        try:
            with os.fdopen(reading) as answers:
                there, _, _ = select.select([answers], [], [], longest)
                seconds = time.perf_counter() - begun
                line = answers.readline() if there else ""
        finally:
            _end(process)
        if there and not line:
            log.seek(0)
            said = [each.strip() for each in log.read().splitlines() if each.strip()]
            raise SkippedError(said[-1] if said else "ended without a word")
    return seconds, bool(there), json.loads(line)["about"] if line else ""


def _end(process: subprocess.Popen) -> None:
    """End a program that is still there, and its children, by their numbers."""
    try:
        tree = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]
    except psutil.NoSuchProcess:
        tree = []
    _, left = psutil.wait_procs(tree, timeout=2)
    for each in left:
        with suppress(psutil.NoSuchProcess):
            each.kill()
    process.wait()


def programs(peers: list[Peer]) -> list[tuple[Peer, str]]:
    """Return the programs, fedquilt without an engine first: the others are held against it."""
    every = [(peer, variant) for peer in peers for variant in peer.variants]
    ours = (FEDQUILT, "defaults")
    return [ours, *(each for each in every if each[0] is not FEDQUILT)]


def turn(
    found: list[Whole], work: Work, rounds: int, turn_: int, pythons: dict, folder: Path, arguments: argparse.Namespace
) -> None:
    """Measure every program once, unless that was done."""
    ours = 0.0
    for peer, variant in programs(arguments.peers):
        for cache in CACHES if peer is FEDQUILT else [""]:
            name = OURS if peer is FEDQUILT else title(peer, variant, work)
            cell = (work.name, rounds, name, cache)
            of_cell = [each for each in found if (each.work, each.rounds, each.program, each.cache) == cell]
            if any(each.out for each in of_cell) or len(of_cell) > turn_:
                ours = max(ours, *(each.seconds for each in of_cell)) if peer is FEDQUILT and of_cell else ours
                continue
            longest = max(arguments.least, arguments.patience * ours) if peer is not FEDQUILT else 3600.0
            at, load = conditions(), round(os.getloadavg()[0], 1)
            with tempfile.TemporaryDirectory() as empty:
                try:
                    command, known = launched(peer, variant, work, rounds, folder, pythons[peer.name])
                    known |= {"XDG_CACHE_HOME": empty} if cache == COLD else {}
                    seconds, ended, about = measured(command, known, longest)
                    out = "" if ended else f"more than {int(seconds)} s"
                except SkippedError as reason:
                    seconds, about, out = 0.0, "", f"skipped: {reason}"
            ours = max(ours, seconds) if peer is FEDQUILT else ours
            where = at["machine"].partition(", load")[0]
            found.append(Whole(*cell, round(seconds, 2), out, about, at["commit"], where, load))
            print(f"{work.name}, {rounds} rounds, {name} {cache}: {out or f'{seconds:.1f} s'} {about}", flush=True)
            keep_wholes(found, arguments.out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", help=f"of {', '.join(WORKLOADS)}; default {', '.join(LENGTHS)}")
    parser.add_argument(
        "--only", default="", help="peers, with commas, or one way to run them: fedjax/jit; default all"
    )
    parser.add_argument("--lengths", default="", help="rounds, with commas; default those of each workload")
    parser.add_argument("--times", type=int, default=3, help="how often each is measured")
    parser.add_argument("--patience", type=float, default=4.0, help="times fedquilt that a program is waited for")
    parser.add_argument("--least", type=float, default=60.0, help="seconds that every program is waited for, at least")
    parser.add_argument("--again", default="", help='programs to measure anew: "fedquilt; fedjax, jit"')
    parser.add_argument("--envs", type=Path, default=Path("~/.cache/fedquilt/peers").expanduser())
    parser.add_argument("--out", type=Path, default=HERE, help="folder of results/ and README.md")
    arguments = parser.parse_args()
    names = set(arguments.only.split(",")) if arguments.only else {peer.name for peer in PEERS}
    if names - every_name():
        parser.error(f"unknown: {', '.join(sorted(names - every_name()))}")
    arguments.peers = chosen(names | {"fedquilt"})
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))
    pythons = installed(arguments.peers, arguments.envs)
    again = {name.strip() for name in arguments.again.split(";")}
    asked = {(name, rounds) for name in arguments.workloads or LENGTHS for rounds in lengths(name, arguments)}
    kept = kept_wholes(arguments.out)
    found = [each for each in kept if each.program not in again or (each.work, each.rounds) not in asked]
    try:
        measure(found, pythons, arguments)
    finally:
        publish(arguments.out)


def lengths(name: str, arguments: argparse.Namespace) -> list[int]:
    """Return the numbers of rounds that a workload is run for."""
    return [int(each) for each in arguments.lengths.split(",")] if arguments.lengths else list(LENGTHS.get(name, LONG))


def measure(found: list[Whole], pythons: dict, arguments: argparse.Namespace) -> None:
    """Measure what was asked for, and is not there yet."""
    for turn_ in range(arguments.times):
        for name in arguments.workloads or LENGTHS:
            with tempfile.TemporaryDirectory() as made:
                os.environ["PEERS_DATA"] = made
                WORKLOADS[name].write()
                for rounds in lengths(name, arguments):
                    turn(found, WORKLOADS[name], rounds, turn_, pythons, Path(made), arguments)


if __name__ == "__main__":
    main()
