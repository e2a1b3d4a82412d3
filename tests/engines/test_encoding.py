"""Tasks and replies come out of their bytes as they went in, and bytes that are none are refused, whatever they are."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
import torch

from fedquilt.algorithm.updates import BlockUpdate, ClientUpdate, Fault
from fedquilt.compute.layout import ModelState
from fedquilt.engines.encoding import ProtocolError, decode_reply, decode_task, encode_reply, encode_task, read
from fedquilt.engines.tasks import Reply, Task, answers
from fedquilt.round.evaluation import Counted


def models(*shape: int) -> ModelState:
    size = torch.Size(shape)
    return ModelState(torch.randn(*size, 5), torch.randn(*size, 2), torch.arange(3).expand(*size, 3).clone())


def update(client: int, slot: int, **besides) -> ClientUpdate:
    values = models()
    parts = (values.vector, values.buffers, values.counters)
    return ClientUpdate(client, slot, *parts, weight=7.0, loss=0.5, steps=3, examples=9, **besides)


TASK = Task("train", 4, [7, 8, 9, 5, 6], [0, 1, 2, 3, 4], [None] * 5)


def reply() -> Reply:
    said = {
        "extra_upload": {"scaffold": {"variate": torch.ones(5)}},
        "client_state": {"optimiser": {"0": {"w": torch.ones(2)}}},
    }
    block = BlockUpdate([9, 5], [2, 3], models(2), [1.0, 2.0], [0.5, float("nan")], [3, 4], [5, 6])
    return Reply([update(7, 0), Fault(8, 1, "late", kind="too slow"), block, update(6, 4, **said)])


def same(a: object, b: object) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and torch.equal(a, b)
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, ModelState | ClientUpdate | BlockUpdate):
        return type(a) is type(b) and same(vars(a), vars(b))
    return repr(a) == repr(b)  # NaN is NaN here


@pytest.mark.parametrize("shared", [False, True])
def test_a_reply_comes_back(shared):
    sent, rows = reply(), models(5) if shared else None
    said, tensors = encode_reply(sent, rows)
    got = decode_reply(TASK, read(said), tensors, rows)
    assert answers(TASK, got)
    assert all(same(a, b) for a, b in zip(sent.results, got.results, strict=True))
    if rows is not None:
        assert got.results[0].delta.data_ptr() == rows.vector.data_ptr(), "by reference"
        assert len(tensors) < 1000


def test_a_task_comes_back():
    task = Task("evaluate clients", 4, [7, 8], [7, 8], [None, {"optimiser": {"0": torch.ones(2)}}], alone=True)
    said, tensors = encode_task(task, model=3)
    got = decode_task(read(said), tensors)
    assert same(vars(task) | {"gone": []}, vars(got))
    piece = Task("evaluate", split="train", rows=(1000, 2000))
    assert same(
        vars(decode_task(read(encode_task(piece)[0]), b"")),
        vars(piece) | {"clients": [], "slots": [], "client_states": [], "gone": []},
    )


def test_an_evaluation_comes_back():
    task = Task("evaluate clients", 1, [3, 4], [3, 4], [None, None], alone=True)
    sent = Reply([Counted(2.5, None, 10, (1.0, 2.0)), Fault(4, 4, "broken")])
    got = decode_reply(task, read(encode_reply(sent)[0]), b"")
    assert got.results == [Counted(2.5, None, 10, [1.0, 2.0]), Fault(4, 4, "broken")]
    failed = decode_reply(task, read(encode_reply(Reply([], "ValueError: 7"))[0]), b"")
    assert failed.error == "ValueError: 7"


SCRAPS: list[Any] = [None, True, -1, 2**70, 1.5, float("nan"), "", "fault", [], [1], {}, {"fault": 1}, {"clients": [1]}]


def changed(value: object, rng: random.Random) -> object:
    """Put something else somewhere into a value that was read from JSON."""
    if isinstance(value, dict | list) and value and rng.random() < 0.8:
        copy = dict(value) if isinstance(value, dict) else list(value)
        place = rng.choice(list(copy) if isinstance(copy, dict) else range(len(copy)))
        if rng.random() < 0.2:
            del copy[place]
        else:
            copy[place] = changed(copy[place], rng)
        return copy
    return rng.choice(SCRAPS)


@pytest.mark.parametrize("shared", [False, True])
def test_what_is_no_reply_is_refused_and_nothing_else_happens(shared):
    """Whatever is said: a ProtocolError, or a reply whose blocks can be taken apart."""
    rng, rows, refused = random.Random(0), models(5) if shared else None, 0
    said, tensors = encode_reply(reply(), rows)
    for _ in range(2000):
        nonsense = changed(json.loads(said), rng)
        try:
            got = decode_reply(TASK, nonsense, tensors, rows)
        except ProtocolError:
            refused += 1
            continue
        answers(TASK, got)
        assert all(len(list(result)) == len(result) for result in got.results if isinstance(result, BlockUpdate))
    assert refused > 1000


def test_tensors_that_are_none_are_refused():
    said, tensors = encode_reply(reply())
    for broken in (b"{}", tensors[:-1], tensors[:50], b"\xff" * 100, tensors[8:]):
        with pytest.raises(ProtocolError):
            decode_reply(TASK, read(said), broken)
    with pytest.raises(ProtocolError):
        decode_reply(TASK, read(said), b"")
    with pytest.raises(ProtocolError, match="not JSON"):
        read(b"[" * 100_000)
