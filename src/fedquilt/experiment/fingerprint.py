"""What tells one run from another: a digest of what it starts from, and one of the models it ends with."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from torch import nn

from fedquilt.algorithm.algorithm import Algorithm
from fedquilt.algorithm.metric import Metric
from fedquilt.algorithm.state import RunState
from fedquilt.base.errors import RunError
from fedquilt.base.records import describe
from fedquilt.base.text import short
from fedquilt.experiment.folder import RunFolder
from fedquilt.experiment.own_code import own_code
from fedquilt.round.federation import Federation
from fedquilt.round.server import Server


def fingerprint(view: Federation | Server) -> str:
    """Return a digest of what must not change between a run and its resumption; a server knows clients by name and size."""
    data = view.data
    sha = hashlib.sha256(describe((view.seed, view.algorithm, view.simulation, data.prepare, data.augment)).encode())
    code = (view.algorithm, data.prepare, data.augment, view.replica.module)
    sha.update(own_code(*code, view.metrics, view.simulation).encode())
    sha.update(view.layout.digest(view.initial).encode())
    for name, tensor in view.replica.frozen().items():
        sha.update(name.encode() + tensor.numpy().tobytes())
    if isinstance(view, Server):
        sha.update(repr((view.population.sizes.tolist(), view.population.names)).encode())
    else:
        for held in (view.partition, view.partition.test):
            for array in () if held is None else (held.indices, held.offsets):
                sha.update(np.ascontiguousarray(array, dtype=np.int64).data)
            if held is not None and held.noise is not None:
                sha.update(f"{held.noise.seed} {held.noise.split}".encode() + held.noise.std.tobytes())
    for split in (data.train, data.test):
        sha.update(split.x.contiguous().numpy().data)
        sha.update(split.y.contiguous().numpy().data)
    return sha.hexdigest()


def model_fingerprint(seed: int, algorithm: Algorithm, module: nn.Module, metrics: Sequence[Metric] | None) -> str:
    """Return a digest of what a server and its sites must have alike: model, method, the code of both, seed; no data."""
    sha = hashlib.sha256(describe((seed, algorithm)).encode())
    sha.update(own_code(algorithm, module, metrics).encode())
    for name, tensor in module.state_dict().items():
        sha.update(name.encode() + tensor.contiguous().numpy().tobytes())
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
    before: Mapping[str, Any], now: Mapping[str, Any], free: Collection[str], own_defaults: bool = True
) -> Iterator[tuple[str, Any, Any]]:
    """Compare the settings of two runs: yield the keys that differ, with both values; those that are `free` may.

    Without `own_defaults`, a key that is not given now may have any value where the function is the user's own: its
    defaults are not known before it is imported.

    >>> list(differences({"run": {"rounds": 2}, "method": {"lr": 0.1}}, {"run": {"rounds": 3}}, {"run.rounds"}))
    [('[method] lr', 0.1, None)]
    """
    first, second = _numbered(before), _numbered(now)
    for name in ("run", *sorted((first | second).keys() - {"run"})):
        old, new = first.get(name, {}), second.get(name, {})
        own = not own_defaults and ":" in str(new.get("name"))
        for key in sorted(new if own else old | new):
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


def digest(view: Federation | Server, run: RunState) -> str:
    """Return the SHA-256 of a run's model; of several, that of their digests."""
    digests = [view.layout.digest(group.state.model) for group in run.groups]
    return digests[0] if len(digests) == 1 else hashlib.sha256("\n".join(digests).encode()).hexdigest()
