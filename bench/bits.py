"""Proves that a change keeps the bits: runs an older commit beside this tree and compares the digests of all models.

    python bench/bits.py 9e8a597
    python bench/bits.py HEAD~3 --expect "fed_ir(normalise=False)/vectorised"

Every registered method and wrapper is trained on `inline`, `processes` and `vectorised`, and so are some models, partitions
and arguments that take other paths through the code. The older commit is checked out into a temporary worktree, and both
trees are run by the same Python with the same libraries. `--expect` names a case whose bits were changed on purpose.
Exit code 1 where any other case differs. Records of metrics are compared too, without their seconds.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from older import ROOT, checked_out

ENGINES = ("inline", "processes", "vectorised")
ROUNDS = 4

ARGUMENTS: dict[str, dict[str, Any]] = {"fl_hc": {"rounds": 2}, "one_shot": {"max_epochs": 3}}
"""What a method is given where its defaults would leave out what it does."""

METHOD = {"name": "fed_avg", "fraction": 0.5, "batch": 8, "lr": 0.1}
DIGITS = {
    "data": {"name": "digits"},
    "partition": {"name": "shards", "clients": 10},
    "model": {"name": "mnist_2nn", "inputs": 64, "hidden": 16},
}
IMAGES = {"data": {"name": "mnist_5k"}, "partition": {"name": "dirichlet", "clients": 20, "alpha": 0.5}}
FURTHER: dict[str, dict[str, Any]] = {
    "mnist_cnn": IMAGES | {"model": {"name": "mnist_cnn"}, "method": METHOD | {"fraction": 0.1}},
    "random_fourier": DIGITS | {"model": {"name": "random_fourier", "inputs": 64, "features": 20}, "method": METHOD},
    "momentum, weight decay": DIGITS | {"method": METHOD | {"momentum": 0.9, "weight_decay": 0.01}},
    "keep_momentum": DIGITS | {"method": METHOD | {"momentum": 0.9, "keep_momentum": True}},
    "fed_ir(normalise=False)": DIGITS | {"method": METHOD, "wrap": [{"name": "fed_ir", "normalise": False}]},
    "three wrappers": DIGITS
    | {"method": METHOD, "wrap": [{"name": "fed_vc", "size": 32}, {"name": "fed_ir"}, {"name": "sign_agreement"}]},
    "synthetic": {
        "data": {"name": "synthetic", "clients": 12},
        "partition": {"name": "natural"},
        "model": {"name": "softmax_regression", "inputs": 60},
        "method": METHOD,
    },
    **{
        f"partition {name}": DIGITS | {"partition": {"name": name, "clients": 12}, "method": METHOD}
        for name in ("iid", "dirichlet", "dirichlet_per_class", "class_blocks", "power_law", "quantity_skew")
    },
}
"""Runs besides one for every method: a spec's tables each."""


def cases(simulated: set[str], methods: list[str], wrappers: list[str]) -> dict[str, dict[str, Any]]:
    """Return the specs to run, by name; `simulated` are the wrappers that stand in a table of their own."""
    specs: dict[str, dict[str, Any]] = {}
    for name in methods:
        specs[name] = DIGITS | {"method": {"name": name} | ARGUMENTS.get(name, {})}
    for name in wrappers:
        table = "simulate" if name in simulated else "wrap"
        specs[name] = DIGITS | {"method": METHOD, table: [{"name": name} | ARGUMENTS.get(name, {})]}
    return specs | FURTHER


def measure() -> None:
    """Run all cases in the tree that Python imports; write a line of JSON for each."""
    import fedquilt  # noqa: PLC0415 - the tree that is measured is imported by the measuring process alone

    listed = subprocess.run(
        [sys.executable, "-m", "fedquilt", "list", "methods"], capture_output=True, text=True, check=True
    ).stdout
    rows = [line.split("\t") for line in listed.splitlines()]
    kinds = {kind: [row[0] for row in rows if row[-1] == kind] for kind in ("[method]", "[[wrap]]", "[[simulate]]")}
    simulated = kinds["[[simulate]]"]
    for name, tables in cases(set(simulated), kinds["[method]"], kinds["[[wrap]]"] + simulated).items():
        for engine in ENGINES:
            with tempfile.TemporaryDirectory() as folder:
                how = {"name": engine} | ({} if engine == "inline" else {"workers": 2})
                rounds = 2 if name == "mnist_cnn" else ROUNDS
                spec = tables | {"run": {"rounds": rounds, "seed": 7}, "engine": how}
                try:
                    ran = fedquilt.run(spec, out=Path(folder) / "run")
                    found = [ran.result.digest, _history(ran.result.history.records)]
                except fedquilt.FedquiltError:  # its text may be reworded: that it was refused is what counts
                    found = ["refused", ""]
                print(json.dumps([f"{name}/{engine}", found]), flush=True)


def _history(records: list[dict[str, Any]]) -> str:
    kept = ("round", "accuracy", "loss", "local_loss", "clients", "steps", "examples", "bytes_down", "bytes_up")
    rows = [{key: record[key] for key in kept} for record in records]
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def run_tree(source: Path) -> subprocess.Popen[str]:
    """Start to measure a tree's cases."""
    environment = os.environ | {"PYTHONPATH": str(source / "src"), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, str(Path(__file__).resolve()), "--measure"]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, cwd=source)


def digests(running: subprocess.Popen[str]) -> dict[str, Any]:
    """Wait for a tree's digests."""
    out, _ = running.communicate()
    if running.returncode:
        raise SystemExit(f"a tree could not be measured (exit code {running.returncode})")
    return dict(json.loads(line) for line in out.splitlines())


def compare(old: dict[str, Any], new: dict[str, Any], expected: set[str]) -> int:
    """Print what differs; return the number of differences that nobody expected."""
    wrong = 0
    for name in [*old, *(name for name in new if name not in old)]:
        if name not in old or name not in new:
            print(f"{'only here' if name in new else 'missing here'}: {name}")
            wrong += name not in new
        elif old[name] != new[name]:
            models = [found[0][:12] for found in (old[name], new[name])]
            what = "the same model, other records" if old[name][0] == new[name][0] else " → ".join(models)
            print(f"{'expected' if name in expected else 'DIFFERS'}: {name}: {what}")
            wrong += name not in expected
    return wrong


def main() -> int:
    """Compare two trees."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", nargs="?", help="the commit to compare this tree with")
    parser.add_argument("--expect", action="append", default=[], help="a case that differs on purpose: name/engine")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.measure:
        measure()
        return 0
    if asked.old is None:
        parser.error("which commit? for example: python bench/bits.py 9e8a597")
    began = time.monotonic()
    with checked_out(asked.old) as (commit, tree):
        both = [run_tree(tree), run_tree(ROOT)]
        old, new = (digests(running) for running in both)
    wrong = compare(old, new, set(asked.expect))
    trained = sum(found[0] != "refused" for found in new.values())
    print(
        f"{len(new)} cases ({trained} trained, {len(new) - trained} refused with the reason) beside {commit}: "
        f"{wrong} unexpected differences, {time.monotonic() - began:.0f} s"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
