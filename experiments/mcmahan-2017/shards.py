"""Why do clients with two digits each need fewer rounds here than in McMahan 2017? Trains the 2NN from other first values.

Published for E = 1, B = 10 and C = 0.1 are 664 rounds to 97% (Table 1) and 831 (Table 4). Rounds are counted with pixels as
in the tables' files, in [−0.5, 0.5], and in [0, 1]; from three kinds of first values (see initialisation.py); at four
learning rates; with three seeds, which decide the first model, the clients' shards and who takes part in a round.

MNIST is read from the folder that FEDQUILT_DATA names.

    python experiments/mcmahan-2017/shards.py
"""

from __future__ import annotations

import json
from pathlib import Path

from initialisation import rounds_by_rate

import fedquilt as fq

RATES = [0.0464, 0.1, 0.147, 0.215]
ROUNDS = 1500
SEEDS = [1, 2, 3]


def main() -> None:
    """Count rounds, and write them beside this file."""
    found: dict[str, dict[str, list[float | None]]] = {}
    for pixels in ("centre", "none"):
        data = fq.mnist(preprocess=pixels)
        for start in ("pytorch", "glorot", "tutorial"):
            by_seed = [
                rounds_by_rate(
                    data, fq.shards(data.train.y.numpy(), 100, shards=2, seed=seed), start, RATES, ROUNDS, seed
                )
                for seed in SEEDS
            ]
            found[f"{pixels}, {start}"] = {str(rate): [each[str(rate)] for each in by_seed] for rate in RATES}
    about = {"command": "python experiments/mcmahan-2017/shards.py", "rounds": ROUNDS, "rounds to 97%": found}
    Path(__file__).with_name("shards.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
