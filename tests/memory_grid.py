"""Flower's Grid in memory: sites are functions, their answers can be changed, dropped or delayed on the way back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import Message, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from fedquilt.engines.flower.roster import Member, public_bytes
from fedquilt.engines.flower.site import Host, Kind, answer
from fedquilt.engines.flower.wire import packed, unpacked

Answerer = Callable[[Message], Message]
OnTheWay = Callable[[Message, Message], Iterable[tuple[float, Message]]]
"""(the message, the answer to it) -> the answers that arrive, each after so many seconds."""

KINDS: dict[str, Kind] = {"train": "task", "evaluate": "task", "query.hello": "hello", "query.first": "first"}


def key() -> str:
    public = ec.generate_private_key(ec.SECP384R1()).public_key()
    return public.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH).decode()


KEYS = [key() for _ in range(40)]


def roster_of_size(count: int) -> list[Member]:
    return [Member(f"site-{number}", KEYS[number]) for number in range(count)]


def at_once(message: Message, reply: Message) -> Iterator[tuple[float, Message]]:
    yield 0.0, reply


def served(host: Host) -> Answerer:
    """A site as its ClientApp is."""

    def serve(message: Message) -> Message:
        said, parts = answer(host, KINDS[message.metadata.message_type], unpacked(message.content))
        return Message(packed(said, parts), reply_to=message)

    return serve


@dataclass
class MemoryGrid(Grid):
    """`sites` by client; `on_the_way` is what happens to their answers; `seen` all messages, both ways."""

    roster: list[Member]
    sites: dict[int, Answerer]
    on_the_way: OnTheWay = at_once
    seen: list[Message] = field(default_factory=list)
    pushed: dict[str, tuple[float, int, Message]] = field(default_factory=dict)
    pending: dict[str, list[tuple[float, Message]]] = field(default_factory=dict)
    offline: set[int] = field(default_factory=set)
    started: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        TaskIdentity.run_id, TaskIdentity.task_id, TaskIdentity.node_id = 1, 1, 1

    @staticmethod
    def node(client: int) -> int:
        return 9_000 - 7 * client

    def get_nodes(self) -> Iterable[NodeInfo]:
        for client in sorted(self.sites, reverse=True):
            if client not in self.offline:
                yield NodeInfo(
                    node_id=self.node(client),
                    status="online",
                    public_key=public_bytes(self.roster[client].key),
                    last_activated_at=str(self.started.get(client, 0)),
                )
        yield NodeInfo(
            node_id=4, status="online", public_key=public_bytes(KEYS[-1])
        )  # of a key that is not in the roster

    def get_node_ids(self) -> Iterable[int]:
        return [node.node_id for node in self.get_nodes()]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        for message in messages:
            number = f"message {len(self.seen)}"
            message.metadata.__dict__["_message_id"] = number
            self.seen.append(message)
            (client,) = (each for each in self.sites if self.node(each) == message.metadata.dst_node_id)
            self.pushed[number] = time.monotonic(), client, message
            yield number

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        now, found = time.monotonic(), []
        for number in message_ids:
            since, client, message = self.pushed[number]
            if number not in self.pending:  # sites work when somebody looks
                reply = self.sites[client](message)
                self.pending[number] = [(since + later, each) for later, each in self.on_the_way(message, reply)]
                self.seen += [each for _, each in self.pending[number]]
            found += [each for when, each in self.pending[number] if when <= now]
            self.pending[number] = [pair for pair in self.pending[number] if pair[0] > now]
        return found

    def set_run(self, run: Any) -> None: ...

    @property
    def run(self) -> Any: ...

    def create_message(self, content: RecordDict, *args: Any, **kwargs: Any) -> Message:
        raise NotImplementedError

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        raise NotImplementedError
