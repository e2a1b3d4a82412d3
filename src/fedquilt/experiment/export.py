"""Writes a run's trained model under its `state_dict` names, to a file that any PyTorch code can load.

It is read from the run's folder alone: a checkpoint knows the names and shapes of what it holds, and holds what was frozen
too. Neither the data nor the model's code is needed, and runs from Python are exported as those of specs.
"""

from __future__ import annotations

import hashlib
import io
import json
import warnings
from pathlib import Path
from typing import Any, Literal, get_args

import safetensors.torch
import torch

import fedquilt
from fedquilt.algorithm.state import Group, RunState
from fedquilt.analysis.standing import HINT
from fedquilt.base.errors import RunError
from fedquilt.compute.layout import ModelState, Tensors
from fedquilt.compute.replica import Replica
from fedquilt.experiment import checkpoint
from fedquilt.experiment.checkpoint import write_whole
from fedquilt.experiment.contents import Contents
from fedquilt.experiment.folder import RunFolder
from fedquilt.experiment.summary import summarise

SAFETENSORS, STATE_DICT = ".safetensors", (".pt", ".pth")
"""Endings of files with a model: the second are those of `torch.save`."""

Which = Literal["last", "best"]
"""Which model of a run."""

NAMES = "names"
"""What a checkpoint calls the names and shapes of the model's tensors."""


def export(
    run: str | Path,
    file: str | Path,
    group: int | None = None,
    checkpoint: str | Path | None = None,
    overwrite: bool = False,
    which: Which = "last",
) -> Path:
    """Write the trained model of a run to a file, and return its path.

    A name that ends in .safetensors makes a safetensors file; one in .pt or .pth a plain `state_dict`, which
    `torch.load(…, weights_only=True)` reads. Other endings are refused.

    group: which model of a run that ended with several, counted from 1. which: the "last" model, or the "best" one of a run
    with `keep = "best"`. checkpoint: another than the run's newest.

    >>> import tempfile
    >>> from torch import nn
    >>> from fedquilt import digits, fed_avg, iid, inline, train
    >>> data, model = digits(), nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     held = iid(data.train.y.numpy(), clients=10)
    ...     ended = train(model, data, held, fed_avg(), 1, engine=inline(), out=f"{folder}/run")
    ...     file = export(f"{folder}/run", f"{folder}/model.safetensors")
    ...     _ = model.load_state_dict(safetensors.torch.load_file(file))
    >>> torch.equal(model[1].weight, ended.model[1].weight)
    True
    """
    folder, file = RunFolder(Path(run)), Path(file)
    if file.suffix not in (SAFETENSORS, *STATE_DICT):
        raise RunError(f"{file}: must end in {SAFETENSORS}, or in {' or '.join(STATE_DICT)} for torch.load")
    tables = _tables(folder)
    path, state, about = stored(folder, checkpoint, which)
    chosen, number = _chosen(folder, state, group)
    tensors = state_dict(path, chosen.state.model, about)
    if file.exists() and not overwrite:
        raise RunError(f"{file}: exists already; choose another name, or overwrite it with --force")
    if not file.parent.is_dir():
        raise RunError(f"{file}: the folder {file.parent} does not exist")
    metadata = {
        "format": "pt",
        "fedquilt": fedquilt.__version__,
        "model": str(tables.get("model", {}).get("name", "own")),
        "round": str(state.round),
        "spec": hashlib.sha256(folder.spec.read_bytes()).hexdigest(),
    }
    metadata |= {"group": str(number)} if len(state.groups) > 1 else {"digest": about["model"]}
    try:
        write_whole(file, _saved(tensors) if file.suffix in STATE_DICT else safetensors.torch.save(tensors, metadata))
    except OSError as error:
        raise RunError(f"{file}: cannot be written: {error.strerror}") from None
    return file


def _saved(tensors: Tensors) -> bytes:
    written = io.BytesIO()
    torch.save(tensors, written)
    return written.getvalue()


def stored(
    folder: RunFolder, file: str | Path | None = None, which: Which = "last"
) -> tuple[Path, RunState, dict[str, str]]:
    """Read a checkpoint of a run: the one given, the newest, or that of the best model."""
    if which not in get_args(Which):
        raise RunError(f"which: must be 'last' or 'best', got {which!r}")
    if which == "best":
        if file is not None:
            raise RunError(f'{file}: a checkpoint is given, and the "best" is asked for as well: choose one of them')
        best = folder.best()
        if best is None:
            raise RunError(f'{folder.path}: no best model is kept; a run with [run] keep = "best" keeps it')
        return best.path, best.run, best.about
    if file is not None:
        if not Path(file).is_file():
            names = ", ".join(path.name for path in folder.checkpoints) or "none"
            raise RunError(f"{file}: no such checkpoint; the run has: {names}, in {folder.path / 'checkpoints'}")
        return Path(file), *checkpoint.load(Path(file))
    newest = folder.saved()
    if newest is None:
        recorded = folder.metrics.exists() and folder.metrics.stat().st_size
        if folder.checkpoints or recorded:
            state = "no intact checkpoint" if folder.checkpoints else "records, but no checkpoint"
            raise RunError(f"{folder.path}: has {state}: restore an intact one, or train again with --from-start")
        raise RunError(f"{folder.path}: has no checkpoint yet; run it for a round or more")
    return newest.path, newest.run, newest.about


def _tables(folder: RunFolder) -> dict[str, Any]:
    """Read the spec; if it is damaged, the model of an intact checkpoint can still be exported."""
    try:
        found = folder.read_aloud()
        warn_if_diverged(folder, found)
        return found.tables
    except RunError as error:
        if not folder.spec.exists():
            raise
        warnings.warn(str(error), RuntimeWarning, stacklevel=3)
        return {}


def warn_if_diverged(folder: RunFolder, found: Contents) -> None:
    """Warn of the model of a run that has diverged."""
    why = summarise(folder, found)["diverged"]
    if why is not None:
        warnings.warn(
            f"{folder.path}: the run diverged, and its model is of little use: {why}. {HINT}",
            RuntimeWarning,
            stacklevel=2,
        )


def names_of(replica: Replica) -> str:
    """Write the names, shapes and types of a model's tensors as JSON, in the order of a ModelState's vectors."""
    layout = replica.layout
    table: dict[str, Any] = {
        kind: [[entry.name, entry.shape, str(entry.dtype).removeprefix("torch.")] for entry in getattr(layout, kind)]
        for kind in ("parameters", "buffers", "counters")
    }
    first: dict[int, str] = {}
    named = replica.module.state_dict(keep_vars=True)
    tied = {name: first[id(t)] for name, t in named.items() if first.setdefault(id(t), name) != name}
    return json.dumps(table | {"tied": tied})


def state_dict(path: Path, model: ModelState, about: dict[str, str]) -> Tensors:
    """Return a model of a checkpoint as its module's `state_dict` would be."""
    if NAMES not in about:
        raise RunError(f"{path}: was written by an earlier version of fedquilt and lacks the names of its tensors")
    names = json.loads(about[NAMES])
    tensors = dict(checkpoint.load_frozen(path))
    for kind, vector in (("parameters", model.vector), ("buffers", model.buffers), ("counters", model.counters)):
        sizes = [torch.Size(shape).numel() for _, shape, _ in names[kind]]
        for (name, shape, dtype), values in zip(names[kind], torch.split(vector, sizes) if sizes else [], strict=True):
            tensors[name] = values.view(shape).to(getattr(torch, dtype)).clone()
    return tensors | {name: tensors[first].clone() for name, first in names["tied"].items()}


def _chosen(folder: RunFolder, state: RunState, group: int | None) -> tuple[Group, int]:
    count = len(state.groups)
    if group is None and count > 1:
        raise RunError(
            f"{folder.path}: ended with {count} models, one for each group of clients: choose one with --group 1 to "
            f"--group {count}"
        )
    number = 1 if group is None else group
    if not 1 <= number <= count:
        raise RunError(f"{folder.path}: has {count} {'model' if count == 1 else 'models'}; there is no group {number}")
    return state.groups[number - 1], number
