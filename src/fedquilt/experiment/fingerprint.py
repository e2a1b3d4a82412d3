"""What tells one run from another: a digest of what it starts from, and one of the models it ends with."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np

from fedquilt.algorithm.state import RunState
from fedquilt.base.describe import describe
from fedquilt.base.errors import RunError
from fedquilt.base.text import short
from fedquilt.experiment.folder import RunFolder
from fedquilt.experiment.own_code import own_code
from fedquilt.round.federation import Federation


def fingerprint(federation: Federation) -> str:
    """Return a digest of what must not change between a run and its resumption."""
    data = federation.data
    about = (federation.seed, federation.algorithm, federation.simulation, data.prepare, data.augment)
    sha = hashlib.sha256(describe(about).encode())
    code = (federation.algorithm, data.prepare, data.augment, federation.replica.module)
    sha.update(own_code(*code, federation.metrics, federation.simulation).encode())
    sha.update(federation.layout.digest(federation.initial).encode())
    for name, tensor in federation.replica.frozen().items():
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


SETTINGS = "settings"
"""What a checkpoint calls its run's spec."""


def written(tables: dict[str, Any]) -> str:
    """Write a spec's tables as a checkpoint keeps them."""
    return json.dumps(tables, default=str)


def require_same(folder: RunFolder, before: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Refuse a folder whose run began from something else; both say what they start from, and with which settings."""
    if before.get("federation") != now["federation"]:
        known = SETTINGS in before and SETTINGS in now
        settings = [json.loads(each[SETTINGS]) if known else {} for each in (before, now)]
        for where, old, new in differences(settings[0], settings[1], _FREE):
            name = shlex.quote(str(folder.spec))
            raise RunError(
                f"{folder.path}: cannot continue: {where} was {short(old)} when the run began, and is {short(new)} now. "
                f"Change it back to continue, or start a new run with it: `fedquilt run {name} --out FOLDER`"
            )
        raise RunError(
            f"{folder.path}: holds a run of another federation (model, data, partition, method, metrics or seed differ; a "
            "file of the data, the source of your own model or method, or a value that your code refers to may have "
            "changed since): undo the change, or choose another folder"
        )


SAME_RESULT = frozenset({"run.checkpoint_seconds", "run.import_from", "run.keep", "run.track"})
"""Keys that change nothing of a run's result."""


def differences(
    before: Mapping[str, Any], now: Mapping[str, Any], free: Collection[str]
) -> Iterator[tuple[str, Any, Any]]:
    """Compare the settings of two runs: yield the keys that differ, with both values; those that are `free` may.

    >>> list(differences({"run": {"rounds": 2}, "method": {"lr": 0.1}}, {"run": {"rounds": 3}}, {"run.rounds"}))
    [('[method] lr', 0.1, None)]
    """
    first, second = _numbered(before), _numbered(now)
    for name in ("run", *sorted((first | second).keys() - {"run"})):
        old, new = first.get(name, {}), second.get(name, {})
        for key in sorted(old | new):
            if f"{name}.{key}" not in free and old.get(key) != new.get(key):
                yield f"[{name}] {key}", old.get(key), new.get(key)


_FREE = {
    *("run.rounds", "run.stop_at", "run.eval_every", "run.checkpoint_seconds", "run.client_seconds"),
    *("run.patience", "run.stop_after_seconds", "run.keep", "run.track", "run.on_divergence"),
    *("run.import_from", "engine.name", "engine.workers", "engine.start"),
    *(f"engine.{key}" for key in ("address", "gpus", "resources", "data_from", "sums", "mixed", "insecure")),
}
"""Keys that may change while a run is interrupted."""


def _numbered(tables: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the tables by name; those of which there are several by their numbers too."""
    single = {name: table for name, table in tables.items() if isinstance(table, dict)}
    several = {name: table for name, table in tables.items() if isinstance(table, list)}
    return single | {f"{name} {n}": each for name, found in several.items() for n, each in enumerate(found, start=1)}


def digest(federation: Federation, run: RunState) -> str:
    """Return the SHA-256 of a run's model; of several, that of their digests."""
    digests = [federation.layout.digest(group.state.model) for group in run.groups]
    return digests[0] if len(digests) == 1 else hashlib.sha256("\n".join(digests).encode()).hexdigest()
