"""Messages between a worker and its parent."""

import multiprocessing
import os
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedquilt.engines import frames
from fedquilt.engines.encoding import ProtocolError
from fedquilt.engines.frames import TOKEN, Channel


@pytest.mark.parametrize("at_once", [frames._AT_ONCE, 5000, 7])
@pytest.mark.parametrize("sizes", [(0,), (5,), (3, 0, 20_000), tuple(range(30))])
def test_messages_arrive_whole_and_in_order(
    sizes: tuple[int, ...], at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large ones too, of which the pipe takes a part at a time, and more of them than go into one write."""
    monkeypatch.setattr(frames, "_AT_ONCE", at_once)
    ours, theirs = multiprocessing.Pipe()
    os.set_blocking(ours.fileno(), False)
    token = os.urandom(TOKEN)
    messages = [os.urandom(size) for size in (*sizes, 0 if at_once == 7 else 2**22)]
    sending = threading.Thread(target=Channel(ours, token).send, args=messages)
    sending.start()
    received = [Channel(theirs, token).receive() for _ in messages]
    sending.join()
    assert received == messages


def test_what_has_another_token_is_no_message() -> None:
    ours, theirs = multiprocessing.Pipe()
    Channel(ours, b"a" * TOKEN).send(b"said")
    with pytest.raises(ProtocolError, match="not a message of a worker"):
        Channel(theirs, b"b" * TOKEN).receive()


@given(st.lists(st.binary(max_size=200), max_size=4))
def test_whatever_is_said(messages: list[bytes]) -> None:
    ours, theirs = multiprocessing.Pipe()
    with ours, theirs:
        Channel(ours, b"t" * TOKEN).send(*messages)
        heard = Channel(theirs, b"t" * TOKEN)
        assert [heard.receive() for _ in messages] == messages
