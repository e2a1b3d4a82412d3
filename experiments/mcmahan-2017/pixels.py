"""How many rounds does the 2NN of McMahan 2017 need? Trains it on pixels that are scaled in several ways.

The paper does not say how pixels were scaled. Rounds to 97% on MNIST (IID clients, E = 1, B = 10, C = 0.1; 87 in Table 1,
92 in Table 4) are counted with three kinds of inputs, each with four learning rates:

- none: in [0, 1], the default of fedquilt's data set
- centre: in [−0.5, 0.5], as TensorFlow's example of a convolutional network for MNIST had them
- standardise: mean 0 and deviation 1 over all pixels

and those in [−0.5, 0.5] also from TensorFlow's default first values (see initialisation.py).

MNIST is read from the folder that FEDQUILT_DATA names.

    python experiments/mcmahan-2017/pixels.py
"""

from __future__ import annotations

import json
from pathlib import Path

from initialisation import iid, rounds_by_rate

import fedquilt as fq

RATES = [0.0464, 0.1, 0.215, 0.464]
ROUNDS = 150
KINDS = [("none", "pytorch"), ("centre", "pytorch"), ("standardise", "pytorch"), ("centre", "glorot")]


def main() -> None:
    """Count rounds, and write them beside this file."""
    found = {}
    for pixels, start in KINDS:
        data = fq.mnist(preprocess=pixels)
        found[f"{pixels}, {start}"] = rounds_by_rate(data, iid(data), start, RATES, ROUNDS)
    about = {"command": "python experiments/mcmahan-2017/pixels.py", "rounds": ROUNDS, "rounds to 97%": found}
    Path(__file__).with_name("pixels.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
