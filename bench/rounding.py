"""How exact float32 is on W9: two steps on a client's first photos, held against the same in float64.

    python bench/rounding.py

Prints, and writes to results/rounding.json, how far models are from float64's, as a share of how far that moved, in the
parameter that is farthest: those of the plain loop, and of fedquilt with its kernel for group normalisation. What programs
may differ by on W9 (peers/work.py) follows from that.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn

from fedquilt import models
from fedquilt.compute.kernels.layers import with_kernels

HERE = Path(__file__).resolve().parent
STEPS = 2


def trained(model: nn.Module, batches: list[tuple[Tensor, Tensor]], lr: float, kind: torch.dtype) -> Tensor:
    """Take a step on every batch."""
    optimiser = torch.optim.SGD(model.to(kind).parameters(), lr=lr)
    for x, y in batches:
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(x.to(kind)), y).backward()
        optimiser.step()
    return torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()]).double()


def main() -> None:
    sys.path.append(str(HERE / "peers"))
    from run import conditions  # noqa: PLC0415
    from torch_models import inputs  # noqa: PLC0415
    from work import WORKLOADS  # noqa: PLC0415

    work = WORKLOADS["w9"]
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PEERS_DATA"] = folder
        work.write()
        x, y = (torch.from_numpy(part[: STEPS * work.batch]) for part in work.client(0))
        batches = [(inputs(work, each), of) for each, of in zip(x.split(work.batch), y.split(work.batch), strict=True)]
        first = torch.from_numpy(work.first_model)
        own = models.mobilenet_v2()
        nn.utils.vector_to_parameters(first, own.parameters())
        exact = trained(work.torch_model(), batches, work.lr, torch.float64)
        found = {
            "plain": trained(work.torch_model(), batches, work.lr, torch.float32),
            "fedquilt": trained(with_kernels(own), batches, work.lr, torch.float32),
        }
    move = (exact - first).abs().max()
    shares = {name: round(float((each - exact).abs().max() / move), 4) for name, each in found.items()}
    at = conditions()
    text = json.dumps({"commit": at["commit"], "when": at["when"], "share": shares})
    (HERE / "results" / "rounding.json").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
