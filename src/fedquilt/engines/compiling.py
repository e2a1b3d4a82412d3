"""Compiling: whether it can be done here, where the results are kept, and when it pays.

Compiled code is kept between runs in a private folder of the user's cache, apart for every version of torch and kind of
processor: torch's own default is a folder that all users share, and its files are read with pickle.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path

import numpy as np
import torch
from torch import nn

from fedquilt.base.cache_folder import private_folder
from fedquilt.base.errors import FedquiltError, reason_of
from fedquilt.base.rng import generator
from fedquilt.compute.kernels import compiler
from fedquilt.round.block import unmappable
from fedquilt.round.federation import Federation
from fedquilt.round.server import Server

LARGEST = 1_000_000
"""Parameters of a model for which compiling pays: larger ones spend their time inside matrix products anyway."""

SECONDS_A_STEP = 2e-4
"""What compiling saves of a step, about, measured on small models."""

WORTH = 60.0
"""Seconds that a run must save for compiling, which takes some itself, to be chosen."""

SHAPES = 1024
"""Shapes that may be compiled in one process."""


@functools.cache
def trouble() -> str | None:
    """Say why nothing can be compiled here, if so: it is tried once, on something small."""
    try:
        compiler.cpp_compiler()
        keep_apart()
        torch.compile(_twice, fullgraph=True, dynamic=False)(torch.ones(3))
    except FedquiltError as error:
        return str(error)
    except Exception as error:
        return reason_of(error).splitlines()[0]
    return None


def _twice(x: torch.Tensor) -> torch.Tensor:
    return x + x


def keep_apart() -> None:
    """Keep compiled code in a private folder, and compile in this process alone: workers are forked from it."""
    import torch._dynamo.config
    import torch._inductor.config
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir

    torch._inductor.config.compile_threads = 1
    # One program has as many shapes as its epochs and batches take values over the rounds; torch gives up after eight.
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, SHAPES)
    torch._dynamo.config.accumulated_recompile_limit = max(torch._dynamo.config.accumulated_recompile_limit, SHAPES)
    # torch names its own shared folder there as soon as it is imported; any other is the user's choice.
    if os.environ.get("TORCHINDUCTOR_CACHE_DIR") in {None, str(Path(default_cache_dir()).absolute())}:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(private_folder())


def pays(view: Federation | Server, rounds: int) -> bool:
    """Say whether compiling a run's local steps is worth its time: the rule behind `compute = "auto"`.

    It is where the model has no convolution and no recurrent layer, at most a million parameters, can be mapped, and where
    the steps planned for the whole run, at 0.2 ms each, add up to more than a minute; and where a compiler is there.
    """
    module, algorithm = view.replica.module, view.algorithm
    slow = any(
        isinstance(part, nn.modules.conv._ConvNd | nn.RNNBase) or hasattr(part, "compiled_as")
        for part in module.modules()
    )
    if slow or view.layout.size > LARGEST or unmappable(module, algorithm) is not None:
        return False
    if planned_steps(view, rounds) * SECONDS_A_STEP <= WORTH:
        return False
    return trouble() is None


def planned_steps(view: Federation | Server, rounds: int) -> float:
    """Return how many local steps a run will take, about: those of its first cohort, times its rounds."""
    algorithm, sizes = view.algorithm, view.population.sizes
    cohort = algorithm.select(sizes, generator(view.seed, "select", 1))
    middle = int(np.mean(sizes[cohort])) or 1
    return rounds * len(cohort) * (len(algorithm.sample(middle, generator(0, "shape"), 1).cuts) - 1)
