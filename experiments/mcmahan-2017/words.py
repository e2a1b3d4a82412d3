"""Write Shakespeare's lines by role as posts by author, for figures 5 and 10: a public stand-in for the paper's posts.

    python experiments/mcmahan-2017/words.py [FOLDER]

FOLDER is a data folder, by default the last one that FEDQUILT_DATA names. The text may be read, and not be redistributed.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from fedquilt.data.sets.shakespeare import DIGEST, read_text, roles

if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else os.environ["FEDQUILT_DATA"].split(os.pathsep)[-1])
    path = folder / "words" / "shakespeare.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    spoken = [role for role in roles(read_text(DIGEST)[0]) if len(role.lines) > 2]
    posts = [{"author": f"{role.play}: {role.name}", "text": line} for role in spoken for line in role.lines]
    path.write_text("".join(json.dumps(post) + "\n" for post in posts), encoding="utf-8")
    print(f"{len(posts):,} lines of {len({post['author'] for post in posts}):,} roles: {path}")
