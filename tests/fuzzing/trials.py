"""Tries changed specs in processes of their own, and says what should not be: tracebacks, long waits, long messages."""

from __future__ import annotations

import contextlib
import faulthandler
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from fuzzing.mutations import FILES, Mutation, mutation

import fedquilt
from fedquilt.base.text import LONGEST, visible
from fedquilt.cli import app as cli

PATIENCE = 10.0
"""Seconds that a spec may take until training has begun, and that training may take to end once it is interrupted."""

MEMORY = 3 * 2**30
"""Bytes that a trial may take besides what the program has when it starts."""

AGAIN = 20
"""Specs that are tried once more when the process that tries them has died: one of them should be to blame."""

TRAINING = 0.05
"""Seconds after which training that has begun is interrupted, as by Ctrl-C: it may be meant to take days."""


@dataclass(frozen=True)
class Outcome:
    """How a trial ended: `wrong` says what should not have been, if anything."""

    seed: int
    seconds: float
    message: str
    trained: bool = False
    wrong: str | None = None


def outcomes(seeds: Iterable[int]) -> Iterator[Outcome]:
    """Try the changed specs of some seeds, one after the other."""
    with tempfile.TemporaryDirectory() as folder:
        yield from _outcomes(seeds, Path(folder) / "stack")


def _outcomes(seeds: Iterable[int], stack: Path) -> Iterator[Outcome]:
    process: Any = None
    since: list[int] = []
    for seed in seeds:
        if process is None:
            (process, ours), since = _started(stack), []
        begun = time.monotonic()
        since.append(seed)
        outcome: Outcome | None = None
        try:
            ours.send(seed)
            if ours.poll(6 * PATIENCE):
                yield ours.recv()
                continue
            os.kill(process.pid, signal.SIGUSR1)
            time.sleep(0.5)
            wrong = f"no answer in {6 * PATIENCE:g} s\n{stack.read_text()[:1500]}"
        except (EOFError, ConnectionError):
            process.join(PATIENCE)
            wrong = f"the process died: exit code {process.exitcode}"
            outcome = _tried_again(since[-AGAIN:], stack)
        _ended(process)
        process = None
        yield outcome or Outcome(seed, time.monotonic() - begun, "", wrong=wrong)
    if process is not None:
        _ended(process)


def _tried_again(seeds: list[int], stack: Path) -> Outcome | None:
    """Try the last specs of a process that died once more: None if they end this one, too.

    On a busy machine a process is sometimes ended from outside, or by the moment at which training is interrupted.
    """
    process, ours = _started(stack)
    try:
        for seed in seeds:
            ours.send(seed)
            if not ours.poll(6 * PATIENCE):
                return None
            outcome: Outcome = ours.recv()
        return outcome
    except (EOFError, ConnectionError):
        return None
    finally:
        _ended(process)


def _started(stack: Path) -> tuple[Any, Connection]:
    """Start a process that tries specs; it writes to the file `stack` what it is doing when it gets SIGUSR1.

    It is spawned, not forked: a process forked from one that has used several OpenMP threads hangs in the first parallel
    operation.
    """
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_work, args=(theirs, stack))
    process.start()
    theirs.close()
    if not ours.poll(20 * PATIENCE):  # imports take seconds, on a busy machine many
        raise TimeoutError("the process that tries specs did not start")
    assert ours.recv() == "ready"
    return process, ours


def _ended(process: Any) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # its workers too
    process.join()


def _work(connection: Connection, stack: Path) -> None:
    import torch._dynamo  # noqa: F401  # by itself, vmap imports it, which takes seconds: once for all trials

    sys.modules["ray"] = None  # type: ignore[assignment]  # a cluster takes a minute to fail to start with little memory
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    size = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY,) * 2)
    with contextlib.suppress(EOFError), Path(os.devnull).open("w") as nowhere, stack.open("w") as stacks:
        faulthandler.register(signal.SIGUSR1, stacks)
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
        connection.send("ready")
        while True:
            seed = connection.recv()
            try:
                outcome = tried(mutation(seed))
            except KeyboardInterrupt:  # the moment was over just when training had ended by itself
                outcome = Outcome(seed, 0.0, "", trained=True)
            connection.send(outcome)


class _Moment(fedquilt.Watcher):
    """Interrupts training after its first round, or after a moment."""

    begun = False

    def begin(self, *_: object) -> None:
        self.begun = True
        signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
        signal.setitimer(signal.ITIMER_REAL, TRAINING)

    def heard(self, *_: object) -> None: ...

    def round(self, *_: object) -> None:
        raise KeyboardInterrupt


def tried(changed: Mutation) -> Outcome:
    """Run a changed spec in an empty folder."""
    moment = _Moment()
    begun, message, wrong = time.process_time(), "", None
    before = Path.cwd()
    with tempfile.TemporaryDirectory(dir=_memory_disk()) as folder, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        os.chdir(folder)
        os.environ["FEDQUILT_DATA"] = folder  # published data sets are missing: reading them is not what is tried
        os.environ["HF_HUB_OFFLINE"] = "1"
        os.environ["FEDQUILT_MEMORY"] = "1GB"  # as on a small machine
        try:
            _write(Path("spec.toml"), changed)
            _call(changed, moment)
        except KeyboardInterrupt:
            pass
        except BaseException as error:
            # This is what the command line does with it: a message, or nothing, which means a traceback.
            known = cli.message_of(error)
            message = "" if known is None else known
            wrong = _traceback(error) if known is None else None
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            os.chdir(before)
    seconds = time.process_time() - begun  # of computing: the machine may be busy with other things
    said = [message, *(str(warning.message) for warning in warned)]
    wrong = wrong or next((found for text in said if (found := _unfit(text))), None)
    if wrong is None and seconds > PATIENCE:
        wrong = f"took {seconds:.1f} s"
    return Outcome(changed.seed, seconds, message[:4000], moment.begun, wrong)


def _memory_disk() -> str | None:
    """Return a folder that is not on a disk, where there is one: run folders are synced to disk again and again."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def _write(path: Path, changed: Mutation) -> None:
    for name, text in FILES.items():
        Path(name).write_text(text, encoding="utf-8")
    path.write_bytes(changed.spec)


def _call(changed: Mutation, moment: _Moment) -> None:
    if changed.command == "run":
        fedquilt.run("spec.toml", changed.sets, out="run", watcher=moment)
    elif changed.command == "partition":
        fedquilt.inspect_partition("spec.toml", changed.sets)
    else:
        experiment = fedquilt.experiment("spec.toml", changed.sets)
        fedquilt.run(experiment.trials[0].spec, out=f"sweep/{experiment.trials[0].name}", watcher=moment)


def _unfit(text: str) -> str | None:
    if len(text) > LONGEST:
        return f"a message of {len(text):,} characters: {text[:300]}"
    if text != visible(text, keep="\n"):
        return f"a message with control characters: {text[:300]!r}"
    if text.endswith(" characters)"):
        return f"a message that had to be cut: {text[:300]}"
    if "MemoryError" in text or "alloc" in text or "RecursionError" in text:
        return f"memory was asked for that is not there: {text[:300]}"
    return None


def _traceback(error: BaseException) -> str:
    lines = traceback.format_exception(error)
    return f"a traceback: {visible(str(lines[-1]), 300)}\n" + visible("".join(lines[-6:]), 1500, keep="\n")
