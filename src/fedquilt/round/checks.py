"""What clients send is checked here and nowhere else, before anything of it is read, whichever engine it comes from.

Two steps, because values are read only once it is known what they are. The form: types, layouts, dtypes, sizes; workers ask
for it too, before they put an update where the parent reads it. Then the values: an update that passes can always be
summed, since every value is below `LARGEST` and the weight is the one that the sum was planned for.

What a client sends may raise anything as soon as it is looked at: that is the client's fault as well, never the run's end.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, ParamSpec

import torch
from torch import Tensor

from fedquilt.algorithm.algorithm import Algorithm
from fedquilt.algorithm.exact import LARGEST
from fedquilt.algorithm.exchange import Upload
from fedquilt.algorithm.state import ServerState
from fedquilt.algorithm.updates import BlockUpdate, ClientUpdate, PartialSum
from fedquilt.base.errors import reason_of
from fedquilt.compute.interrupts import comes_from_outside
from fedquilt.compute.layout import Layout, ModelState, State, Tensors
from fedquilt.round.plan import Plan, weights_by_size

WHOLE, NUMBER = frozenset({int}), frozenset({int, float})
"""Types of what clients count and measure."""

COUNTED = 2**53
"""Steps and examples that a client may claim, at most."""

STORABLE = frozenset(
    {torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8}
    | {torch.uint8, torch.bool}
)
"""Data types of client state: those that a checkpoint can hold."""

TABLES = frozenset({dict, OrderedDict})
"""Types of tables in client state; others may run their own code when they are read."""

DEEPEST, MOST = 16, 2**17
"""How deeply the tables of client state may be nested, and how many entries they may have together."""

Uploads = Mapping[str, Mapping[str, Upload]]
"""The form of the extra uploads, by exchange and name."""

P = ParamSpec("P")


def _fault_if_raised(check: Callable[P, str | None]) -> Callable[P, str | None]:
    """Let whatever a check raises on what a client sent count as what is wrong with it."""

    @wraps(check)
    def safely(*args: P.args, **kwargs: P.kwargs) -> str | None:
        try:
            return check(*args, **kwargs)
        except BaseException as error:
            if comes_from_outside(error):
                raise
            return f"sent what cannot be examined: {reason_of(error)}"

    return safely


def uploads_of(algorithm: Algorithm, layout: Layout, broadcast: State) -> Uploads:
    """Return the form of the extra uploads of a method's clients."""
    tables: dict[str, Tensors] = {name: table for name, table in broadcast.items() if isinstance(table, dict)}  # type: ignore[misc]
    return {
        exchange.name: exchange.uploads(layout, tables.get(exchange.name, {}))
        for exchange in algorithm.exchanges
        if exchange.uploads is not None
    }


@dataclass(eq=False)
class Expected:
    """What the answers of a round must look like; it remembers which slots have answered.

    >>> from fedquilt.algorithm.updates import ClientUpdate
    >>> layout, start = Layout.of(torch.nn.Linear(2, 1)), torch.zeros(3)
    >>> whole = torch.zeros(0, dtype=torch.int64)
    >>> expected = Expected(layout, ModelState(start, torch.zeros(0), whole), {0: 7}, {0: 5.0}, {})
    >>> update = ClientUpdate(7, 0, torch.zeros(3).half(), torch.zeros(0), whole, 5.0, 0.1, 1, 5)
    >>> expected.misfit_of(update)
    'sent an update in torch.float16; it must be in torch.float32'
    """

    layout: Layout
    start: ModelState
    client_of: Mapping[int, int]
    weight_of: Mapping[int, float]
    uploads: Uploads
    answered: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, algorithm: Algorithm, layout: Layout, state: ServerState, planned: Plan) -> Expected:
        """Say what a plan's clients must send."""
        asked = {slot: planned.client_of[slot] for slot in planned.slots}
        by_size = weights_by_size(algorithm, planned.sizes)
        weights = {slot: by_size[planned.size_of(slot)] for slot in asked}
        return cls(layout, state.model, asked, weights, uploads_of(algorithm, layout, state.broadcast))

    @_fault_if_raised
    def misfit_of(self, update: ClientUpdate) -> str | None:
        """Say what of an update is not what was asked for, if anything is: its form first, before a value is read."""
        return (
            self.wrong_slot(update.client, update.slot)
            or wrong_form(update, self.layout, self.uploads)
            or self._wrong_counts(update)
            or _wrong_uploads(update, self.uploads)
        )

    @_fault_if_raised
    def overflow_in(self, update: ClientUpdate) -> str | None:
        """Say which values of the trained model are NaN, infinite or too large, if any are."""
        return _wrong_values(update, self.start)

    def all_usable(self, block: BlockUpdate) -> bool:
        """Say whether every update of a block can be taken in; `misfit_of` and `overflow_in` say why one cannot."""
        values, size = block.values.vector, self.layout.size
        if _wrong_tensor("", values, (len(block), size), torch.float32) is not None or not values.numel():
            return False
        asked = [self.client_of.get(slot) for slot in block.slots] == list(block.clients)
        if not asked or len(set(block.slots)) < len(block) or not self.answered.isdisjoint(block.slots):
            return False
        planned = [self.weight_of[slot] for slot in block.slots]
        counts = (*block.steps, *block.examples)
        if not ({*map(type, counts)} <= WHOLE and {*map(type, (*block.weights, *block.losses))} <= NUMBER):
            return False
        if planned != list(block.weights) or not all(0 <= weight < math.inf for weight in planned):
            return False
        low, high = _extremes(values)
        return low > -LARGEST and high < LARGEST and min(counts) >= 0 and max(counts) <= COUNTED

    def wrong_sum(self, part: PartialSum) -> str | None:
        """Say what makes a sum of updates unusable, if anything does. Its values were checked where it was made."""
        wrong = _wrong_tensor("a sum", part.total, (self.layout.size,), torch.int64)
        if wrong is not None:
            return wrong
        asked = [self.client_of.get(slot) for slot in part.slots] == list(part.clients)
        if not asked or len(set(part.slots)) < len(part) or not self.answered.isdisjoint(part.slots):
            return "is in a sum over slots that are not open in this round"
        if [self.weight_of[slot] for slot in part.slots] != list(part.weights):
            return "is in a sum with other weights than planned"
        counts = (*part.steps, *part.examples)
        typed = {*map(type, counts)} <= WHOLE and {*map(type, part.losses)} <= NUMBER
        return None if typed and min(counts) >= 0 and max(counts) <= COUNTED else "is in a sum with invalid counts"

    def wrong_slot(self, client: int, slot: int) -> str | None:
        """Say whether a client was not asked, or has answered already."""
        if self.client_of.get(slot) != client:
            return f"answered in slot {slot}, which is not its own in this round"
        return f"answered a second time in slot {slot}" if slot in self.answered else None

    def _wrong_counts(self, update: ClientUpdate) -> str | None:
        weight, steps, examples = update.weight, update.steps, update.examples
        more = {"more_batches": update.more_batches, "more_gradients": update.more_gradients}
        counts = {name: (count, WHOLE) for name, count in ({"steps": steps, "examples": examples} | more).items()}
        for name, (value, types) in ({"weight": (weight, NUMBER), "loss": (update.loss, NUMBER)} | counts).items():
            if type(value) not in types:
                return f"sent {name} of the type {type(value).__name__}; it must be a plain number"
        if not math.isfinite(weight):
            return f"sent the weight {weight}"
        if weight < 0:
            return f"sent a negative weight ({weight:g})"
        if weight != self.weight_of[update.slot]:
            return f"sent the weight {weight:g}; the plan says {self.weight_of[update.slot]:g}"
        if not (0 <= steps <= COUNTED and 0 <= examples <= COUNTED):
            return f"claims {steps} steps on {examples} examples"
        if not all(0 <= count <= COUNTED for count in more.values()):
            return f"claims {update.more_batches} further batches of {update.more_gradients} examples"
        return None


@_fault_if_raised
def wrong_form(update: ClientUpdate, layout: Layout, uploads: Uploads) -> str | None:
    """Say what in the form of an update is not as the model's layout and the method's exchanges say; no value is read."""
    return (
        _wrong_tensor("an update", update.delta, (layout.size,), torch.float32)
        or _wrong_tensor("buffers", update.buffers, (layout.buffer_size,), torch.float32)
        or _wrong_tensor("whole-number buffers", update.counters, (layout.counter_size,), torch.int64)
        or _wrong_extra_upload(update.extra_upload, uploads)
        or _wrong_client_state(update.client_state)
    )


def _wrong_tensor(what: str, values: object, shape: tuple[int, ...], dtype: torch.dtype) -> str | None:
    if type(values) is not Tensor:
        return f"sent {what} of the type {type(values).__name__}; it must be a plain torch.Tensor"
    if values.layout != torch.strided or values.is_nested or values.device.type != "cpu":
        kind = "nested" if values.is_nested else values.layout
        return f"sent {what} that is {kind} on the device {values.device}; it must be dense, on the CPU"
    if values.dtype != dtype:
        return f"sent {what} in {values.dtype}; it must be in {dtype}"
    if values.shape != shape:
        return f"sent {what} of the shape {tuple(values.shape)}, but it must be {shape}"
    if values.requires_grad or not values.is_contiguous() or values.is_neg():
        return f"sent {what} that is a view or part of a graph; send a copy (.detach().clone())"
    return None if _has_memory(values) else f"sent {what} whose memory is gone"


def _has_memory(values: Tensor) -> bool:
    """Say whether a tensor's memory reaches as far as its elements: a storage can be made smaller, or freed."""
    if not values.numel():
        return True
    last = sum((size - 1) * stride for size, stride in zip(values.shape, values.stride(), strict=True))
    return (values.storage_offset() + last + 1) * values.itemsize <= values.untyped_storage().nbytes()


def _wrong_extra_upload(extra_upload: object, uploads: Uploads) -> str | None:
    if not extra_upload and not uploads:
        return None
    if not isinstance(extra_upload, dict) or extra_upload.keys() != uploads.keys():
        return f"sent {_names(extra_upload)} as its extra upload; the method's exchanges declare {_names(uploads)}"
    for exchange, forms in uploads.items():
        table = extra_upload[exchange]
        if not isinstance(table, dict) or table.keys() != forms.keys():
            return f"sent {_names(table)} as its extra upload ({exchange}), whose `uploads` declare {_names(forms)}"
        for name, form in forms.items():
            wrong = _wrong_tensor(f"{exchange}'s {name}", table[name], form.shape, form.dtype)
            if wrong is not None:
                return wrong
    return None


def _wrong_client_state(client_state: object) -> str | None:
    """Say what cannot be stored. Tables are walked without recursion, and not for ever: they may hold each other."""
    tables: list[tuple[Any, int]] = [] if client_state is None else [(client_state, 1)]
    seen = 0
    while tables:
        table, depth = tables.pop()
        if type(table) not in TABLES:
            return f"returned client state of the type {type(table).__name__}; it must be a table of tensors"
        seen += len(table)
        if depth > DEEPEST or seen > MOST:
            limits = f"tables may be nested {DEEPEST} deep and have {MOST:,} entries"
            return f"returned client state that holds itself, or is too large: {limits}"
        for name, value in table.items():
            if type(name) is not str:
                return f"returned client state under the name {name!r}; names must be strings"
            if value is None:
                return f"returned client state in which {name} is None"
            if type(value) is not Tensor:
                tables.append((value, depth + 1))
                continue
            wrong = _cannot_be_stored(name, value)
            if wrong is not None:
                return wrong
    return None


def _cannot_be_stored(name: str, value: Tensor) -> str | None:
    about = f"returned client state in which {name} is"
    if value.is_nested:
        return f"{about} a nested tensor; a checkpoint cannot hold that"
    if value.layout != torch.strided or value.device.type != "cpu" or value.dtype not in STORABLE:
        return f"{about} in {value.dtype}, {value.layout}, on {value.device}; a checkpoint cannot hold that"
    if value.is_neg():
        return f"{about} a negative view of a tensor; return a copy (.resolve_neg())"
    return None if _has_memory(value) else f"{about} a tensor whose memory is gone"


def _names(table: object) -> str:
    """Name what is in a table, for a message."""
    if not isinstance(table, Mapping):
        return f"something of the type {type(table).__name__}"
    return ", ".join(str(name) for name in table) or "nothing"


def _wrong_values(update: ClientUpdate, start: ModelState) -> str | None:
    low, high = _extremes(update.delta)
    if math.isnan(low) or math.isnan(high):
        return "sent NaN in its update"
    if math.isinf(low) or math.isinf(high):
        return "sent an infinite value in its update"
    if max(-low, high) >= LARGEST:
        return f"sent a value of {max(-low, high):.3g} in its update; the limit is {LARGEST:.0f}"
    # A constant buffer may well hold an infinity, such as a mask's; one that became so in training may not.
    if len(update.buffers) and bool((~torch.isfinite(update.buffers) & torch.isfinite(start.buffers)).any()):
        return "sent NaN or an infinite value in its buffers"
    return None


def _wrong_uploads(update: ClientUpdate, uploads: Uploads) -> str | None:
    for exchange, forms in uploads.items():
        extra_upload: Tensors = update.extra_upload[exchange]  # type: ignore[assignment]
        for name, form in forms.items():
            low, high = _extremes(extra_upload[name])
            if not (math.isfinite(low) and math.isfinite(high)):
                return f"sent NaN or an infinite value in its extra upload ({exchange}: {name})"
            if low < form.least or high >= form.limit:
                worst = low if low < form.least else high
                limits = f"it must be at least {form.least:.7g} and below {form.limit:.7g}"
                return f"sent a value of {worst:.3g} in its extra upload ({exchange}: {name}); {limits}"
    return None


def _extremes(values: Tensor) -> tuple[float, float]:
    if not values.numel():
        return 0.0, 0.0
    low, high = torch.aminmax(values)
    return float(low), float(high)
