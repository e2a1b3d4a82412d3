"""How a round's clients are put into blocks."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedquilt.engines.execution import evenly


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=60), st.data())
def test_dealt_out_evenly_every_block_has_as_many_clients_and_about_as_much_work(
    sizes: list[int], data: st.DataObject
) -> None:
    sizes = sorted(sizes, reverse=True)
    count = data.draw(st.integers(1, len(sizes)))
    blocks = evenly(np.arange(len(sizes)), count)
    assert sorted(slot for block in blocks for slot in block) == list(range(len(sizes)))
    lengths = [len(block) for block in blocks]
    assert len(blocks) == count
    assert max(lengths) - min(lengths) <= 1
    work = [sum(sizes[slot] for slot in block) for block in blocks]
    assert max(work) - min(work) <= sizes[0]
