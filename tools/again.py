"""Runs kept trials again, and says whether their models come out with the digests that are kept.

    python tools/again.py                                       # a short trial of every file in experiments/*/results
    python tools/again.py experiments/wei-2022/results/table-3.jsonl --trials 5 --longest 60

Trials are drawn at random among those that took `--longest` seconds at most, from as many commits as there are. The engine
is what its rule picks today; where that computes otherwise than what was picked then, the line says so. The command fails
if a digest differs although processor and PyTorch are of the same kind as then: on others, a product of matrices may differ
in its last bit.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import kept

import fedquilt
from fedquilt.base.errors import FedquiltError
from fedquilt.experiment.design.trial import Trial
from fedquilt.experiment.environment import environment
from fedquilt.experiment.folder import RunFolder


def seconds(line: dict[str, Any]) -> float:
    """Return how long a kept trial took."""
    column = line["columns"].index("seconds")
    return float(sum(row[column] for row in line["rows"]))


def drawn(lines: Sequence[dict[str, Any]], count: int, longest: float, seed: int) -> list[dict[str, Any]]:
    """Draw trials that are short enough, one of every commit before a second of any."""
    short = [line for line in lines if line["model"] is not None and seconds(line) <= longest]
    random.Random(seed).shuffle(short)
    turns: dict[str, int] = {}
    ranked = []
    for line in short:
        turn = turns[line["commit"]] = turns.get(line["commit"], 0) + 1
        ranked.append((turn, line))
    return [line for _, line in sorted(ranked, key=lambda pair: pair[0])[:count]]


def trials(path: Path) -> dict[str, Trial]:
    """Return the trials of the experiment whose results are kept in a file, those with chosen values too."""
    name, _, scale = path.stem.partition(".")
    experiment = fedquilt.experiment(path.parents[1] / f"{name}.toml", scale=scale or kept.FULL)
    return {outcome.trial.name: outcome.trial for outcome in kept.read_kept(experiment, path)}


def run_again(trial: Trial) -> tuple[str | None, str | None]:
    """Run a trial; return the digest of its model, and how its engine computed."""
    with tempfile.TemporaryDirectory() as folder:
        fedquilt.run(trial.spec, out=Path(folder) / "again")
        found = RunFolder(Path(folder) / "again").read()
    digest = found.saved.about.get("model") if found.saved is not None else None
    return digest, found.tables["engine"].get("compute")


def compared(path: Path, count: int, longest: float, seed: int) -> Iterator[tuple[bool, str]]:
    """Run trials of a file again; yield whether each is as it has to be, and what to say about it."""
    here = environment()
    now = here["processor"], here["instruction_set"], here["packages"]["torch"]
    known = trials(path)
    lines = kept.read_lines(path).values()
    chosen = drawn(list(lines), count, longest, seed)
    if not chosen:
        yield True, f"nothing compared: no trial took {longest:g} s or less"
    for line in chosen:
        trial = known.get(line["trial"])
        if trial is None or line["settings"] != kept.settings(trial):
            yield False, f"{line['trial']}: the experiment has other settings now"
            continue
        try:
            digest, compute = run_again(trial)
        except FedquiltError as error:
            yield False, f"{line['trial']}: {error}"
            continue
        then = line["processor"], line["instruction_set"], line["torch"]
        same = digest == line["model"]
        said = "the same" if same else f"differs: {str(line['model'])[:12]}… was kept, {str(digest)[:12]}… came out"
        said += "" if then == now else f"; kept on {then[0]} with {then[1]}, torch {then[2]}"
        before = line["engine"].get("compute")
        said += "" if compute == before else f"; computed {before} then, {compute} now"
        yield same or then != now, f"{line['trial']} (commit {line['commit']}): {said}"


def main() -> None:
    """Run kept trials again."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, help="kept results (default: all)")
    parser.add_argument("--trials", type=int, default=1, help="how many of a file")
    parser.add_argument("--longest", type=float, default=30.0, help="seconds that a trial took, at most")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    options = parser.parse_args()
    right = True
    for path in options.files or sorted(kept.EXPERIMENTS.glob("*/results/*.jsonl")):
        print(path, flush=True)
        for fine, said in compared(path.resolve(), options.trials, options.longest, options.seed):
            right = right and fine
            print(f"  {said}", flush=True)
    sys.exit(0 if right else 1)


if __name__ == "__main__":
    main()
