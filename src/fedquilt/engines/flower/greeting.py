"""What is asked of sites before the first round: who they are, what they run, what the first broadcast is made from."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fedquilt.base.errors import FedquiltError, RunError
from fedquilt.base.text import visible
from fedquilt.base.types import Indices
from fedquilt.engines.encoding import ProtocolError, read_tensors
from fedquilt.engines.flower.roster import Member, nodes_of
from fedquilt.engines.flower.sites import ask
from fedquilt.engines.flower.wire import Sent, unpacked
from fedquilt.round.server import Server

if TYPE_CHECKING:
    from flwr.app import Message
    from flwr.serverapp import Grid

MOST_EXAMPLES = 2**40
_SHORT = 2**16
"""Bytes of the answer to a hello at most."""

_UPLOAD = 2**28
"""Bytes of first uploads at most: the moments of a client's features, whose size the server does not know."""

SAME_BITS = ("fedquilt", "torch", "machine", "instruction_set")
"""Of the versions of a site: those that must be the server's for the bits of a simulation there."""


@dataclass(frozen=True)
class Hello:
    """What a site says of itself.

    `examples` is how many it has to train on. `fingerprint` is of the model, the method and their code, `frozen` of
    parameters that are not trained. `differs` is what of the spec is not as at the server, in words.
    """

    name: str
    examples: int
    classes: int
    fingerprint: str
    frozen: str
    versions: Mapping[str, str] = field(default_factory=dict)
    differs: str | None = None


@dataclass(frozen=True)
class Silent:
    """A site that cannot take part, and why."""

    why: str


SiteAnswer = Hello | Silent


def hello_of(said: object) -> Hello:
    """Check what a site said of itself.

    >>> hello_of({"name": "bern", "examples": -3})
    Traceback (most recent call last):
    fedquilt.engines.encoding.ProtocolError: its hello does not have the expected fields
    """
    try:
        _require(isinstance(said, dict))
        about: dict[str, Any] = said  # type: ignore[assignment]
        _require(about.keys() == Hello.__dataclass_fields__.keys() and len(about["versions"]) <= 20)
        texts = [about["name"], about["fingerprint"], about["frozen"], *about["versions"], *about["versions"].values()]
        texts += [] if about["differs"] is None else [about["differs"]]
        _require(all(type(text) is str and len(text) <= 500 for text in texts))
        _require(type(about["examples"]) is int and 0 <= about["examples"] < MOST_EXAMPLES)
        _require(type(about["classes"]) is int)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ProtocolError("its hello does not have the expected fields") from None
    shown: dict[str, Any] = {key: visible(value) for key, value in about.items() if isinstance(value, str)}
    shown["versions"] = {visible(key): visible(value) for key, value in about["versions"].items()}
    return Hello(**{**about, **shown})


def greet(
    grid: Grid,
    roster: Sequence[Member],
    expected: Hello,
    settings: Mapping[str, Any],
    seconds: float,
    poll: float = 0.5,
    tell: Callable[[str], None] = lambda text: None,
) -> list[SiteAnswer]:
    """Wait for all sites of a roster, for so long at most, and ask each for its hello; those that differ are refused."""
    end = time.monotonic() + seconds
    nodes: dict[int, int] = {}
    told = ""
    while True:
        nodes = {client: node.node_id for client, node in nodes_of(roster, grid.get_nodes()).items()}
        missing = [member.name for client, member in enumerate(roster) if client not in nodes]
        if not missing or time.monotonic() >= end:
            break
        if told != (told := f"waiting for {', '.join(missing)}"):
            tell(told)
        time.sleep(poll)
    content = ({"settings": dict(settings)}, dict[str, bytes]())
    replies = ask(grid, nodes.values(), "hello", lambda node: content, max(seconds, 1.0), poll)
    return [_answer_of(member, nodes.get(client), replies, expected) for client, member in enumerate(roster)]


def _answer_of(member: Member, node: int | None, replies: Mapping[int, Message], expected: Hello) -> SiteAnswer:
    if node is None:
        return Silent("is not there: its SuperNode is not connected")
    if node not in replies:
        return Silent("is there, but did not answer in time")
    try:
        said = _said(replies[node], _SHORT).said
        found = hello_of(said.get("hello"))
    except ProtocolError as error:
        return Silent(visible(str(error)))
    wrong = refusal(member, found, expected)
    return found if wrong is None else Silent(wrong)


def refusal(member: Member, found: Hello, expected: Hello) -> str | None:
    """Say why a site cannot take part, if it cannot."""
    if found.name != member.name:
        return f"was started as site {found.name}, but its key is that of {member.name}"
    if found.differs is not None:
        return f"has another spec: {found.differs}"
    if found.versions.get("fedquilt") != expected.versions.get("fedquilt"):
        return f"runs fedquilt {found.versions.get('fedquilt')}; the server has {expected.versions.get('fedquilt')}"
    if found.classes != expected.classes:
        return f"has data of {found.classes} classes; the server's have {expected.classes}"
    if found.fingerprint != expected.fingerprint:
        return "has another model or method: its first values, or the source of your own code, are not the server's"
    if found.frozen != expected.frozen:
        return "has other values of parameters that are not trained"
    return None if found.examples else "has no examples to train on"


def unlike(found: Hello, expected: Hello) -> list[str]:
    """Return what may make a site's last bits other than the server's simulation would have them."""
    return [
        f"{name} is {found.versions.get(name)}, at the server {expected.versions.get(name)}"
        for name in SAME_BITS
        if found.versions.get(name) != expected.versions.get(name)
    ]


def require_all(roster: Sequence[Member], answers: Sequence[SiteAnswer]) -> list[Hello]:
    """Return what all sites said, or refuse to begin, naming those who cannot take part."""
    bad = [
        f"site {member.name} {each.why}"
        for member, each in zip(roster, answers, strict=True)
        if isinstance(each, Silent)
    ]
    if bad:
        raise RunError(f"the run cannot begin: {'; '.join(bad)}. `fedquilt deploy check` looks again")
    return [each for each in answers if isinstance(each, Hello)]


def collect_first(
    grid: Grid, roster: Sequence[Member], server: Server, class_counts: bool, seconds: float, poll: float = 0.5
) -> Server:
    """Return the server that has made its first broadcast from what the sites uploaded for it."""
    nodes = {client: node.node_id for client, node in nodes_of(roster, grid.get_nodes()).items()}
    said = {"agreement": asdict(server.agreement), "class_counts": class_counts}
    replies = ask(grid, nodes.values(), "first", lambda node: (said, {}), seconds, poll)
    uploads: dict[int, Any] = {}
    counts: dict[int, Indices] = {}
    for client, member in enumerate(roster):
        try:
            node = nodes.get(client)
            if node is None or node not in replies:
                raise ProtocolError("did not answer in time")
            sent = _said(replies[node], _UPLOAD)
            tables: dict[str, Any] = dict(read_tensors(sent.parts.get("uploads", b"")))
            if not tables.keys() <= {str(client)} or not all(isinstance(each, dict) for each in tables.values()):
                raise ProtocolError("sent first uploads of another form")
            uploads |= {client: tables[str(client)]} if tables else {}
            if class_counts:
                counts[client] = _counts(sent.said.get("class_counts"), client, server)
        except ProtocolError as error:
            raise RunError(f"site {member.name}: {visible(str(error))}") from None
    try:
        return server.with_first_uploads(uploads, counts if class_counts else None)
    except (AttributeError, TypeError, LookupError, RuntimeError) as error:
        raise FedquiltError(f"the first uploads of the sites do not fit together: {error}") from error


def _require(holds: bool) -> None:
    if not holds:
        raise ValueError


def _counts(said: object, client: int, server: Server) -> Indices:
    found = said.get(str(client)) if isinstance(said, dict) else None
    if not isinstance(found, list) or len(found) != server.data.classes:
        raise ProtocolError("sent class counts of another form")
    if not all(type(each) is int and 0 <= each < MOST_EXAMPLES for each in found):
        raise ProtocolError("sent class counts that are not whole numbers from 0")
    if sum(found) != int(server.population.sizes[client]):
        raise ProtocolError("sent class counts that do not add up to its examples")
    return np.asarray(found, dtype=np.int64)


def _said(message: Message, most: int) -> Sent:
    if message.has_error():
        raise ProtocolError(f"failed: Flower reports {message.error.reason}")
    sent = unpacked(message.content, most)
    if "failed" in sent.said:
        raise ProtocolError(str(sent.said["failed"]))
    return sent
