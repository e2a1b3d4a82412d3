"""Checkpoints: the whole state of a run in one safetensors file that carries its own digest.

A file is written beside its final name, synced and renamed, so that a crash leaves either the old state or the new one.
Reading checks the digest over names, types, shapes, bytes and metadata; reading runs no code.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch

from fedquilt.algorithm.state import ClientStore, Group, RunState, ServerState
from fedquilt.base.errors import RunError
from fedquilt.compute.layout import ModelState, State, Tensors
from fedquilt.compute.tensors import apart, nested


def save(path: Path, run: RunState, about: dict[str, str], frozen: Tensors | None = None) -> None:
    """Write a checkpoint; `about` is stored with it, and so are the parameters that are not trained."""
    everything: State = {
        "groups": {str(number): _group_table(group) for number, group in enumerate(run.groups)},
        "clients": {str(client): client_state for client, client_state in run.store.items()},
        "frozen": dict(frozen or {}),
    }
    tensors = apart(everything)
    metadata = about | {"round": str(run.round)}
    metadata["digest"] = _digest(tensors, metadata)
    write_whole(path, safetensors.torch.save(tensors, metadata=metadata))


def load(path: Path) -> tuple[RunState, dict[str, str]]:
    """Read a checkpoint, or raise a RunError that says how it is damaged."""
    everything, metadata = _read(path)
    tables: Any = everything.get("groups", {})
    if not tables:
        raise RunError(f"{path}: was written by an earlier version of fedquilt and cannot be read by this one")
    try:
        round_ = int(metadata.pop("round"))
        groups = tuple(_group(tables[number], round_) for number in sorted(tables, key=int))
        clients: Any = {int(client): client_state for client, client_state in everything.get("clients", {}).items()}  # type: ignore[union-attr]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise RunError(f"{path}: is damaged: it does not hold the state of a run ({error!r})") from None
    return RunState(groups, ClientStore(clients)), metadata


def load_frozen(path: Path) -> Tensors:
    """Read the parameters that were not trained from a checkpoint."""
    return _read(path)[0].get("frozen", {})  # type: ignore[return-value]


def _read(path: Path) -> tuple[State, dict[str, str]]:
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            metadata = dict(file.metadata() or {})
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
    except OSError as error:
        raise RunError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (safetensors.SafetensorError, UnicodeDecodeError):  # whose texts say nothing to a user
        raise RunError(f"{path}: is damaged or cut short") from None
    claimed = metadata.pop("digest", "")
    if claimed != _digest(tensors, metadata):
        raise RunError(f"{path}: is damaged: its content does not match its digest")
    return nested(tensors), metadata


def _group_table(group: Group) -> State:
    model = group.state.model
    table: State = {
        "model": {"vector": model.vector, "buffers": model.buffers, "counters": model.counters},
        "server": group.state.optimiser,
        "broadcast": group.state.broadcast,
    }
    return table if group.clients is None else table | {"clients": torch.from_numpy(group.clients)}


def _group(table: Any, round_: int) -> Group:
    state = ServerState(round_, ModelState(**table["model"]), table.get("server", {}), table.get("broadcast", {}))
    return Group(state, table["clients"].numpy() if "clients" in table else None)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that a crash leaves the old one or the new one, never a part."""
    beside = path.with_name(f".{path.name}.part")
    try:
        with beside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError:
        with contextlib.suppress(OSError):  # on a full disk it would only take room
            beside.unlink(missing_ok=True)
        raise
    if os.name == "posix":  # elsewhere a folder cannot be synced
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _digest(tensors: Tensors, metadata: dict[str, str]) -> str:
    sha = hashlib.sha256(json.dumps(metadata, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        sha.update(f"\n{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        sha.update(tensor.view(-1).view(torch.uint8).numpy().data if tensor.numel() else b"")
    return sha.hexdigest()
