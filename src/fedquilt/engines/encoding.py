"""Tasks and replies as bytes: JSON, and tensors in safetensors' format. Reading them runs no code.

Two messages each; the second, of tensors, may be empty. Both are checked in full when they are read, and anything else is a
ProtocolError. Where both sides share memory, the models of a reply go there and not into the message (`rows`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isfinite
from typing import Any, get_args

from safetensors import SafetensorError
from torch import Tensor, float32, int64

from fedquilt.algorithm.state import ServerState
from fedquilt.algorithm.updates import BlockUpdate, ClientUpdate, Cohort, Fault, Kind, PartialSum
from fedquilt.compute.layout import Layout, ModelState, State
from fedquilt.compute.tensors import from_bytes, to_bytes
from fedquilt.engines.shared import rows_of, write
from fedquilt.engines.tasks import Do, Reply, Sums, Task, TaskResult
from fedquilt.round.evaluation import Counted, SplitName

WHOLE, FLOAT, NUMBER = frozenset({int}), frozenset({float}), frozenset({int, float})
BLOCK = {"clients": WHOLE, "slots": WHOLE, "weights": FLOAT, "losses": FLOAT, "steps": WHOLE, "examples": WHOLE}
"""What is said of a block besides its values."""

SINGLE = {"client": WHOLE, "slot": WHOLE, "weight": FLOAT, "loss": FLOAT, "steps": WHOLE, "examples": WHOLE}
SINGLE |= {"more_batches": WHOLE, "more_gradients": WHOLE}
"""What is said of one client's update besides its values."""

FAULT = {"client": WHOLE, "slot": WHOLE, "fault": frozenset({str}), "kind": frozenset({str})}

LIMIT = 2**63
"""Whole numbers in a task are below this: they become keys of random draws, and positions of examples."""

_KINDS, _DO, _SPLITS = (frozenset(get_args(names)) for names in (Kind, Do, SplitName))


class ProtocolError(Exception):
    """What was received is neither a task, a model nor a reply of this run."""


def encode_task(task: Task, **more: Any) -> tuple[bytes, bytes]:
    """Write a task, and what else a transport has to say with it: JSON, and the clients' state.

    >>> said, client_states = encode_task(Task("evaluate", rows=(0, 10)), model=3)
    >>> read(said)["model"], client_states
    (3, b'')
    """
    about: dict[str, Any] = {"do": task.do, "round": task.round, "clients": [*task.clients], "slots": [*task.slots]}
    about |= {"alone": task.alone, "gone": [*task.gone], "split": task.split, "rows": task.rows, "block": task.block}
    if task.sums is not None:
        about["sums"] = [*task.sums.cohort], [task.sums.weights[slot] for slot in task.slots]
    client_states: State = {str(index): each for index, each in enumerate(task.client_states) if each is not None}
    about |= {"client_states": bool(client_states)} | more
    return json.dumps(about).encode(), to_bytes(client_states) if client_states else b""


def decode_task(said: Any, tensors: bytes) -> Task:
    """Read a task; `said` is its JSON, read already.

    >>> said, client_states = encode_task(Task("train", 1, clients=[7], slots=[0], client_states=[None]))
    >>> decode_task(read(said), client_states).clients
    [7]
    >>> decode_task({"do": "anything"}, b"")
    Traceback (most recent call last):
    fedquilt.engines.encoding.ProtocolError: its message has another form than a task's
    """
    tables: Mapping[str, Any] = read_tensors(tensors)
    try:
        clients, slots, gone, rows = said["clients"], said["slots"], said["gone"], said["rows"]
        _require(said["do"] in _DO and said["split"] in _SPLITS and type(said["alone"]) is bool)
        _require(all(type(each) is list for each in (clients, slots, gone, rows)) and len(rows) == 2)
        _require(len(clients) == len(slots) == len({*slots}) and not (clients and said["do"] == "evaluate"))
        _require(all(type(pair) is list and len(pair) == 2 for pair in gone))
        numbers = [said["round"], *clients, *slots, *rows, *(number for pair in gone for number in pair)]
        _require(all(type(number) is int and 0 <= number < LIMIT for number in numbers) and rows[0] <= rows[1])
        places = {index for index, _ in gone}
        _require(len(places) == len(gone) and all(index < len(clients) + len(gone) for index in places))
        _require(tables.keys() <= {str(index) for index in range(len(clients))})
        _require(all(isinstance(table, dict) for table in tables.values()))
        _require(type(said["block"]) is int and 0 < said["block"] < LIMIT)
        sums = _sums(said["sums"], slots) if "sums" in said else None
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ProtocolError("its message has another form than a task's") from None
    states = [tables.get(str(index)) for index in range(len(clients))]
    left_out = [(index, client) for index, client in gone]
    how = {"split": said["split"], "rows": (rows[0], rows[1]), "block": said["block"], "sums": sums}
    return Task(said["do"], said["round"], clients, slots, states, said["alone"], left_out, **how)


def encode_model(model: ModelState, broadcast: State) -> bytes:
    """Write a model, and what the server broadcasts besides it."""
    return to_bytes({"model": _parts(model), "broadcast": broadcast})


def decode_model(message: bytes, round_: int, layout: Layout) -> ServerState:
    """Read a model and what came with it, as the state that clients work on; the server's optimiser stays at home.

    It must be a model of this layout: one of another size is refused before anything is computed with it.

    >>> import torch
    >>> layout = Layout.of(torch.nn.Linear(2, 1))
    >>> model = layout.read(torch.nn.Linear(2, 1))
    >>> decode_model(encode_model(model, {"fed_ir": {"target": torch.ones(2)}}), 4, layout).broadcast
    {'fed_ir': {'target': tensor([1., 1.])}}
    >>> decode_model(b"", 4, layout)
    Traceback (most recent call last):
    fedquilt.engines.encoding.ProtocolError: its message holds no model of this run
    """
    sent: Mapping[str, Any] = read_tensors(message)
    try:
        broadcast = sent.get("broadcast", {})
        _require(sent.keys() <= {"model", "broadcast"} and isinstance(broadcast, dict))
        model = _values(sent["model"])
        forms = [(part.dtype, tuple(part.shape)) for part in (model.vector, model.buffers, model.counters)]
        dtypes, sizes = (float32, float32, int64), (layout.size, layout.buffer_size, layout.counter_size)
        _require(forms == [(dtype, (size,)) for dtype, size in zip(dtypes, sizes, strict=True)])
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ProtocolError("its message holds no model of this run") from None
    return ServerState(round_, model, {}, broadcast)


def encode_reply(reply: Reply, rows: ModelState | None = None) -> tuple[bytes, bytes]:
    """Write a reply: JSON, and tensors. With `rows`, the clients' models are written there, one row per client.

    >>> said, tensors = encode_reply(Reply([Counted(3.5, 4, 10)]))
    >>> decode_reply(Task("evaluate"), read(said), tensors)
    Reply(results=[Counted(loss=3.5, right=4, predictions=10, sums=[])], error=None)
    """
    answers: list[Any] = []
    tables: dict[str, Any] = {}
    row = 0
    for index, result in enumerate(reply.results):
        if isinstance(result, Counted):
            answers.append(result)
            continue
        if isinstance(result, Fault):
            about = {"client": result.client, "slot": result.slot, "fault": result.reason, "kind": result.kind}
            answers.append(about)
            continue
        if isinstance(result, PartialSum):
            answers.append({name: list(getattr(result, name)) for name in BLOCK})
            tables[str(index)] = {"sum": result.total}
            continue
        table: dict[str, Any] = {}
        if isinstance(result, BlockUpdate):
            answers.append({name: list(getattr(result, name)) for name in BLOCK})
            values, count = result.values, len(result)
        else:
            answers.append({name: getattr(result, name) for name in SINGLE})
            values, count = ModelState(result.delta, result.buffers, result.counters), 1
            besides = {"client_state": result.client_state, "extra_upload": result.extra_upload}
            table |= {name: each for name, each in besides.items() if each}
        if rows is None:
            table["values"] = _parts(values)
        else:
            write(rows_of(rows, row, count), values)
            row += count
        if table:
            tables[str(index)] = table
    said = {"answers": answers, "tensors": bool(tables)} | ({} if reply.error is None else {"error": reply.error})
    return json.dumps(said).encode(), to_bytes(tables) if tables else b""


def decode_reply(task: Task, said: Any, tensors: bytes, rows: ModelState | None = None) -> Reply:
    """Read the reply to a task; `said` is its JSON, read already. With `rows`, the clients' models are views of those.

    Which clients it is for is not looked at: see `tasks.answers`.

    >>> decode_reply(Task("train"), {"answers": ["all is well"]}, b"")
    Traceback (most recent call last):
    fedquilt.engines.encoding.ProtocolError: the reply does not have the expected fields
    """
    tables: Mapping[str, Any] = read_tensors(tensors)
    try:
        error = said.get("error")
        _require(error is None or isinstance(error, str))
        indices = {str(index) for index in range(len(said["answers"]))}
        _require(tables.keys() <= indices and all(isinstance(table, dict) for table in tables.values()))
        results: list[TaskResult] = []
        row = 0
        for index, about in enumerate(said["answers"]):
            if task.do != "train" or "fault" in about:
                results.append(_fault(about) if isinstance(about, dict) else _counted(about))
                continue
            table = tables.get(str(index), {})
            if "sum" in table:
                _require(task.sums is not None and table.keys() == {"sum"})
                results.append(_partial_sum(about, table["sum"]))
                continue
            _require(table.keys() <= {"client_state", "extra_upload", "values"})
            if "clients" in about:
                count = len(about["clients"])
                _require(row + count <= len(task.clients))
                results.append(_block(about, _several(table["values"]) if rows is None else rows_of(rows, row, count)))
            else:
                count = 1
                _require(row + count <= len(task.clients))
                results.append(_update(about, table, _values(table["values"]) if rows is None else _row_of(rows, row)))
            row += count
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ProtocolError("the reply does not have the expected fields") from None
    return Reply(results, error)


def read(message: bytes) -> Any:
    """Read JSON."""
    try:
        return json.loads(message)
    except (ValueError, RecursionError):
        raise ProtocolError("the message is not JSON") from None


def read_tensors(message: bytes) -> State:
    """Read tensors, or nothing."""
    if not message:
        return {}
    try:
        return from_bytes(message)
    except (SafetensorError, ValueError, TypeError, AttributeError, LookupError, RuntimeError):
        raise ProtocolError("the message holds no tensors") from None


def _fault(about: dict[str, Any]) -> Fault:
    _require(about.keys() == FAULT.keys() and about["kind"] in _KINDS)
    _require(all(type(about[name]) in types for name, types in FAULT.items()))
    return Fault(about["client"], about["slot"], about["fault"], kind=about["kind"])


def _counted(counted: Any) -> Counted:
    loss, right, predictions, sums = counted
    _require(type(loss) in NUMBER and (right is None or type(right) is int) and type(predictions) is int)
    _require(all(type(each) in NUMBER for each in sums))
    return Counted(loss, right, predictions, sums)


def _block(about: dict[str, Any], values: ModelState) -> BlockUpdate:
    _columns(about)
    _require(len(about["clients"]) == len(values.vector))
    return BlockUpdate(values=values, **about)


def _partial_sum(about: dict[str, Any], total: Any) -> PartialSum:
    _columns(about)
    _require(isinstance(total, Tensor) and total.dtype == int64 and total.dim() == 1 and bool(about["clients"]))
    return PartialSum(total=total, **about)


def _columns(about: dict[str, Any]) -> None:
    """Check what is said of several clients, in columns."""
    _require(about.keys() == BLOCK.keys())
    _require(all({*map(type, about[name])} <= types for name, types in BLOCK.items()))
    _require(len({len(column) for column in about.values()}) == 1)


def _sums(said: Any, slots: list[int]) -> Sums:
    (parameters, weight, clients, population), weights = said
    _require(all(type(number) is int and 0 <= number < LIMIT for number in (parameters, clients, population)))
    _require(all(type(each) in NUMBER and isfinite(each) for each in (weight, *weights)))
    return Sums(Cohort(parameters, weight, clients, population), dict(zip(slots, weights, strict=True)))


def _update(about: dict[str, Any], table: dict[str, Any], values: ModelState) -> ClientUpdate:
    _require(about.keys() == SINGLE.keys())
    _require(all(type(about[name]) in types for name, types in SINGLE.items()))
    _require(all(isinstance(table.get(name, {}), dict) for name in ("client_state", "extra_upload")))
    besides = {"client_state": table.get("client_state"), "extra_upload": table.get("extra_upload", {})}
    return ClientUpdate(delta=values.vector, buffers=values.buffers, counters=values.counters, **besides, **about)


def _row_of(models: ModelState, row: int) -> ModelState:
    return ModelState(models.vector[row], models.buffers[row], models.counters[row])


def _parts(model: ModelState) -> State:
    return {"vector": model.vector, "buffers": model.buffers, "counters": model.counters}


def _values(parts: dict[str, Any]) -> ModelState:
    _require(parts.keys() == {"vector", "buffers", "counters"})
    _require(all(isinstance(part, Tensor) for part in parts.values()))
    return ModelState(parts["vector"], parts["buffers"], parts["counters"])


def _several(parts: dict[str, Any]) -> ModelState:
    """Return the models of a block, each part with as many rows."""
    values = _values(parts)
    _require(all(part.dim() == 2 and len(part) == len(values.vector) for part in parts.values()))
    return values


def _require(holds: bool) -> None:
    if not holds:
        raise ValueError
