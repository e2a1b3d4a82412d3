"""Which ball does Ozdayi 2020 (§3.2) project to? Measures both readings, on a part of CIFAR-10.

The paper prints an L2 ball of radius M = 3 around the origin, and a ResNet-20 with Fixup initialisation starts at a norm
of about 9: projected to the origin's ball, the first step shrinks it to a third. Around the round's start, M = 3 bounds how
far a client may go.

Two clients hold half of the classes each, as in the paper's NIID(5), 200 examples per class instead of 5,000, batches of 50
instead of 256 (as many steps per round as 1,000 examples per class would take), a rate of 0.1, weight decay of 0.0005.
CIFAR-10 is read from the folder that FEDQUILT_DATA names.

    python experiments/ozdayi-2020/projection.py [rounds]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import torch

import fedquilt as fq
from fedquilt.compute.layout import Layout
from fedquilt.models import resnet20_fixup

EXAMPLES = 200
SETTINGS = {"none": None, "origin": "origin", "start": "start"}


def halves(labels: np.ndarray) -> fq.Partition:
    """Give the first client classes 0 to 4, the second the others."""
    by_class = [np.flatnonzero(labels == label)[:EXAMPLES] for label in range(10)]
    return fq.Partition.of([np.concatenate(by_class[:5]), np.concatenate(by_class[5:])])


def main(rounds: int) -> None:
    """Train without projection and with both, and write the results beside this file."""
    data = fq.cifar10()
    held = halves(data.train.y.numpy())
    torch.manual_seed(1)
    module = resnet20_fixup()
    layout = Layout.of(module)
    print(f"norm of the first model: {float(layout.read(module).vector.norm()):.2f}", flush=True)
    found = {}
    for name, centre in SETTINGS.items():
        method = fq.fed_avg(lr=0.1, fraction=1.0, batch=50, weight_decay=5e-4)
        if centre is not None:
            method = fq.projected(method, radius=3.0, centre=centre)
        result = fq.train(
            module,
            data,
            held,
            method,
            rounds,
            seed=1,
            eval_every=10,
            diagnose=True,
            out=f"runs/ozdayi-projection/{name}",
        )
        found[name] = {
            "accuracy": [round(100 * value, 2) for value in result.history.accuracy],
            "norm": round(float(result.state.vector.norm()), 2),
            "divergence": round(result.history.records[-1]["divergence"]["distance"], 3),
        }
        print(name, found[name], flush=True)
    about = {"rounds": rounds, "evaluated": result.history.rounds, "settings": found}
    Path(__file__).with_name("projection.json").write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
