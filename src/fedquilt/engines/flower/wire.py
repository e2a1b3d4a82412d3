"""What Flower carries for us: one array of bytes a message, in safetensors' format with JSON in its metadata.

Flower makes an HTTP request for every array at every hop, so there is one. The tensors in it are parts of a message, as
bytes: a model, client states, a reply. What is read is looked at before it is read: the header, by hand, against the number
of bytes that are there.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from fedquilt.engines.encoding import ProtocolError, read

if TYPE_CHECKING:
    from flwr.app import RecordDict

NAME = "fedquilt"
"""The name of the one record of a message, and of the one array in it."""

LONGEST_HEADER = 2**24
"""Bytes of a header at most."""

BYTES = {
    **{"BOOL": 1, "U8": 1, "I8": 1, "F8_E5M2": 1, "F8_E4M3": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2},
    **{"I32": 4, "U32": 4, "F32": 4, "F64": 8, "I64": 8, "U64": 8},
}
"""Bytes of one value, by safetensors' name of its type."""


class TensorHeader(NamedTuple):
    """What a header says of a tensor: its type, its shape, and where its bytes are."""

    dtype: str
    shape: tuple[int, ...]
    first: int
    last: int


class Sent(NamedTuple):
    """A message: what is said in JSON, and its parts as bytes."""

    said: dict[str, Any]
    parts: dict[str, bytes]


def to_bytes(said: Mapping[str, Any], parts: Mapping[str, bytes]) -> bytes:
    """Write a message.

    >>> from_bytes(to_bytes({"round": 3}, {"model": b"abc"}))
    Sent(said={'round': 3}, parts={'model': b'abc'})
    """
    header: dict[str, Any] = {"__metadata__": {NAME: json.dumps(said)}}
    place = 0
    for name, part in parts.items():
        header[name] = {"dtype": "U8", "shape": [len(part)], "data_offsets": [place, place + len(part)]}
        place += len(part)
    written = json.dumps(header).encode()
    written += b" " * (-len(written) % 8)
    return b"".join([len(written).to_bytes(8, "little"), written, *parts.values()])


def from_bytes(message: bytes, most: int | None = None) -> Sent:
    """Read a message of at most so many bytes; anything else is a ProtocolError.

    >>> from_bytes(b"hello")
    Traceback (most recent call last):
    fedquilt.engines.encoding.ProtocolError: the message has no header
    >>> from_bytes(to_bytes({}, {"model": bytes(100)}), most=50)
    Traceback (most recent call last):
    fedquilt.engines.encoding.ProtocolError: the message has 212 bytes; at most 50 are expected
    """
    if most is not None and len(message) > most:
        raise ProtocolError(f"the message has {len(message):,} bytes; at most {most:,} are expected")
    metadata, forms, start = header_of(message)
    if any(form.dtype != "U8" or len(form.shape) != 1 for form in forms.values()):
        raise ProtocolError("the parts of the message are not bytes")
    said = read(metadata.get(NAME, "").encode())
    if not isinstance(said, dict):
        raise ProtocolError("the message says nothing in JSON")
    return Sent(said, {name: message[start + form.first : start + form.last] for name, form in forms.items()})


def header_of(message: bytes) -> tuple[dict[str, str], dict[str, TensorHeader], int]:
    """Read the header of safetensors bytes: metadata, the form of every tensor, and where their bytes begin.

    Nothing is made of what it says before it has been compared with the bytes that are there.
    """
    size = int.from_bytes(message[:8], "little")
    if len(message) < 8 or size > len(message) - 8:
        raise ProtocolError("the message has no header")
    if size > LONGEST_HEADER:
        raise ProtocolError(f"the message has a header of {size:,} bytes; at most {LONGEST_HEADER:,} are read")
    header, there = read(message[8 : 8 + size]), len(message) - 8 - size
    try:
        metadata = header.pop("__metadata__", {})
        forms = {name: _form(about) for name, about in header.items()}
        wrong = any(type(value) is not str for value in metadata.values())
        place = 0
        for form in sorted(forms.values(), key=lambda form: (form.first, form.last)):
            wrong = wrong or form.first != place
            place = form.last
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        raise ProtocolError("the message has a header of another form") from None
    if wrong or place != there:
        raise ProtocolError("the header of the message says other sizes than those of its bytes")
    return metadata, forms, 8 + size


def _form(about: Any) -> TensorHeader:
    (first, last), shape = about["data_offsets"], about["shape"]
    numbers = (first, last, *shape)
    if about.keys() != {"dtype", "shape", "data_offsets"} or not all(
        type(each) is int and each >= 0 for each in numbers
    ):
        raise ValueError
    if math.prod(shape) * BYTES[about["dtype"]] != last - first:
        raise ValueError
    return TensorHeader(about["dtype"], tuple(shape), first, last)


def packed(said: Mapping[str, Any], parts: Mapping[str, bytes]) -> RecordDict:
    """Put a message into what Flower carries."""
    from flwr.app import Array, ArrayRecord, RecordDict

    content = to_bytes(said, parts)
    array = Array(dtype="uint8", shape=(len(content),), stype="safetensors", data=content)
    return RecordDict({NAME: ArrayRecord({NAME: array})})


def unpacked(content: RecordDict, most: int | None = None) -> Sent:
    """Read a message from what Flower has carried."""
    try:
        (record,) = content.array_records.values()
        (array,) = record.values()
        if len(content) != 1 or not isinstance(array.data, bytes):
            raise ValueError
    except (TypeError, ValueError, AttributeError):
        raise ProtocolError("the message is not one array of bytes") from None
    return from_bytes(array.data, most)
