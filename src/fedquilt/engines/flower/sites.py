"""The transport of a real federation: every site is a lane, and Flower's Grid the way to it.

Messages are pushed, and replies asked for by the numbers of the messages they answer. Which client and which slot a reply
is for is known from that, and from nothing that the reply says. A site that was given up may still answer: nobody asks for
it. Whatever a site sends becomes an answer or its fault; a site that goes offline is a lane that leaves, and what it was
doing is done again when it is back.
"""

from __future__ import annotations

import math
import secrets
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

from fedquilt.algorithm.updates import Fault
from fedquilt.base.errors import reason_of
from fedquilt.compute.layout import ModelState, State
from fedquilt.engines.encoding import ProtocolError, decode_reply, encode_model, encode_task, read
from fedquilt.engines.flower.forms import largest_reply, require_form
from fedquilt.engines.flower.roster import Member, nodes_of
from fedquilt.engines.flower.wire import Sent, packed, unpacked
from fedquilt.engines.tasks import Reply, Task, answers
from fedquilt.engines.transport import Answered, Event, Joined, Left
from fedquilt.round.checks import Uploads, uploads_of
from fedquilt.round.evaluation import Counted
from fedquilt.round.hosting import too_slow
from fedquilt.round.server import Server

if TYPE_CHECKING:
    from flwr.app import Message
    from flwr.serverapp import Grid

TYPES = {"train": "train", "evaluate clients": "evaluate"}
"""What Flower calls the messages of our tasks."""

GONE = {3: "a message was lost", 4: "its reply was lost", 5: "it went offline", 8: "its ClientApp ended without a word"}
"""Flower's errors that are no fault of a client's code: what the site was doing is done again."""

LOOK = 2.0
"""Seconds between looks at who is there."""

LONGEST_TTL = 7 * 24 * 3600.0
"""Seconds for which Flower keeps a message where no deadline is set."""


@dataclass(frozen=True, eq=False)
class _Published:
    content: bytes
    uploads: Uploads


@dataclass(frozen=True, eq=False)
class _Asked:
    """A task on its way: to which lane and node, and the token that its reply must carry."""

    lane: int
    node: int
    task: Task
    token: str
    uploads: Uploads
    until: float


@dataclass(frozen=True)
class _Host:
    """A site that is there: its node, and since when. One that comes back has lost what it was doing."""

    node: int
    since: str


class Sites:
    """See `fedquilt.engines.transport.Transport`."""

    lanes_are = "sites"

    def __init__(
        self,
        grid: Grid,
        server: Server,
        roster: Sequence[Member],
        poll: float = 0.5,
        look: float = LOOK,
    ) -> None:
        """Begin with the sites of the roster that are there; `poll` is how many seconds pass between looks for replies."""
        self._grid, self._server, self._roster = grid, server, roster
        self._poll, self._look = poll, look
        self._numbers = count()
        self._events: list[Event] = []
        self._hosts: dict[int, _Host] = {}
        self._lane_of: dict[int, int] = {}
        self._client_of: dict[int, int] = {}
        self._models: dict[int, _Published] = {}
        self._asked: dict[str, _Asked] = {}
        self._looked = -math.inf

    # What the scheduler asks for

    def publish(self, model: ModelState, broadcast: State) -> int:
        """Write a model down for the tasks of a job."""
        uploads = uploads_of(self._server.algorithm, self._server.layout, broadcast)
        self._models[number := next(self._numbers)] = _Published(encode_model(model, broadcast), uploads)
        return number

    def retire(self, published: int) -> None:
        """Forget a model."""
        del self._models[published]

    def give(self, lane: int, task: Task, published: int) -> None:
        """Send a task to a site; it is good for as long as the site may take."""
        from flwr.app import Message

        model, host = self._models[published], self._hosts[self._client_of[lane]]
        said, states = encode_task(task)
        token = secrets.token_hex(16)
        parts = {"model": model.content, "client_states": states}
        seconds = self._server.client_seconds
        ttl = LONGEST_TTL if seconds is None else seconds * len(task.clients)
        content = packed({"task": read(said), "token": token, "agreement": asdict(self._server.agreement)}, parts)
        message = Message(content, host.node, TYPES[task.do], ttl=ttl, group_id=str(task.round))
        until = time.monotonic() + ttl
        (number,) = self._grid.push_messages([message])
        if number:
            self._asked[number] = _Asked(lane, host.node, task, token, model.uploads, until)
        else:
            self._leave(lane, "Flower did not take the message", blameless=True)

    def wait(self, seconds: float | None) -> Sequence[Event]:
        """Look for replies and for sites that come and go, until there is something to report."""
        end = math.inf if seconds is None else time.monotonic() + seconds
        while True:
            self._see_who_is_there()
            self._collect()
            left = end - time.monotonic()
            if self._events or left <= 0:
                break
            time.sleep(min(self._poll, left))
        events, self._events = self._events, []
        return events

    def progress(self, lane: int) -> int:
        """Sites do not say for which client they work."""
        return 0

    def stop(self, lane: int) -> None:
        """Give up what a site is doing; its reply, if one comes, is not asked for. The site itself stays."""
        self._forget(lane)

    def release(self, lane: int, receipt: int) -> None:
        """Do nothing: an answer's memory goes with it."""

    def close(self) -> None:
        """Ask for nothing any more; messages under way end with their time."""
        self._asked.clear()

    # Who is there

    def _see_who_is_there(self) -> None:
        now = time.monotonic()
        if now - self._looked >= self._look:
            self._looked = now
            found = nodes_of(self._roster, self._grid.get_nodes())
            hosts = {client: _Host(node.node_id, node.last_activated_at) for client, node in found.items()}
            for client, host in list(self._hosts.items()):
                if client not in self._lane_of or hosts.get(client) == host:
                    continue
                why = "it went offline" if client not in hosts else "it was started again"
                self._leave(self._lane_of[client], why)
            self._hosts = hosts
        for client in self._hosts.keys() - self._lane_of.keys():
            lane = next(self._numbers)
            self._lane_of[client], self._client_of[lane] = lane, client
            self._events.append(Joined(lane, f"site {self._roster[client].name}", clients={client}))

    def _leave(self, lane: int, why: str, blameless: bool = False) -> None:
        self._forget(lane)
        self._events.append(Left(lane, why, blameless=blameless))

    def _forget(self, lane: int) -> None:
        self._lane_of.pop(self._client_of.pop(lane), None)
        self._asked = {number: asked for number, asked in self._asked.items() if asked.lane != lane}

    # What they send

    def _collect(self) -> None:
        if not self._asked:
            return
        replies: dict[str, list[Message]] = defaultdict(list)
        now = time.monotonic()
        for message in self._grid.pull_messages(list(self._asked)):
            asked = self._asked.get(message.metadata.reply_to_message_id)
            if asked is None:
                continue
            if not _is_of(message, asked.node):
                self._warn_of_stranger(message.metadata.src_node_id, asked)
                continue
            replies[message.metadata.reply_to_message_id].append(message)
        for number, found in replies.items():
            asked = self._asked.pop(number)
            gone = _gone(found[0])
            if gone is not None:
                self._leave(asked.lane, gone)
                continue
            late = now >= asked.until
            reply = (
                _faults(asked.task, too_slow(self._server.client_seconds), "too slow")
                if late
                else self._read(asked, found)
            )
            self._events.append(Answered(asked.lane, reply))

    def _warn_of_stranger(self, node: int, asked: _Asked) -> None:
        senders = [self._roster[client].name for client, host in self._hosts.items() if host.node == node]
        meant = self._roster[self._client_of[asked.lane]].name
        warnings.warn(
            f"site {senders[0] if senders else node} answered a message to site {meant}; that is passed over",
            RuntimeWarning,
            stacklevel=2,
        )

    def _read(self, asked: _Asked, replies: Sequence[Message]) -> Reply:
        """Read a reply; whatever is wrong with it is the fault of the clients that were asked."""
        task = asked.task
        try:
            if len(replies) > 1:
                raise ProtocolError(f"answered {len(replies)} times")
            (message,) = replies
            if message.has_error():
                return _faults(task, f"Flower reports: {message.error.reason}", "error")
            most = largest_reply(task, self._server.layout, asked.uploads)
            return self._answer(asked, unpacked(message.content, most))
        except ProtocolError as error:
            return _faults(task, str(error))
        except Exception as error:  # nothing that a site sends ends a run
            return _faults(task, f"sent what cannot be read: {reason_of(error)}")

    def _answer(self, asked: _Asked, sent: Sent) -> Reply:
        task = asked.task
        if sent.said.get("token") != asked.token:
            raise ProtocolError("sent the reply to another message")
        if "failed" in sent.said:
            return _faults(task, str(sent.said["failed"]), "error")
        if sent.said.keys() != {"token", "reply"} or not sent.parts.keys() <= {"tensors"}:
            raise ProtocolError("the reply does not have the expected fields")
        tensors = sent.parts.get("tensors", b"")
        require_form(tensors, task, self._server.layout, asked.uploads)
        reply = decode_reply(task, sent.said["reply"], tensors)
        if reply.error is not None:
            return _faults(task, reply.error, "error")
        if not answers(task, reply):
            raise ProtocolError("answered for a client, or in a slot, that it was not asked for")
        for client, result in zip(task.clients, reply.results, strict=True):
            if isinstance(result, Counted):
                self._require_plausible(client, result)
        return reply

    def _require_plausible(self, client: int, counted: Counted) -> None:
        """Refuse the result of a test on more examples than the client has: it would count for more than its own."""
        server = self._server
        assert server.test_sizes is not None
        most = int(server.test_sizes[client]) * server.data.predictions
        measured = [*counted.sums, counted.loss]
        sound = 0 <= counted.predictions <= most and len(counted.sums) == len(server.metrics)
        if not sound or not 0 <= (counted.right or 0) <= counted.predictions or not all(map(math.isfinite, measured)):
            raise ProtocolError(f"sent a test on {counted.predictions} predictions, which is impossible")


def _is_of(message: Message, node: int) -> bool:
    """Say whether a reply is of the node that was asked; errors that Flower itself reports are of nobody."""
    return not message.has_content() or message.metadata.src_node_id == node


def _gone(message: Message) -> str | None:
    return GONE.get(message.error.code) if message.has_error() else None


def _faults(task: Task, reason: str, kind: Any = "unusable update") -> Reply:
    return Reply(
        [Fault(client, slot, reason, kind=kind) for client, slot in zip(task.clients, task.slots, strict=True)]
    )


def ask(
    grid: Grid,
    nodes: Iterable[int],
    action: str,
    content: Callable[[int], tuple[dict[str, Any], dict[str, bytes]]],
    seconds: float,
    poll: float = 0.5,
) -> dict[int, Message]:
    """Ask nodes something before the first round, and return the first reply of each that came in time, by node."""
    from flwr.app import Message

    asked: dict[str, int] = {}
    for node in nodes:
        message = Message(packed(*content(node)), node, f"query.{action}", ttl=seconds, group_id="0")
        (number,) = grid.push_messages([message])
        if number:
            asked[number] = node
    found: dict[int, Message] = {}
    end = time.monotonic() + seconds
    while asked and time.monotonic() < end:
        for message in grid.pull_messages(list(asked)):
            number = message.metadata.reply_to_message_id
            if number in asked and _is_of(message, asked[number]):
                found[asked.pop(number)] = message
        if asked:
            time.sleep(poll)
    return found
