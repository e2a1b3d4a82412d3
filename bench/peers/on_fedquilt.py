"""fedquilt. Variant: the engine of bench/workloads.py, none given ("defaults"), or PyTorch's layers ("eager")."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path

# user code begins
import numpy as np
import torch
from torch_models import vector
from turns import play

import fedquilt

# user code ends
from fedquilt.algorithm.algorithm import Batches
from fedquilt.compute.kernels.build import library

PLANNED = 10**6
"""Rounds that the run is planned for, unless it is a whole run: what is chosen goes by that."""

CHOSEN: list[str] = []
"""Which engine was chosen where none was given, in fedquilt's words."""


@dataclass(frozen=True)
class InOrder:
    """A client's examples as they come."""

    epochs: int
    batch: int

    def __call__(self, examples: int, rng: np.random.Generator, round_: int = 1) -> Batches:
        order = np.tile(np.arange(examples, dtype=np.int64), self.epochs)
        return Batches(order, np.arange(0, len(order) + 1, self.batch, dtype=np.int64))


MODELS = {
    "2nn": ("mnist_2nn", {}),
    "cnn": ("mnist_cnn", {}),
    "hsu": ("cifar_cnn_hsu", {}),
    "lstm": ("char_lstm", {}),
    "fourier": ("random_fourier", {"inputs": 50, "features": 100, "classes": 5}),
    "resnet": ("resnet20_fixup", {}),
    "mobilenet": ("mobilenet_v2", {}),
    "words": ("word_lstm", {}),
}
"""fedquilt's own models, which its users name."""


def own_model(work):
    """Return fedquilt's own model, where it has the workload's, with the values that everybody begins with."""
    if work.model not in MODELS:
        return work.torch_model()
    name, given = MODELS[work.model]
    model = getattr(fedquilt.models, name)(**given)
    torch.nn.utils.vector_to_parameters(torch.from_numpy(work.first_model), model.parameters())
    return model


def photos(work):
    """Return a data set of files, and the rows that clients use."""
    tables = work.photos / "all.csv", work.photos / "first.csv"
    data = fedquilt.datasets.image_folder(work.photos, tables[0], test=tables[1], scale="unit", augment=False)
    return data, work.rows


def engine(work, variant):
    """Return the engine of bench/workloads.py; none for defaults."""
    if variant == "defaults":
        return None
    if variant == "eager":
        return fedquilt.engines.processes(compute="eager")
    sys.path.append(str(Path(__file__).resolve().parent.parent))
    from workloads import WORKLOADS  # noqa: PLC0415

    return WORKLOADS[work.name].engine()


def about(work, variant):
    """Say which engine was given, and what became of it: torch counts what it compiles, and what it finds in its cache."""
    given = engine(work, variant)
    name = "no engine given"
    if given:
        block = given.execution.block
        name = (f"vectorised, block {block}" if block > 1 else "processes") + f', compute = "{given.compute}"'
    if CHOSEN:
        return f"{name}: {CHOSEN[0]}"
    if library.cache_info().currsize:
        return f"{name}: compiled, kernels of fedquilt's own"
    # Until something is compiled, nothing has imported it. The first program that is compiled is fedquilt's trial.
    counted = sys.modules["torch._dynamo.utils"].counters if "torch._dynamo.utils" in sys.modules else {}
    if counted.get("stats", {}).get("unique_graphs", 0) < 2:
        return f"{name}: eager"
    missed = counted["aot_autograd"]["autograd_cache_miss"]
    return f"{name}: compiled, {'anew at start-up' if missed else 'found in the cache at start-up'}"


# user code begins
def examples(work):
    if work.photos:
        return photos(work)
    x, y = work.examples
    prepare = (lambda x: x.float().div_(255)) if x.dtype == np.uint8 else None
    data = fedquilt.arrays(x, y, x[:1000], y[:1000], classes=work.classes, prepare=prepare)
    return data, np.arange(len(y))


def simulate(work, turns):
    data, rows = examples(work)
    held = fedquilt.Partition.by_sizes(rows, np.asarray(work.sizes))
    method = fedquilt.fed_avg(
        lr=work.lr, fraction=work.cohort / work.clients, epochs=work.epochs, batch=work.batch, momentum=work.momentum
    )
    if not work.shuffled:
        method = replace(method, sample=InOrder(work.epochs, work.batch))
    chosen = engine(work, turns.variant)

    class Watcher:
        def begin(self, history, last):
            turns.boundary()

        def stage(self, text):
            CHOSEN.extend([text] if text.startswith("engine: ") and not CHOSEN else [])

        def round(self, record):
            if not turns.boundary() and not turns.whole:
                raise KeyboardInterrupt

    rounds = turns.rounds if turns.whole else PLANNED
    trained = fedquilt.train(
        own_model(work), data, held, method, rounds, engine=chosen, eval_every=PLANNED, watcher=Watcher()
    )
    return vector(trained.model)


play(simulate, about)
# user code ends
