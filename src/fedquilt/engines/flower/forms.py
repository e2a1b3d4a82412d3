"""What the reply to a task may hold, compared with the header of its bytes before any tensor is made of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch

from fedquilt.compute.layout import Layout
from fedquilt.engines.encoding import ProtocolError
from fedquilt.engines.flower.client_state import KEPT, SIZE
from fedquilt.engines.flower.wire import TensorHeader, header_of
from fedquilt.engines.tasks import Task
from fedquilt.round.checks import Uploads

_NAMES = {torch.float32: "F32", torch.float64: "F64", torch.int64: "I64", torch.int32: "I32"}
_ROOM = 2**20
"""Bytes for what is said in JSON and in headers."""


def largest_reply(task: Task, layout: Layout, uploads: Uploads) -> int:
    """Return how many bytes the reply to a task has at most."""
    if task.do != "train":
        return _ROOM
    sent = sum(_bytes(form) for form in _uploaded(uploads).values())
    return _ROOM + len(task.clients) * (layout.nbytes + sent)


def require_form(tensors: bytes, task: Task, layout: Layout, uploads: Uploads) -> None:
    """Refuse tensors that are not those of an update: their names, types and shapes are known beforehand."""
    if not tensors:
        return
    _, forms, _ = header_of(tensors)
    expected: dict[tuple[str, ...], tuple[str, tuple[int, ...]]] = {
        ("values", "vector"): ("F32", (layout.size,)),
        ("values", "buffers"): ("F32", (layout.buffer_size,)),
        ("values", "counters"): ("I64", (layout.counter_size,)),
        ("client_state", KEPT): ("U8", (SIZE,)),
    }
    expected |= _uploaded(uploads)
    for name, form in forms.items():
        index, *path = _path(name)
        if task.do != "train" or not (index.isdecimal() and int(index) < len(task.clients)):
            raise ProtocolError(f"sent a tensor that was not asked for: {name}")
        asked = expected.get(tuple(path))
        if asked is None:
            raise ProtocolError(f"sent a tensor that was not asked for: {name}")
        if (form.dtype, form.shape) != asked:
            raise ProtocolError(f"sent {name} as {_shown(form)}; it must be {asked[0]} of shape {list(asked[1])}")


def _uploaded(uploads: Uploads) -> dict[tuple[str, ...], tuple[str, tuple[int, ...]]]:
    return {
        ("extra_upload", exchange, name): (_NAMES[form.dtype], form.shape)
        for exchange, forms in uploads.items()
        for name, form in forms.items()
    }


def _bytes(form: tuple[str, tuple[int, ...]]) -> int:
    count = 8 if form[0].endswith("64") else 4
    for length in form[1]:
        count *= length
    return count


def _path(name: str) -> list[str]:
    """Return where a tensor belongs; its name is a number and a path, as JSON (`compute/tensors.py`)."""
    try:
        number, *path = json.loads(name)
        if type(number) is not int or len(path) < 2 or len(path) > 16:
            raise ValueError
        return ["{}" if isinstance(part, Mapping) else _text(part) for part in path]
    except (ValueError, TypeError, RecursionError):
        raise ProtocolError("sent a tensor whose name is not a path") from None


def _text(part: Any) -> str:
    if not isinstance(part, str):
        raise TypeError
    return part


def _shown(form: TensorHeader) -> str:
    return f"{form.dtype} of shape {list(form.shape)}"
