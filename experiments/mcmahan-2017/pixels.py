"""Why does the 2NN need fewer rounds here than in McMahan 2017? Trains it on pixels that are scaled otherwise.

The paper does not say how pixels were scaled. Rounds to 97% on MNIST (IID clients, E = 1, B = 10, C = 0.1; 87 in Table 1,
92 in Table 4) are counted with four kinds of inputs, each with five learning rates:

- unit: in [0, 1], as fedquilt's data set is
- centred: in [−0.5, 0.5], as TensorFlow's example of a convolutional network for MNIST had them
- standardised: mean 0 and deviation 1 over all pixels
- small: in [0, 0.1]

MNIST is read from the folder that FEDQUILT_DATA names.

    python experiments/mcmahan-2017/pixels.py
"""

from __future__ import annotations

import json
from pathlib import Path

import torch

import fedquilt as fq

RATES = [0.0464, 0.1, 0.215, 0.464, 1.0]
ROUNDS, TARGET = 150, 0.97


def scaled(kind: str, x: torch.Tensor) -> torch.Tensor:
    """Return pixels of [0, 1], scaled otherwise."""
    return {"unit": x, "centred": x - 0.5, "standardised": (x - 0.1307) / 0.3081, "small": 0.1 * x}[kind]


def main() -> None:
    """Count rounds, and write them beside this file."""
    mnist = fq.mnist()
    splits = [(split.x.flatten(1) / 255, split.y) for split in (mnist.train, mnist.test)]
    held = fq.iid(mnist.train.y.numpy(), clients=100, seed=1)
    found: dict[str, dict[str, float | None]] = {}
    for kind in ("unit", "centred", "standardised", "small"):
        data = fq.arrays(*(each for x, y in splits for each in (scaled(kind, x).numpy(), y.numpy())))
        found[kind] = {}
        for rate in RATES:
            torch.manual_seed(1)
            method = fq.fed_avg(lr=rate, fraction=0.1, batch=10)
            result = fq.train(fq.models.mnist_2nn(), data, held, method, ROUNDS, seed=1, stop_at=TARGET)
            rounds = result.history.rounds_to(TARGET)
            found[kind][str(rate)] = None if rounds is None else round(rounds, 1)
            print(kind, rate, found[kind][str(rate)], flush=True)
    about = {"command": "python experiments/mcmahan-2017/pixels.py", "rounds": ROUNDS, "rounds to 97%": found}
    Path(__file__).with_name("pixels.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
