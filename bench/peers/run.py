"""Runs the same federated averaging on other frameworks, on fedquilt and on a plain PyTorch loop, in turns.

    python bench/peers/run.py                          # all workloads, every peer
    python bench/peers/run.py w1 w3 --only flower,fedjax

Each peer gets a virtual environment of its own, made once under --envs, before anything is measured. The plain loop and
fedquilt run in the environment of this command. All are processes that wait for their turn, because a shared machine's
speed changes over time: in every turn each does one round, or as many short ones as take 0.3 s. After that each trains one
round on the same batches from the same model, and what comes out must agree with the plain loop's model. A peer that does
not install, run or agree is skipped, with the reason. What was measured of a workload goes into a file of its own,
results/<workload>.json; the chart and the tables in README.md, of all workloads that have one, are then written anew. With
--only, all that goes to runs/bench/peers unless --out says otherwise.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path

import numpy as np
from environments import SkippedError, environment
from program import MOST, Program
from table import keep, programs, publish
from work import WORKLOADS, Work

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent.parent / "src"
AGREE = 1e-4
"""How far a parameter may be from the plain loop's after a round on the same batches; `Work.share` is a second limit."""
NAMESPACE = ("unshare", "--map-root-user", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")
"""Linux's way to run a command without any network but loopback."""

BUSY = 0.5
"""A load before anything is measured that is worth a remark."""

ONE = {"OMP_NUM_THREADS": "1"}
DEVICES = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={os.cpu_count()}"}
SUITED = "suited"
"""The variant of a peer that trains in one process: one thread, or PyTorch's default, as suits the workload."""


@dataclass(frozen=True)
class Peer:
    """A framework: what to install, and the variants of its program with their environment variables."""

    name: str
    needs: tuple[str, ...] = ()
    variants: dict[str, dict[str, str]] = field(default_factory=lambda: {"": {}})
    alone: bool = False
    """Whether it must run where there is no network but loopback."""
    counted: bool = False
    """Whether it must know beforehand how many rounds there are: then every turn is one round."""

    @property
    def program(self) -> Path:
        return HERE / f"on_{self.name}.py"

    @property
    def lines(self) -> int:
        """Lines of user code that are neither empty nor comments; models are not counted, for nobody."""
        parts = self.program.read_text().split("# user code begins")[1:]
        lines = [line.strip() for part in parts for line in part.split("# user code ends")[0].splitlines()]
        return sum(1 for line in lines if line and not line.startswith("#"))


PLAIN = Peer("plain", variants={"1 thread": ONE, "default threads": {}})
FEDQUILT = Peer("fedquilt", variants={"": {}, "defaults": {}})
JAX = ("fedjax==0.0.17", "jax==0.4.30", "jaxlib==0.4.30", "dm-haiku==0.0.12", "numpy<2")
PEERS = (
    PLAIN,
    FEDQUILT,
    Peer("fedjax", JAX, {"jit": {}, "pmap": DEVICES}),
    Peer("pfl", ("torch", "pillow", "pfl==0.6.0"), {SUITED: {}}),
    Peer("fedlab", ("torch", "pillow", "fedlab==1.3.0"), {SUITED: {}}, counted=True),
    Peer("blazefl", ("torch", "numpy", "pillow", "blazefl==2.0.3", "tqdm"), {"threads": ONE, "processes": ONE}),
    Peer(
        "flower",
        ("torch", "pillow", "flwr[simulation]==1.41.0"),
        {"1-cpu": {}, "default": {}},
        alone=True,
        counted=True,
    ),
)


def every_name() -> set[str]:
    """Return what peers and their variants are called on the command line."""
    return {name for peer in PEERS for name in (peer.name, *(f"{peer.name}/{variant}" for variant in peer.variants))}


def chosen(names: set[str]) -> list[Peer]:
    """Return the peers of these names, each with the variants that were asked for, or all."""
    found = []
    for peer in PEERS:
        variants = {v: known for v, known in peer.variants.items() if names & {peer.name, f"{peer.name}/{v}"}}
        if variants:
            found.append(peer if variants == peer.variants else replace(peer, variants=variants))
    return found


def title(peer: Peer, variant: str, work: Work) -> str:
    if variant == SUITED:
        variant = "1 thread" if work.threads else "default threads"
    return f"{peer.name}, {variant}" if variant else peer.name


Pythons = dict[str, Path | SkippedError]
"""By peer: its environment's Python, or why there is none."""


def installed(peers: list[Peer], envs: Path) -> Pythons:
    """Make the environments that are not there."""
    pythons: Pythons = {}
    for peer in peers:
        try:
            pythons[peer.name] = environment(peer.name, peer.needs, envs)
        except SkippedError as reason:
            pythons[peer.name] = reason
    return pythons


def launched(
    peer: Peer, variant: str, work: Work, rounds: int, folder: Path, python: Path | SkippedError
) -> tuple[list[str], dict[str, str]]:
    """Return the command and the environment variables of a peer's program."""
    if isinstance(python, SkippedError):
        raise python
    known = {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", *ONE, *DEVICES}}
    known |= {"PEERS_DATA": str(folder), "PYTHONPATH": f"{HERE}:{SOURCE}" if peer.name == FEDQUILT.name else str(HERE)}
    known |= ONE if variant == SUITED and work.threads else peer.variants[variant]
    name = title(peer, variant, work)
    command = [python, peer.program, work.name, rounds, folder / f"{name}.npy", variant]
    if peer.alone:
        if subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False).returncode:
            raise SkippedError("listens on every address, and a network namespace cannot be made here")
        command = [*NAMESPACE, *command]
    return [str(part) for part in command], known


def start(
    peer: Peer, variant: str, work: Work, rounds: int, folder: Path, python: Path | SkippedError, longest: float
) -> Program:
    """Start a peer's program, and have it do its first round."""
    command, known = launched(peer, variant, work, rounds, folder, python)
    most = 1 if peer.counted else MOST
    program = Program(title(peer, variant, work), command, known, longest if peer.needs else inf, most)
    if program.first > 2 * program.longest:
        program.stop()
        raise SkippedError(f"the first round took {program.first:.0f} s, more than twice --longest {longest:g}")
    return program


class Field:
    """The programs that are still in, and the reasons of those that are out."""

    def __init__(self) -> None:
        self.programs: list[tuple[Peer, Program]] = []
        self.out: dict[str, str] = {}

    def skip(self, name: str, reason: object) -> None:
        if name in {"fedquilt", "plain, 1 thread"}:
            raise SystemExit(f"{name}, which all others are held against: {reason}")
        print(f"  {name}: skipped: {reason}", flush=True)
        self.out[name] = str(reason)
        for _, program in self.programs:
            if program.name == name:
                program.stop()
        self.programs = [(peer, program) for peer, program in self.programs if program.name != name]

    def each(self, action) -> None:
        """Do something with every program; those that cannot are out."""
        for _, program in list(self.programs):
            try:
                action(program)
            except SkippedError as reason:
                self.skip(program.name, reason)


def measure(work: Work, peers: list[Peer], pythons: Pythons, arguments: argparse.Namespace) -> dict[str, object]:
    """Measure a workload on all peers, in turns, and compare their models."""
    entered = Field()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        os.environ["PEERS_DATA"] = made
        work.write()
        warm_up = arguments.warm_up if arguments.warm_up is not None else int(work.threads is not None)
        rounds = 1 + warm_up + arguments.rounds
        try:
            for peer in peers:
                for variant in peer.variants:
                    try:
                        program = start(peer, variant, work, rounds, folder, pythons[peer.name], arguments.longest)
                        entered.programs.append((peer, program))
                        print(f"  {program.name}: started in {program.start_up:.1f} s", flush=True)
                    except SkippedError as reason:
                        entered.skip(title(peer, variant, work), reason)
            take_turns(entered, warm_up, arguments)
            moved = compare(work, entered, folder)
        finally:
            for _, program in entered.programs:
                program.stop()
    rows = [row(peer, program) for peer, program in entered.programs]
    return {
        "moved": float(f"{moved:.3g}"),
        "rows": rows + [{"program": name, "skipped": reason} for name, reason in entered.out.items()],
    }


def take_turns(entered: Field, warm_up: int, arguments: argparse.Namespace) -> None:
    def take(program: Program, record: bool) -> None:
        seconds = program.turn(record)
        if seconds > program.longest:
            raise SkippedError(f"a round took {seconds:.0f} s, more than --longest {arguments.longest:g}")

    def warm(program: Program) -> None:
        with program.watched():
            take(program, record=False)

    for _ in range(warm_up):
        entered.each(warm)
    for _ in range(arguments.rounds):
        entered.each(lambda program: take(program, record=True))
    entered.each(lambda program: program.weigh())


def compare(work: Work, entered: Field, folder: Path) -> float:
    """Have every program train on the same batches, and hold the models against the plain loop's.

    Return how far the plain loop's model moved in that round, in the parameter that moved most.
    """

    def hear(program: Program) -> None:
        program.about = str(program.heard()["about"])

    entered.each(lambda program: program.ask("compare 1"))
    entered.each(hear)
    plain = np.load(folder / "plain, 1 thread.npy")
    moved = float(np.abs(plain - work.first_model).max())

    def agree(program: Program) -> None:
        program.apart = float(np.abs(np.load(folder / f"{program.name}.npy") - plain).max())
        if not program.apart <= min(AGREE, work.share * moved):
            raise SkippedError(
                f"not the same work: on the same batches its model differs by {program.apart:.1e}, "
                f"where the plain loop's moves by {moved:.1e}"
            )

    entered.each(agree)
    return moved


def row(peer: Peer, program: Program) -> dict[str, object]:
    """Tell what was measured."""
    found = {
        "program": program.name,
        "rounds": [float(f"{seconds:.4g}") for seconds in program.seconds],
        "start_up": round(program.start_up, 2),
        "memory_mb": round(program.peak / 1e6),
        "lines": peer.lines,
        "apart": float(f"{program.apart:.2g}"),
    }
    return found | ({"about": program.about} if program.about else {})


def end(number: int, frame: object) -> None:
    """Leave in order, so that the programs are ended, too; being told again changes nothing."""
    signal.signal(number, signal.SIG_IGN)
    raise SystemExit(1)


def conditions() -> dict[str, str]:
    """Say of which commit, when, on what and how this is measured."""
    from fedquilt.experiment.environment import environment as about  # noqa: PLC0415

    here = about()
    sources = ("src", "constraints.txt", "bench/workloads.py", "bench/peers/*.py")
    changed = _git("status", "--porcelain", "--", *sources)
    return {
        "commit": (_git("rev-parse", "--short=10", "HEAD") or "unknown") + (" with changes" if changed else ""),
        "when": time.strftime("%Y-%m-%d %H:%M"),
        "command": shlex.join(["python", "bench/peers/run.py", *_without_folders(sys.argv[1:])]),
        "machine": f"{here['cores']} cores ({here['processor']}, {here['instruction_set']}), Python {here['python']}, "
        f"torch {here['packages']['torch']}, load {os.getloadavg()[0]:.1f} at the start",
    }


def where() -> dict[str, str]:
    """Say of which commit, when and on what this is measured, for what keeps its load by itself."""
    at = conditions()
    return {"commit": at["commit"], "when": at["when"], "machine": at["machine"].partition(", load")[0]}


def _git(*arguments: str) -> str:
    try:
        return subprocess.run(
            ["git", *arguments], cwd=HERE.parent.parent, capture_output=True, text=True, check=False
        ).stdout.strip()
    except OSError:
        return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", help=f"of {', '.join(WORKLOADS)}; default all")
    parser.add_argument(
        "--only",
        default="",
        help="peers, with commas, beside the plain loop and fedquilt, or one way to run them: blazefl/threads; default all",
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--warm-up", type=int, help="rounds after the first that are not measured either; default 1, for large models 0"
    )
    parser.add_argument("--longest", type=float, default=20.0, help="seconds per round beyond which a peer is skipped")
    parser.add_argument("--envs", type=Path, default=Path("~/.cache/fedquilt/peers").expanduser())
    parser.add_argument("--out", type=Path, help="folder of results/, results.png and README.md")
    arguments = parser.parse_args()
    names = set(arguments.only.split(",")) if arguments.only else {peer.name for peer in PEERS}
    unknown = names - every_name() | set(arguments.workloads) - set(WORKLOADS)
    if unknown:
        known = f"workloads are {', '.join(WORKLOADS)}; peers {', '.join(peer.name for peer in PEERS)}"
        parser.error(f"unknown: {', '.join(sorted(unknown))}; {known}")
    peers = chosen(names | {"plain", "fedquilt"})
    signal.signal(signal.SIGTERM, end)
    out = arguments.out or (Path("runs/bench/peers") if arguments.only else HERE)
    pythons = installed(peers, arguments.envs)
    load = os.getloadavg()[0]
    if load > BUSY:
        print(
            f"The load is {load:.1f}: unless that comes from installing peers, end what else is running.",
            flush=True,
        )
    for name in arguments.workloads or WORKLOADS:
        print(f"{name}:", flush=True)
        begun, found = time.perf_counter(), conditions()
        found |= measure(WORKLOADS[name], peers, pythons, arguments)
        print(f"{name} took {time.perf_counter() - begun:.0f} s\n{programs({name: found})}", flush=True)
        keep(name, found, out)
        publish(out)


def _without_folders(given: list[str]) -> list[str]:
    """Leave out where things lie, which is nobody's business."""
    kept = [part for n, part in enumerate(given) if n == 0 or given[n - 1] not in {"--envs", "--out"}]
    return [part for part in kept if part.split("=")[0] not in {"--envs", "--out"}]


if __name__ == "__main__":
    main()
