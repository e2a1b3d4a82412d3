"""Tasks and replies come out of their bytes as they went in, and bytes that are none are refused, whatever they are."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save
from torch import nn

from fedquilt.algorithm.updates import BlockUpdate, ClientUpdate, Fault
from fedquilt.compute.layout import Layout, ModelState
from fedquilt.engines.encoding import (
    ProtocolError,
    decode_model,
    decode_reply,
    decode_task,
    encode_model,
    encode_reply,
    encode_task,
    read,
    read_tensors,
)
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


SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.sampled_from([2**63, -1, 0])
)
ANYTHING = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=3), inner))
FIELDS = ("do", "round", "clients", "slots", "alone", "gone", "split", "rows")
WELL_FORMED = json.loads(encode_task(Task("train", 3, [7, 8], [0, 1], [None, None], gone=[(1, 9)]))[0])
CHANGES = st.dictionaries(
    st.sampled_from(FIELDS), ANYTHING | st.sampled_from([*SCRAPS, "train", "rm", [[0, 1]], [0, 1]])
)


def refused(decode, *message):
    """Say whether a message is refused; anything raised but a ProtocolError fails the test."""
    try:
        decode(*message)
    except ProtocolError:
        return True
    return False


@given(ANYTHING)
def test_whatever_is_no_task_is_refused(said):
    assert refused(decode_task, said, b"")


@given(CHANGES, st.sets(st.sampled_from(FIELDS)))
def test_a_task_with_something_else_in_it_is_refused_or_can_be_done(changes, missing):
    said = {name: value for name, value in (WELL_FORMED | changes).items() if name not in missing}
    if refused(decode_task, said, b""):
        return
    task = decode_task(said, b"")
    assert not missing
    assert task.do in {"train", "evaluate clients", "evaluate"}
    assert len(task.clients) == len(task.slots) == len(task.client_states)
    assert all(type(number) is int for number in (task.round, *task.clients, *task.slots, *task.rows))
    for slot in list(task.slots):
        task = task.without(slot)
    assert not task.clients


@pytest.mark.parametrize(
    "change",
    [
        {"do": "rm"},
        {"do": "evaluate"},
        {"slots": 5},
        {"slots": [0, 0]},
        {"slots": [0]},
        {"clients": [7, -1]},
        {"round": "a"},
        {"round": True},
        {"rows": [5, 2]},
        {"gone": [[9, 9]]},
        {"gone": [[0, 1], [0, 2]]},
        {"split": "all"},
    ],
)
def test_a_task_that_nobody_can_mean_is_refused(change):
    assert not refused(decode_task, WELL_FORMED, b"")
    assert refused(decode_task, WELL_FORMED | change, b"")


def test_client_state_of_nobody_is_refused():
    said, tensors = encode_task(Task("train", 1, [7, 8], [0, 1], [None, {"optimiser": {"0": torch.ones(2)}}]))
    assert not refused(decode_task, read(said), tensors)
    assert refused(decode_task, WELL_FORMED | {"clients": [7], "slots": [0], "gone": []}, tensors)


PATHS: st.SearchStrategy[object] = st.lists(SCALARS | st.just({}) | st.lists(st.integers()), max_size=4) | ANYTHING
NAMES = st.sets(st.builds(json.dumps, PATHS) | st.text(max_size=8), max_size=4)
LAYOUT = Layout.of(nn.BatchNorm1d(3))
MODEL = LAYOUT.read(nn.BatchNorm1d(3))


@given(NAMES | st.just({"[" * 50_000, '["model"]'}), st.binary(max_size=200))
def test_tensors_with_any_names_and_any_bytes_are_read_or_refused(names, noise):
    for message in (save({name: torch.ones(2) for name in names}), noise, bytes(reversed(noise))):
        refused(read_tensors, message)
        assert refused(decode_model, message, 1, LAYOUT)
        refused(decode_task, WELL_FORMED, message)


def test_a_model_comes_back_and_one_of_another_run_is_refused():
    sent = decode_model(encode_model(MODEL, {"scaffold": {"variate": torch.ones(6)}}), 4, LAYOUT)
    assert sent.round == 4
    assert same(sent.model, MODEL)
    assert same(sent.broadcast, {"scaffold": {"variate": torch.ones(6)}})
    larger = Layout.of(nn.BatchNorm1d(4)).read(nn.BatchNorm1d(4))
    double = ModelState(MODEL.vector.double(), MODEL.buffers, MODEL.counters)
    for model in (larger, double, ModelState(MODEL.vector[:, None], MODEL.buffers, MODEL.counters)):
        assert refused(decode_model, encode_model(model, {}), 4, LAYOUT)
