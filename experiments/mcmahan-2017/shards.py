"""Why do clients with two digits need fewer rounds here than in McMahan 2017? Trains the 2NN from several first values.

Rounds to 97% on MNIST (two shards a client, E = 1, B = 10, C = 0.1, pixels in [−0.5, 0.5]; 664 in Table 1, 831 in Table 4)
are counted from the three kinds of first values of initialisation.py, each with four learning rates.

MNIST is read from the folder that FEDQUILT_DATA names.

    python experiments/mcmahan-2017/shards.py
"""

from __future__ import annotations

import json
from pathlib import Path

from initialisation import rounds_by_rate

import fedquilt as fq

RATES = [0.0464, 0.0681, 0.1, 0.147]
ROUNDS = 1000


def main() -> None:
    """Count rounds, and write them beside this file."""
    data = fq.mnist(preprocess="centre")
    found = {
        start: rounds_by_rate(data, start, RATES, ROUNDS, shards=True) for start in ("pytorch", "glorot", "tutorial")
    }
    about = {"command": "python experiments/mcmahan-2017/shards.py", "rounds": ROUNDS, "rounds to 97%": found}
    Path(__file__).with_name("shards.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
