"""Makes the items of an iterator in a thread, some ahead of whoever takes them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


def made_ahead(items: Iterable[T], count: int) -> Iterator[T]:
    """Yield what `items` yields, in the same order, made by a thread that keeps up to `count` of them ready.

    An exception of the iterator comes out in its place. The thread ends with the last item, or when this iterator is
    closed or dropped.

    >>> list(made_ahead(range(5), count=2))
    [0, 1, 2, 3, 4]
    """
    ready: queue.Queue[tuple[T] | BaseException | None] = queue.Queue(maxsize=count)
    stop = threading.Event()

    def make() -> None:
        try:
            for item in items:
                ready.put((item,))
                if stop.is_set():
                    return
            ready.put(None)
        except BaseException as error:
            ready.put(error)

    thread = threading.Thread(target=make, name="fedquilt-ahead", daemon=True)
    thread.start()
    try:
        while (got := ready.get()) is not None:
            if isinstance(got, BaseException):
                raise got
            yield got[0]
    finally:
        stop.set()
        # The thread puts at most one thing more, for which there is room then.
        with suppress(queue.Empty):
            while True:
                ready.get_nowait()
        thread.join()
