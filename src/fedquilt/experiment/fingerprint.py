"""What tells one run from another: a digest of what it starts from, and one of the models it ends with."""

from __future__ import annotations

import hashlib

import numpy as np

from fedquilt.algorithm.state import RunState
from fedquilt.base.describe import describe
from fedquilt.base.errors import RunError
from fedquilt.experiment.folder import RunFolder
from fedquilt.experiment.own_code import own_code
from fedquilt.round.federation import Federation


def fingerprint(federation: Federation) -> str:
    """Return a digest of what must not change between a run and its resumption."""
    data = federation.data
    about = (federation.seed, federation.algorithm, federation.simulation, data.prepare, data.augment)
    sha = hashlib.sha256(describe(about).encode())
    sha.update(own_code(federation.algorithm, data.prepare, data.augment, federation.bench.module).encode())
    sha.update(federation.layout.digest(federation.initial).encode())
    for name, tensor in federation.bench.frozen().items():
        sha.update(name.encode() + tensor.numpy().tobytes())
    for held in (federation.partition, federation.partition.test):
        for array in () if held is None else (held.indices, held.offsets):
            sha.update(np.ascontiguousarray(array, dtype=np.int64).data)
        if held is not None and held.noise is not None:
            sha.update(f"{held.noise.seed} {held.noise.split}".encode() + held.noise.std.tobytes())
    for split in (data.train, data.test):
        sha.update(split.x.contiguous().numpy().data)
        sha.update(split.y.contiguous().numpy().data)
    return sha.hexdigest()


def require_same(folder: RunFolder, before: str | None, now: str) -> None:
    """Refuse a folder whose run began from something else."""
    if before != now:
        raise RunError(
            f"{folder.path}: holds a run of another federation (model, data, partition, method or seed differ; a file "
            "of the data, or the source of your own model or method, may have changed since): undo the change, or choose "
            "another folder"
        )


def digest(federation: Federation, run: RunState) -> str:
    """Return the SHA-256 of a run's model; of several, that of their digests."""
    digests = [federation.layout.digest(group.state.model) for group in run.groups]
    return digests[0] if len(digests) == 1 else hashlib.sha256("\n".join(digests).encode()).hexdigest()
