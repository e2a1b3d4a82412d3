"""Whatever a site sends: the model is that of a run without the site in that round, it is named, and the run goes on."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

pytest.importorskip("flwr")

from deployed import BASE, Deployed
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, RecordDict
from memory_grid import MemoryGrid

import fedquilt
from fedquilt.base.errors import FedquiltError
from fedquilt.compute.tensors import from_bytes, to_bytes
from fedquilt.data.data import Data
from fedquilt.engines.flower.wire import NAME, packed, unpacked
from fedquilt.engines.flower.wire import from_bytes as sent_of
from fedquilt.engines.flower.wire import to_bytes as as_message
from fedquilt.experiment.fingerprint import digest
from fedquilt.partition.partition import Partition

METHOD = fedquilt.scaffold(BASE)
HOSTILE, ROUND = 1, 2
Change = Callable[[dict[str, Any], dict[str, Any]], None]
"""Changes what is said of the update, and its tensors."""


def raw(content: bytes) -> RecordDict:
    return RecordDict({NAME: ArrayRecord({NAME: Array("uint8", (len(content),), "safetensors", content)})})


def changed(change: Change) -> Callable[[Message, Message, Message | None], Iterable[tuple[float, Message]]]:
    """A site that sends what an honest one would, but for something."""

    def attack(message: Message, reply: Message, before: Message | None) -> Iterable[tuple[float, Message]]:
        sent = unpacked(reply.content)
        tensors: dict[str, Any] = dict(from_bytes(sent.parts["tensors"]))
        change(sent.said["reply"]["answers"][0], tensors["0"])
        yield 0.0, Message(packed(sent.said, {"tensors": to_bytes(tensors)}), reply_to=message)

    return attack


def sends(content: Callable[[bytes], RecordDict]) -> Any:
    """A site that sends other bytes; it is given those of an honest reply."""

    def attack(message: Message, reply: Message, before: Message | None) -> Iterable[tuple[float, Message]]:
        (record,) = reply.content.array_records.values()
        yield 0.0, Message(content(next(iter(record.values())).data), reply_to=message)

    return attack


def update(**values: Any) -> Any:
    return changed(lambda said, tensors: said.update(values))


def values(name: str, make: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    def change(said: dict[str, Any], tensors: dict[str, Any]) -> None:
        tensors["values"][name] = make(tensors["values"][name])

    return changed(change)


def filled(value: float) -> Callable[[torch.Tensor], torch.Tensor]:
    def one(vector: torch.Tensor) -> torch.Tensor:
        vector = vector.clone()
        vector[3] = value
        return vector

    return one


def renamed(said: dict[str, Any], tensors: dict[str, Any]) -> None:
    tensors["values"]["weights"] = tensors["values"].pop("vector")


def extra(said: dict[str, Any], tensors: dict[str, Any]) -> None:
    tensors["more"] = {"vector": torch.zeros(5)}


def missing(said: dict[str, Any], tensors: dict[str, Any]) -> None:
    del tensors["values"]["vector"]


def another_exchange(said: dict[str, Any], tensors: dict[str, Any]) -> None:
    tensors["extra_upload"]["fed_ir"] = {"histogram": torch.zeros(3)}


def no_upload(said: dict[str, Any], tensors: dict[str, Any]) -> None:
    del tensors["extra_upload"]


def lying_header(content: bytes, **about: Any) -> RecordDict:
    """The header of the tensors says something else of the update than is there."""
    sent = sent_of(content)
    tensors = sent.parts["tensors"]
    size = int.from_bytes(tensors[:8], "little")
    header = json.loads(tensors[8 : 8 + size])
    name = next(name for name in header if "vector" in name)
    header[name] |= about
    written = json.dumps(header).encode()
    return raw(as_message(sent.said, {"tensors": len(written).to_bytes(8, "little") + written + tensors[8 + size :]}))


def replay(message: Message, reply: Message, before: Message | None) -> Iterable[tuple[float, Message]]:
    assert before is not None
    yield 0.0, Message(before.content, reply_to=message)


def twice(message: Message, reply: Message, before: Message | None) -> Iterable[tuple[float, Message]]:
    yield 0.0, reply
    yield 0.0, Message(reply.content, reply_to=message)


def silence(message: Message, reply: Message, before: Message | None) -> Iterable[tuple[float, Message]]:
    return ()


def raises(reason: str) -> Any:
    def attack(message: Message, reply: Message, before: Message | None) -> Iterable[tuple[float, Message]]:
        yield 0.0, Message(Error(code=2, reason=reason), reply_to=message)

    return attack


def of_ours(reason: Any) -> Any:
    """The site says by our own protocol that it failed, with a text of its own."""

    def attack(message: Message, reply: Message, before: Message | None) -> Iterable[tuple[float, Message]]:
        yield (
            0.0,
            Message(packed({"token": unpacked(message.content).said["token"], "failed": reason}, {}), reply_to=message),
        )

    return attack


HUGE = (2**63 - 1).to_bytes(8, "little")
ATTACKS: dict[str, tuple[Any, str]] = {
    "NaN": (values("vector", filled(math.nan)), "NaN"),
    "Inf": (values("vector", filled(math.inf)), "inf"),
    "huge values": (values("vector", filled(1e30)), "1e"),
    "wrong shape": (values("vector", lambda each: each[:-1].clone()), "of shape"),
    "another shape": (values("vector", lambda each: each.reshape(-1, 3).clone()), "of shape"),
    "wrong dtype": (values("vector", lambda each: each.double()), "F64"),
    "wrong name": (changed(renamed), "not asked for"),
    "extra array": (changed(extra), "not asked for"),
    "extra upload of another method": (changed(another_exchange), "not asked for"),
    "missing array": (changed(missing), "expected fields"),
    "missing upload": (changed(no_upload), "scaffold"),
    "garbage": (sends(lambda content: raw(np.random.default_rng(1).bytes(4000))), "header"),
    "no bytes": (sends(lambda content: raw(b"")), "header"),
    "half of it": (sends(lambda content: raw(content[: len(content) // 2])), "sizes"),
    "a header longer than the message": (sends(lambda content: raw(HUGE + content[8:])), "header"),
    "a header that lies about sizes": (sends(lambda content: lying_header(content, shape=[2**40])), "header"),
    "a header that lies about offsets": (
        sends(lambda content: lying_header(content, data_offsets=[0, 2**50], shape=[2**48])),
        "sizes",
    ),
    "oversized": (sends(lambda content: raw(content + bytes(2**22))), "bytes; at most"),
    "no array": (sends(lambda content: RecordDict({"note": ConfigRecord({"a": 1})})), "one array of bytes"),
    "two arrays": (
        sends(lambda content: RecordDict({"a": raw(content)[NAME], "b": raw(content)[NAME]})),
        "one array of bytes",
    ),
    "negative weight": (update(weight=-1.0), "negative weight"),
    "NaN as the weight": (update(weight=math.nan), "weight nan"),
    "enormous weight": (update(weight=1e300), "weight 1e+300"),
    "a weight other than the agreed size": (update(weight=91.0), "the plan says 1"),
    "a weight in words": (update(weight="many"), "expected fields"),
    "replay of the last round's reply": (replay, "reply to another message"),
    "reply for another client": (update(client=2), "not asked for"),
    "reply in another slot": (update(slot=77), "not asked for"),
    "reply twice": (twice, "answered 2 times"),
    "terminal escapes": (raises("\x1b]0;owned\x07\x1b[2J\n/home/bern/patients.csv"), r"\x1b]0;owned"),
    "terminal escapes by our protocol": (of_ours("\x1b[31m" * 1000), r"\x1b[31m"),
    "a reason that is no text": (of_ours({"a": ["b"] * 100}), "a"),
    "silence": (silence, "longer than"),
}


def attacking(attack: Any, kept: dict[str, Message]) -> Any:
    def on_the_way(message: Message, reply: Message) -> Iterable[tuple[float, Message]]:
        hostile = message.metadata.dst_node_id == MemoryGrid.node(HOSTILE) and message.metadata.message_type == "train"
        before = kept.get("before")
        if hostile:
            kept["before"] = reply
        return attack(message, reply, before) if hostile and message.metadata.group_id == str(ROUND) else [(0.0, reply)]

    return on_the_way


@pytest.fixture(scope="module")
def without() -> dict[str, str]:
    return {}


@pytest.mark.parametrize("name", ATTACKS)
def test_a_hostile_site_is_left_out_and_named(
    name: str, blobs: Data, four: Partition, smooth: nn.Module, without: dict[str, str]
) -> None:
    attack, words = ATTACKS[name]
    found = []
    for each in [attack] if "digest" in without else [raises("left out"), attack]:
        deployed = Deployed(smooth, blobs, four, METHOD, seconds=0.5 if name == "silence" else 20.0)
        state, records = deployed.run(3, attacking(each, {}))
        found.append(digest(deployed.server, state))
        (fault,) = records[ROUND - 1]["dropped"]
        assert fault["client"] == HOSTILE
        assert fault["name"] == "site-1"
        assert fault["reason"].isprintable()
        assert len(fault["reason"]) <= 2_100
        assert not records[0]["dropped"]
        assert not records[2]["dropped"]
        assert HOSTILE not in records[ROUND - 1]["clients"]
        assert all(record["applied"] for record in records)
    without.setdefault("digest", found[0])
    assert found[-1] == without["digest"]
    assert words in fault["reason"]


def test_a_reply_to_the_message_of_another_site_is_passed_over(blobs: Data, four: Partition, smooth: nn.Module) -> None:
    """Flower refuses one by itself; were it to come through, the site that was asked would still be heard."""
    method = fedquilt.fed_avg(fraction=1.0, batch=8)
    undisturbed = Deployed(smooth, blobs, four, method)
    expected = digest(undisturbed.server, undisturbed.run(2)[0])
    deployed = Deployed(smooth, blobs, four, method)

    def on_the_way(message: Message, reply: Message) -> Iterable[tuple[float, Message]]:
        if message.metadata.dst_node_id == MemoryGrid.node(2):
            forged = Message(raw(b"garbage"), reply_to=message)
            forged.metadata.__dict__["_src_node_id"] = MemoryGrid.node(HOSTILE)
            yield 0.0, forged
        yield 0.02, reply

    with pytest.warns(RuntimeWarning, match="site site-1 answered a message to site site-2; that is passed over"):
        state, records = deployed.run(2, on_the_way)
    assert digest(deployed.server, state) == expected
    assert not any(record["dropped"] for record in records)


TESTS: dict[str, Any] = {
    "more predictions than examples": [1.0, 5, 10**6, [1.0]],
    "more right than predictions": [1.0, 4, 3, [1.0]],
    "less than none right": [1.0, -4, 3, [1.0]],
    "NaN as the loss": [math.nan, 1, 2, [1.0]],
    "a loss that is no float": [10**400, 1, 2, [1.0]],
    "a metric that was not asked for": [1.0, 1, 2, [1.0, 1.0]],
    "counts in words": ["a", "b", "c", "d"],
    "an update": {"client": HOSTILE, "slot": HOSTILE, "weight": 1.0},
    "the fault of another client": {"client": 2, "slot": 2, "fault": "late", "kind": "too slow"},
}
"""What a site sends as the result of a test on its own examples."""


@pytest.mark.parametrize("name", TESTS)
def test_a_test_that_cannot_be_is_left_out_and_its_site_named(
    name: str, blobs: Data, four: Partition, smooth: nn.Module, without: dict[str, str]
) -> None:
    method = fedquilt.own_test(fedquilt.fed_avg(fraction=1.0, batch=8), holdout=0.2)
    if "tests" not in without:
        undisturbed = Deployed(smooth, blobs, four, method)
        without["tests"] = digest(undisturbed.server, undisturbed.run(2)[0])
    deployed = Deployed(smooth, blobs, four, method)

    def on_the_way(message: Message, reply: Message) -> Iterable[tuple[float, Message]]:
        if message.metadata.message_type == "evaluate" and message.metadata.dst_node_id == MemoryGrid.node(HOSTILE):
            sent = unpacked(reply.content)
            sent.said["reply"]["answers"] = [TESTS[name]]
            return [(0.0, Message(packed(sent.said, {}), reply_to=message))]
        return [(0.0, reply)]

    state, records = deployed.run(2, on_the_way)
    assert digest(deployed.server, state) == without["tests"]
    for record in records:
        (fault,) = record["per_client_dropped"]
        assert (fault["client"], fault["name"]) == (HOSTILE, "site-1")
        assert 0 <= record["per_client_accuracy"] <= 1


FIRST: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "NaN": (lambda told: told["mean"].fill_(math.nan), "the first upload of site-0 has values that are not finite"),
    "another shape": (lambda told: told.update(mean=torch.zeros(2)), "the first upload of site-0 has another form"),
    "another name": (lambda told: told.update(more=torch.zeros(2)), "the first upload of site-0 has another form"),
    "nothing": (lambda told: told.clear(), "lacks the first upload of site-0"),
}


@pytest.mark.parametrize("name", FIRST)
def test_a_first_upload_that_cannot_be_used_names_its_site(
    name: str, blobs: Data, four: Partition, smooth: nn.Module
) -> None:
    """The run does not begin: of its first broadcast, every site is a part."""
    change, words = FIRST[name]
    deployed = Deployed(smooth, blobs, four, fedquilt.fed_avg_r(BASE))

    def on_the_way(message: Message, reply: Message) -> Iterable[tuple[float, Message]]:
        sent = unpacked(reply.content)
        if message.metadata.dst_node_id == MemoryGrid.node(0):
            told: Any = from_bytes(sent.parts["uploads"])
            change(told["0"]["fed_avg_r"])
            reply = Message(packed(sent.said, {"uploads": to_bytes(told)}), reply_to=message)
        yield 0.0, reply

    with pytest.raises(FedquiltError, match=words):
        deployed.run(1, on_the_way)
