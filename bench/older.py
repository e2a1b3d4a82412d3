"""An older commit of this repository, checked out beside this tree for the time of a comparison."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@contextmanager
def checked_out(name: str) -> Iterator[tuple[str, Path]]:
    """Give the commit's short hash and a folder with its files, which is removed afterwards."""
    git = ["git", "-C", str(ROOT)]
    commit = subprocess.run([*git, "rev-parse", name], capture_output=True, text=True, check=True).stdout.strip()
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "old"
        subprocess.run([*git, "worktree", "add", "--quiet", "--detach", str(tree), commit], check=True)
        try:
            yield commit[:7], tree
        finally:
            subprocess.run([*git, "worktree", "remove", "--force", str(tree)], check=True)
