"""What the scripts that generate files have in common: write the files, or check that they are as they would be written."""

from __future__ import annotations

import argparse
from pathlib import Path


def main(about: str | None, files: dict[Path, str]) -> int:
    """Write files, or say which differ from what would be written; return the exit code."""
    parser = argparse.ArgumentParser(description=(about or "").split("\n", 1)[0])
    choice = parser.add_mutually_exclusive_group(required=True)
    choice.add_argument("--write", action="store_true", help="write the files")
    choice.add_argument("--check", action="store_true", help="say which files are stale, and write nothing")
    given = parser.parse_args()
    stale = [path for path, text in files.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in stale:
        print(f"{'wrote' if given.write else 'stale, run `make generated`'}: {path}")
        if given.write:
            path.write_text(files[path], encoding="utf-8")
    return int(given.check and bool(stale))
