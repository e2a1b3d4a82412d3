"""Makes a virtual environment for each peer, with plain pip, and says in pip's own words why one cannot be made.

Versions come from constraints.txt where it names the package, so that every program has the same PyTorch. A peer that asks
for another Python than this one gets it, if one is installed: `python3.12` and the like on the path, or pyenv's.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

CONSTRAINTS = Path(__file__).resolve().parent.parent.parent / "constraints.txt"
OTHERS = ("3.12", "3.13", "3.14")


class SkippedError(Exception):
    """Why a peer is not measured."""


def environment(name: str, needs: tuple[str, ...], envs: Path) -> Path:
    """Return the peer's Python, having installed what it needs if that was not there."""
    if not needs:
        return Path(sys.executable)
    folder = envs / name
    python, done = folder / "bin" / "python", folder / "installed.txt"
    wanted = "\n".join((*needs, CONSTRAINTS.read_text()))
    if done.exists() and done.read_text() == wanted:
        return python
    first = ""
    for base in pythons():
        print(f"installing {name} with {base} ...", flush=True)
        made = subprocess.run([base, "-m", "venv", "--clear", folder], capture_output=True, text=True, check=False)
        said = " ".join((made.stdout + made.stderr).split()) or "no virtual environment can be made"
        complaint = said if made.returncode else install(python, needs)
        if not complaint:
            done.write_text(wanted)
            return python
        first = first or complaint
        if "python version" not in complaint:
            break
    shutil.rmtree(folder, ignore_errors=True)
    raise SkippedError(f"does not install: {first}")


def install(python: Path, needs: tuple[str, ...]) -> str:
    """Install with pip; return its complaint, shortened, or nothing."""
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", CONSTRAINTS]
    made = subprocess.run([*pip, "setuptools<81", *needs], capture_output=True, text=True, check=False)
    if not made.returncode:
        return ""
    errors = [line for line in made.stderr.splitlines() if line.startswith("ERROR")] or made.stderr.splitlines()[-1:]
    return " ".join(line if len(line) < 160 else f"{line[:110]} ... {line[-45:]}" for line in errors)


def pythons() -> Iterator[Path]:
    """Find Pythons: this one first, then newer ones."""
    yield Path(sys.executable)
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"
    for version in OTHERS:
        found = [shutil.which(f"python{version}"), *sorted(pyenv.glob(f"{version}.*/bin/python3"))]
        for path in filter(None, found):
            if subprocess.run([path, "-c", "import ensurepip"], capture_output=True, check=False).returncode == 0:
                yield Path(path)
