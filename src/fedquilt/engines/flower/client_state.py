"""Client state stays at the client's site; the server holds a digest in its place.

In simulation the run's state holds a control variate or a personal model for every client. Here it holds 32 bytes: the
SHA-256 of what the site has stored. The server sends them back with the client's next task, so that a run that is resumed
from an earlier round, after a crash, continues with the state that the client had then.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from fedquilt.algorithm.algorithm import Algorithm
from fedquilt.base.errors import FedquiltError
from fedquilt.compute.layout import State
from fedquilt.compute.tensors import from_bytes, to_bytes

KEPT = "kept at the site"
"""The one entry of the state that the server holds for a client."""

SIZE = 32
VERSIONS = 50
"""How many versions of a client's state its site stores: a run can be resumed from as many rounds back."""


class Shelf(Protocol):
    """Where a site stores the state of its clients."""

    def read(self, digest: str) -> bytes | None:
        """Return what has this digest, if it is there."""

    def write(self, digest: str, content: bytes) -> None:
        """Keep something; earlier versions may be removed."""


@dataclass
class MemoryShelf:
    """A shelf that goes with the process."""

    held: dict[str, bytes] = field(default_factory=dict)

    def read(self, digest: str) -> bytes | None:
        """Return what has this digest."""
        return self.held.get(digest)

    def write(self, digest: str, content: bytes) -> None:
        """Keep something."""
        self.held[digest] = content


@dataclass(frozen=True)
class FolderShelf:
    """A shelf in a folder, which nobody else can read; the newest versions are kept."""

    path: Path
    versions: int = VERSIONS

    def read(self, digest: str) -> bytes | None:
        """Return what has this digest, if it is there and whole."""
        file = self.path / digest
        content = file.read_bytes() if file.exists() else None
        return content if content is not None and hashlib.sha256(content).hexdigest() == digest else None

    def write(self, digest: str, content: bytes) -> None:
        """Write something whole, or not at all, and remove the oldest versions."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = self.path / f"{digest}.{os.getpid()}.part"
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(self.path / digest)
        files = sorted(self.path.iterdir(), key=lambda file: file.stat().st_mtime_ns)
        for old in files[: -self.versions]:
            old.unlink(missing_ok=True)


def put_down(state: State | None, shelf: Shelf) -> State | None:
    """Store a client's state, and return what the server holds in its place.

    >>> shelf = MemoryShelf()
    >>> held = put_down({"momentum": torch.ones(2)}, shelf)
    >>> held[KEPT].shape, pick_up(held, shelf)
    (torch.Size([32]), {'momentum': tensor([1., 1.])})
    """
    if not state:
        return None
    content = to_bytes(state)
    digest = hashlib.sha256(content).digest()
    shelf.write(digest.hex(), content)
    return {KEPT: torch.frombuffer(bytearray(digest), dtype=torch.uint8)}


def pick_up(held: State | None, shelf: Shelf) -> State | None:
    """Return a client's state, from what the server holds in its place."""
    if not held:
        return None
    digest = held.get(KEPT)
    if (
        held.keys() != {KEPT}
        or not isinstance(digest, Tensor)
        or digest.shape != (SIZE,)
        or digest.dtype != torch.uint8
    ):
        raise MissingError("was sent a client state of another form")
    content = shelf.read(bytes(digest.tolist()).hex())
    if content is None:
        raise MissingError(
            "does not have the client's state from its last round; the folder that stores it was changed"
        )
    return from_bytes(content)


class MissingError(FedquiltError):
    """A client's state is not at its site."""


def require_state_at_sites(algorithm: Algorithm) -> None:
    """Refuse a method whose server works on client state, or that sends nothing and yet trains clients' models."""
    if not algorithm.course.sends:
        raise FedquiltError(
            f"{algorithm.name} sends nothing, and is there to compare with: its clients would send their models here. "
            "Run it in simulation"
        )
    if algorithm.course.round is None:
        return
    for exchange in algorithm.exchanges:
        if exchange.remembers and exchange.regroup is not None:
            raise FedquiltError(
                f"{algorithm.name} makes new groups of clients, for which {exchange.name} needs their client state: "
                "in a real federation that stays at the sites. Use one of the two"
            )
