"""Messages on the pipe between a worker and its parent, each in a frame that only the two of them can make.

A client's code runs in the worker, and may write into any file descriptor. A frame begins and ends with a token that was
drawn for the worker: bytes without it are no message, and are noticed at once instead of being waited for.
"""

from __future__ import annotations

import os
import select
import struct
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

from fedquilt.engines.encoding import ProtocolError

TOKEN = 16
_HEADER = struct.Struct(f"!{TOKEN}sQ")

LONGEST = 2**36
"""Bytes of a message, at most."""

_CHUNK = 2**20
_PARTS = 16  # POSIX promises that so many can be written at once
_AT_ONCE = 2**30  # bytes; macOS refuses more than 2 GiB


@dataclass(eq=False)
class Channel:
    """One end of a pipe; with `peer`, the descriptor that tells when the other process has ended, nothing waits in vain."""

    pipe: Connection
    token: bytes
    peer: int | None = None
    _header: bytearray = field(default_factory=bytearray)

    def send(self, *messages: bytes) -> None:
        """Send messages, at once if the pipe takes them: every write wakes the other process up."""
        parts = [part for each in messages for part in (_HEADER.pack(self.token, len(each)), each, self.token)]
        rest = [memoryview(part) for part in parts if part]
        while rest:
            some = rest[:_PARTS]
            try:
                written = os.writev(
                    self.pipe.fileno(), some if sum(map(len, some)) <= _AT_ONCE else [rest[0][:_AT_ONCE]]
                )
            except BlockingIOError:
                self._wait(select.POLLOUT)
                continue
            while rest and written >= len(rest[0]):
                written -= len(rest.pop(0))
            if written:
                rest[0] = rest[0][written:]

    def receive(self) -> bytes:
        """Wait for a message."""
        while (message := self.poll()) is None:
            self._wait(select.POLLIN)
        return message

    def poll(self) -> bytes | None:
        """Return the next message, or nothing if none has begun; call it when the pipe can be read."""
        try:
            self._header += self._read(_HEADER.size - len(self._header))
        except BlockingIOError:
            return None
        if not self.token.startswith(bytes(self._header[:TOKEN])):
            raise ProtocolError("not a message of a worker")
        if len(self._header) < _HEADER.size:
            return None
        _, length = _HEADER.unpack(self._header)
        if length > LONGEST:
            raise ProtocolError(f"the message has {length} bytes; the limit is {LONGEST}")
        self._header.clear()
        message = self._rest(length)
        if self._rest(TOKEN) != self.token:
            raise ProtocolError("the message is corrupted")
        return message

    def _rest(self, length: int) -> bytes:
        parts = bytearray()
        while len(parts) < length:
            try:
                parts += self._read(min(length - len(parts), _CHUNK))
            except BlockingIOError:
                self._wait(select.POLLIN)
        return bytes(parts)

    def _read(self, length: int) -> bytes:
        data = os.read(self.pipe.fileno(), length)
        if not data:
            raise EOFError
        return data

    def _wait(self, event: int) -> None:
        """Wait until the pipe can be used, or the other process has ended."""
        poll = select.poll()
        poll.register(self.pipe.fileno(), event)
        if self.peer is not None:
            poll.register(self.peer, select.POLLIN)
        if self.pipe.fileno() not in dict(poll.poll()):
            raise EOFError
