"""Who is who: the sites of a federation, in the order that numbers their clients, each known by its public key.

Flower gives every node a random number. It is never used to tell sites apart: it differs from run to run, and with it would
the bits.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedquilt.base.errors import SpecError
from fedquilt.base.text import short

if TYPE_CHECKING:
    from flwr.proto.node_pb2 import NodeInfo

ONLINE = "online"
"""What Flower calls a node that is there."""

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
KEY = re.compile(r"(ecdsa-sha2-nistp(?:256|384|521)) ([A-Za-z0-9+/]+=*)")


@dataclass(frozen=True)
class Member:
    """A site of the roster: its name, and its public key as OpenSSH writes it, without a comment."""

    name: str
    key: str


def roster_of(tables: object, where: str = "spec") -> tuple[Member, ...]:
    """Read the tables `[[site]]` of a spec.

    >>> roster_of([{"name": "Bern!", "key": ""}])
    Traceback (most recent call last):
    fedquilt.base.errors.SpecError: spec: [[site]] 1 name: must be small letters, digits, - and _, got 'Bern!'
    """
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise SpecError(f"{where}: site: must be an array of tables, written as [[site]], got {short(tables)}")
    members: list[Member] = []
    for number, table in enumerate(tables, start=1):
        at = f"{where}: [[site]] {number}"
        unknown = [key for key in table if key not in ("name", "key")]
        if unknown:
            raise SpecError(f"{at} {unknown[0]}: unknown key; a site has a name and a key")
        name, key = table.get("name"), table.get("key")
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise SpecError(f"{at} name: must be small letters, digits, - and _, got {short(name)}")
        if name == "server":
            raise SpecError(f"{at} name: the server is not a site; choose another name")
        if not isinstance(key, str) or not _is_key(key):
            raise SpecError(
                f'{at} key: must be the site\'s public key, "ecdsa-sha2-nistp384 …"; `fedquilt deploy keys` makes one'
            )
        if name in [member.name for member in members]:
            raise SpecError(f"{at} name: {name} is in the roster already; every site needs its own name")
        if key in [member.key for member in members]:
            raise SpecError(f"{at} key: is that of another site; every site needs its own key")
        members.append(Member(name, key))
    return tuple(members)


def _is_key(key: str) -> bool:
    found = KEY.fullmatch(key)
    if found is None:
        return False
    try:
        kind = found[1].encode()
        return base64.b64decode(found[2], validate=True).startswith(len(kind).to_bytes(4, "big") + kind)
    except binascii.Error:
        return False


def nodes_of(roster: Sequence[Member], nodes: Iterable[NodeInfo]) -> dict[int, NodeInfo]:
    """Return the nodes that are there, by the number of the client; those of keys not in the roster are passed over."""
    places = {public_bytes(member.key): client for client, member in enumerate(roster)}
    found = {}
    for node in nodes:
        client = places.get(node.public_key)
        if client is not None and node.status == ONLINE:
            found[client] = node
    return found


def public_bytes(key: str) -> bytes:
    """Return a public key as Flower tells the ServerApp: in PEM."""
    from cryptography.hazmat.primitives import serialization

    loaded: Any = serialization.load_ssh_public_key(key.encode())
    written: bytes = loaded.public_bytes(
        encoding=serialization.Encoding.PEM, format=serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return written
