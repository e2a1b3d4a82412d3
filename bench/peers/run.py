"""Runs the same federated averaging on other frameworks, on fedquilt and on a plain PyTorch loop, in turns.

    python bench/peers/run.py                          # w1 w3, every peer
    python bench/peers/run.py w1 --only flower,fedjax

Each peer gets a virtual environment of its own, made once under --envs. The plain loop and fedquilt run in the environment
of this command. All are processes that wait for their turn: in every turn the plain loop on one thread, fedquilt and one
peer each do one round, because a shared machine's speed changes over time. Variants with torch's default threads come last.
A peer that does not install, run or learn is skipped, with the reason. Prints a table; saves results.json and results.png.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from chart import draw
from work import WORKLOADS

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PATIENCE = 180.0
"""Seconds after which a start or a round counts as stuck."""


@dataclass(frozen=True)
class Peer:
    """A framework: what to install, and the variants of its program; a variant that is a number is one of threads."""

    name: str
    needs: tuple[str, ...] = ()
    variants: tuple[str, ...] = ("",)
    alone: bool = False
    """Whether it must run where there is no network but loopback."""

    @property
    def program(self) -> Path:
        return HERE / f"on_{self.name}.py"


PLAIN, FEDQUILT = Peer("plain", variants=("1", "")), Peer("fedquilt")
TORCH = "torch==2.13.0"
PEERS = (
    Peer("fedjax", ("fedjax==0.0.17", "jax==0.4.30", "jaxlib==0.4.30", "dm-haiku==0.0.12", "numpy<2"), ("jit", "pmap")),
    Peer("flower", (TORCH, "flwr[simulation]==1.41.0"), ("1-cpu", "default"), alone=True),
    Peer("pfl", (TORCH, "pfl==0.6.0"), ("1", "")),
    Peer("fedlab", (TORCH, "fedlab==1.3.0"), ("1", "")),
    Peer("blazefl", (TORCH, "blazefl")),
    PLAIN,
)

NAMESPACE = ("unshare", "--map-root-user", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")
"""Linux's way to run a command without any network but loopback."""
APART = 0.1
"""How far a peer's loss may be from the plain loop's, relatively, for the work to count as the same."""


class SkippedError(Exception):
    """Why a peer is not measured."""


@dataclass
class Program:
    """A running program that does a round when asked."""

    name: str
    command: list[str]
    environment: dict[str, str]
    seconds: list[float] = field(default_factory=list)
    start_up: float = 0.0
    peak: int = 0
    loss: float | None = None

    def __post_init__(self) -> None:
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115
        begun = time.perf_counter()
        self.process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            env=self.environment,
            text=True,
            start_new_session=True,
        )
        self.watching = True
        threading.Thread(target=self._watch, daemon=True).start()
        self._heard()
        self.round(record=False)
        self.start_up = time.perf_counter() - begun

    def _watch(self) -> None:
        while self.watching and self.process.poll() is None:
            self.weigh()
            time.sleep(0.2)

    def _tree(self) -> list[psutil.Process]:
        try:
            own = psutil.Process(self.process.pid)
            return [own, *own.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def weigh(self) -> None:
        """Note the memory of the process tree, shared pages counted once."""
        total = 0
        for process in self._tree():
            try:
                total += process.memory_full_info().pss
            except psutil.Error:
                continue
        self.peak = max(self.peak, total)

    def _heard(self) -> dict[str, float]:
        stuck = threading.Timer(PATIENCE, self.stop)
        stuck.start()
        line = self.process.stdout.readline()
        stuck.cancel()
        if not line:
            self.stop()
            self.log.seek(0)
            said = [line.strip() for line in self.log.read().splitlines() if line.strip()]
            raise SkippedError(said[-1] if said else f"no answer in {PATIENCE:g} s")
        return json.loads(line)

    def round(self, record: bool = True) -> None:
        """Have one round done."""
        try:
            self.process.stdin.write("round\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise SkippedError("ended before its rounds were done") from None
        answer = self._heard()
        self.loss = answer.get("loss", self.loss)
        if record:
            self.seconds.append(answer["seconds"])

    def stop(self) -> None:
        """End the process and its children, by their numbers."""
        self.watching = False
        tree = self._tree()
        self.process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        for process in tree:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue


def environment(peer: Peer, envs: Path) -> Path:
    """Return the peer's Python, having installed it if it was not there."""
    if not peer.needs:
        return Path(sys.executable)
    folder = envs / peer.name
    python, done = folder / "bin" / "python", folder / "installed.txt"
    wanted = "\n".join(peer.needs)
    if not (done.exists() and done.read_text() == wanted):
        print(f"installing {peer.name} ...", flush=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        made = subprocess.run(
            [*pip, "-c", ROOT / "constraints.txt", "setuptools<81", *peer.needs],
            capture_output=True,
            text=True,
            check=False,
        )
        if made.returncode:
            errors = [line for line in made.stderr.splitlines() if line.startswith("ERROR")]
            short = [line[:120] for line in errors or made.stderr.splitlines()[-1:]]
            raise SkippedError("does not install: " + " ".join(short))
        done.write_text(wanted)
    return python


def title(peer: Peer, variant: str) -> str:
    if "1" in peer.variants:
        return f"{peer.name}, {'1 thread' if variant == '1' else 'default threads'}"
    return f"{peer.name} {variant}".strip()


def start(peer: Peer, variant: str, workload: str, turns: int, envs: Path) -> Program:
    if not peer.program.exists():
        environment(peer, envs)
        raise SkippedError("has no program yet")
    known = dict(os.environ)
    known.pop("PYTHONPATH", None)
    if not peer.needs:
        known["PYTHONPATH"] = str(ROOT / "src")
    if variant.isdigit():
        known["OMP_NUM_THREADS"] = variant
    command = [environment(peer, envs), peer.program, workload, turns, *([variant] if variant else [])]
    if peer.alone:
        if subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False).returncode:
            raise SkippedError("listens on every address, and a network namespace cannot be made here")
        command = [*NAMESPACE, *command]
    return Program(title(peer, variant), [str(part) for part in command], known)


def lines_of_code(peer: Peer) -> int:
    """Count the lines of user code that are neither empty nor comments."""
    text = peer.program.read_text().split("# user code begins")[1].split("# user code ends")[0]
    return sum(1 for line in text.splitlines() if line.strip() and not line.strip().startswith("#"))


def take_turns(programs: list[Program], warm_up: int, count: int, longest: float) -> None:
    for turn in range(warm_up + count):
        for program in programs:
            begun = time.perf_counter()
            program.round(record=turn >= warm_up)
            if program is programs[-1] and time.perf_counter() - begun > longest:
                program.stop()
                raise SkippedError(f"a round took {time.perf_counter() - begun:.0f} s, more than --longest {longest:g}")
            program.watching = False
    for program in programs:
        program.weigh()


def check_learning(program: Program, plain: Program) -> None:
    if program.loss is None or plain.loss is None:
        return
    if not abs(program.loss - plain.loss) < APART * plain.loss:
        raise SkippedError(f"its loss is {program.loss:.3f}, the plain loop's {plain.loss:.3f}: not the same work")


def row(workload: str, peer: Peer, program: Program) -> dict[str, object]:
    return {
        "workload": workload,
        "peer": program.name,
        "seconds": statistics.median(program.seconds),
        "rounds": len(program.seconds),
        "fastest": min(program.seconds),
        "start_up": program.start_up,
        "memory_mb": program.peak / 1e6,
        "lines": lines_of_code(peer),
        "loss": program.loss,
    }


def measure(workload: str, peers: list[Peer], arguments: argparse.Namespace) -> Iterator[dict[str, object]]:
    """Measure the peers one after the other, each in turns with the plain loop on one thread and fedquilt."""
    home = [(peer, start(peer, peer.variants[0], workload, 10**6, arguments.envs)) for peer in (PLAIN, FEDQUILT)]
    standing = [program for _, program in home]
    for variant, peer in sorted(
        ((v, p) for p in peers for v in p.variants), key=lambda pair: pair[0] in {"", "default"}
    ):
        if (peer, variant) == (PLAIN, "1"):
            continue
        before = [len(program.seconds) for program in standing]
        try:
            program = start(peer, variant, workload, 1 + arguments.warm_up + arguments.rounds, arguments.envs)
            take_turns([*standing, program], arguments.warm_up, arguments.rounds, arguments.longest)
            program.stop()
            check_learning(program, standing[0])
        except SkippedError as reason:
            print(f"{workload} {title(peer, variant)}: skipped: {reason}", flush=True)
            yield {"workload": workload, "peer": title(peer, variant), "skipped": str(reason)}
            continue
        plain, ours = (statistics.median(other.seconds[n:]) for other, n in zip(standing, before, strict=True))
        found = row(workload, peer, program) | {"plain_beside": plain, "fedquilt_beside": ours}
        print(f"{workload} {program.name}: {found['seconds']:.4f}, plain {plain:.4f}, fedquilt {ours:.4f}", flush=True)
        yield found
    for peer, program in home:
        program.stop()
        yield row(workload, peer, program)


def table(rows: list[dict[str, object]]) -> str:
    lines = [
        "| work | program | s a round | start-up s | memory MB | lines | loss after 5 | plain ÷ it | it ÷ fedquilt |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for r in rows:
        if "skipped" in r:
            lines.append(f"| {r['workload']} | {r['peer']} | skipped: {r['skipped']} | | | | | | |")
            continue
        against = "| | |"
        if "plain_beside" in r:
            against = f"| {r['plain_beside'] / r['seconds']:.2f} | {r['seconds'] / r['fedquilt_beside']:.2f} |"
        loss = "" if r["loss"] is None else f"{r['loss']:.3f}"
        lines.append(
            f"| {r['workload']} | {r['peer']} | {r['seconds']:.4f} | {r['start_up']:.1f} | {r['memory_mb']:.0f} "
            f"| {r['lines']} | {loss} {against}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", default=["w1", "w3"], help=f"of {', '.join(WORKLOADS)}; default w1 w3")
    parser.add_argument("--only", default="", help="peers, with commas; default all")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--warm-up", type=int, default=2)
    parser.add_argument("--longest", type=float, default=60.0, help="seconds a round beyond which a peer is skipped")
    parser.add_argument("--envs", type=Path, default=Path("~/.cache/fedquilt/peers").expanduser())
    parser.add_argument("--out", type=Path, default=HERE, help="folder of results.json and results.png")
    arguments = parser.parse_args()
    names = arguments.only.split(",") if arguments.only else [peer.name for peer in PEERS]
    unknown = set(names) - {peer.name for peer in PEERS} | set(arguments.workloads) - set(WORKLOADS)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; workloads {', '.join(WORKLOADS)}")
    rows: list[dict[str, object]] = []
    for workload in arguments.workloads:
        for found in measure(workload, [peer for peer in PEERS if peer.name in names], arguments):
            rows.append(found)
            (arguments.out / "results.json").write_text(json.dumps(rows, indent=1) + "\n")
    draw(rows, arguments.out / "results.png")
    print(table(rows))


if __name__ == "__main__":
    main()
