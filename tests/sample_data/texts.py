"""Small text files: svmlight, LEAF's JSON, posts as JSON Lines, plays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

PLAYS = """\
1609

THE SONNETS

by William Shakespeare

                     1
  From fairest creatures. We desire increase,

1601

HAMLET

by William Shakespeare

Dramatis Personae

  Claudius. King of Denmark

ACT I. Scene I.
Elsinore. A platform.

  Ber. Who's there?
  Fran. Nay, answer me. Stand and
    unfold yourself.                    Exit

            Enter Horatio.

  BER. Long live the King!
<<THIS ELECTRONIC VERSION OF THE COMPLETE WORKS>>
    He.
                     SCENE II.
            A room of state.
  Ber. In the
    second scene.

1593

THE COMEDY OF ERRORS

by William Shakespeare

DRAMATIS PERSONAE

ACT I. SCENE 1
DUKE. Merchant of Syracuse,
  plead no more.
Exit
ACT_2|SC_1
  Unspoken.
AEGEON. Yet this
"""

Pair = tuple[object, object]


def write_svmlight(path: Path, rows: int, feature: int = 4, labels: tuple[int, ...] = (0, 1)) -> None:
    """Write examples that have one feature, the number of their row."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{labels[row % len(labels)]} {feature}:{row}\n" for row in range(rows)))


def write_leaf(path: Path, held: dict[str, tuple[Any, Any]], **changes: Any) -> None:
    """Write users with their x and y."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "users": list(held),
        "num_samples": [len(y) for _, y in held.values()],
        "user_data": {user: {"x": x, "y": y} for user, (x, y) in held.items()},
    }
    path.write_text(json.dumps({**content, **changes}))


def write_posts(path: Path, pairs: list[Pair], author: str = "author", text: str = "text") -> Path:
    path.write_text("".join(json.dumps({author: who, text: what}) + "\n" for who, what in pairs), encoding="utf-8")
    return path


def several_posts(authors: int = 20, seed: int = 0) -> list[Pair]:
    """Posts of words w0, w1, …, the lower the more frequent, by authors who take turns."""
    rng = np.random.default_rng(seed)
    pairs: list[Pair] = []
    for _ in range(5):
        for author in range(authors):
            words = np.minimum(rng.geometric(0.1, size=rng.integers(1, 25)), 60)
            pairs.append((f"author {author}", " ".join(f"w{word}" for word in words)))
    return pairs
