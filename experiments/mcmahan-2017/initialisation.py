"""How many rounds does the 2NN of McMahan 2017 need? Trains it from several kinds of first values, pixels in [0, 1].

The paper does not say how the 2NN was initialised. Rounds to 97% on MNIST (IID clients, E = 1, B = 10, C = 0.1;
87 in Table 1, 92 in Table 4) are counted from three kinds of first values, each with five learning rates:

- pytorch: uniform in ± 1/√inputs, weights and biases, the default of `nn.Linear`, which fedquilt's model has
- glorot: uniform in ± √(6 / (inputs + outputs)), biases 0, TensorFlow's default
- tutorial: normal with deviation 0.1, cut off at two deviations, biases 0.1, as in TensorFlow's MNIST tutorial of that time

MNIST is read from the folder that FEDQUILT_DATA names.

    python experiments/mcmahan-2017/initialisation.py
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from torch import nn

import fedquilt as fq

RATES = [0.0464, 0.1, 0.215, 0.316, 0.464]
ROUNDS, TARGET = 250, 0.97


def model(start: str, seed: int = 1) -> nn.Module:
    """Return the 2NN with one kind of first values."""
    torch.manual_seed(seed)
    module = fq.models.mnist_2nn()
    for layer in module.modules():
        if isinstance(layer, nn.Linear) and start == "glorot":
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)
        elif isinstance(layer, nn.Linear) and start == "tutorial":
            nn.init.trunc_normal_(layer.weight, std=0.1, a=-0.2, b=0.2)
            nn.init.constant_(layer.bias, 0.1)
    return module


def rounds_by_rate(
    data: fq.Data, held: fq.Partition, start: str, rates: list[float], most: int, seed: int = 1
) -> dict[str, float | None]:
    """Count the rounds to the target with every learning rate; None: not in so many."""
    found: dict[str, float | None] = {}
    for rate in rates:
        method = fq.fed_avg(lr=rate, fraction=0.1, batch=10)
        result = fq.train(model(start, seed), data, held, method, most, seed=seed, stop_at=TARGET)
        rounds = result.history.rounds_to(TARGET)
        found[str(rate)] = None if rounds is None else round(rounds, 1)
        print(start, rate, seed, found[str(rate)], flush=True)
    return found


def iid(data: fq.Data) -> fq.Partition:
    """Return 100 IID clients."""
    return fq.iid(data.train.y.numpy(), clients=100, seed=1)


def main() -> None:
    """Count rounds, and write them beside this file."""
    data = fq.mnist()
    found = {
        start: rounds_by_rate(data, iid(data), start, RATES, ROUNDS) for start in ("pytorch", "glorot", "tutorial")
    }
    about = {"command": "python experiments/mcmahan-2017/initialisation.py", "rounds": ROUNDS, "rounds to 97%": found}
    Path(__file__).with_name("initialisation.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
