"""How a round's clients are put into blocks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import fedquilt
from fedquilt.engines.default import MODELS, auto, chosen
from fedquilt.engines.execution import Execution, evenly
from fedquilt.round.federation import Federation
from fedquilt.round.plan import plan


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


@pytest.mark.parametrize(
    ("block", "lanes", "lengths"), [(2, 1, [2, 2, 2]), (2, 2, [2, 2, 1, 1]), (4, 2, [3, 3]), (9, 4, [2, 2, 1, 1])]
)
def test_every_worker_gets_as_many_blocks(blobs, unbalanced, block, lanes, lengths):
    """Six clients; with two workers, three blocks of two would keep one of them waiting."""
    federation = Federation.of(nn.Linear(8, 3), blobs, unbalanced, fedquilt.fed_avg(fraction=1.0), 1)
    planned = plan(federation.algorithm, federation.start().groups[0], federation.population, seed=1)
    blocks = Execution(block, "fused").blocks(planned, lanes)
    assert sorted(map(len, blocks), reverse=True) == lengths
    assert sorted(slot for each in blocks for slot in each) == sorted(planned.slots)
    one_by_one = [slot for each in Execution(1, "fused").blocks(planned, lanes) for slot in each]
    assert Execution(4, "eager").blocks(planned, lanes) == [one_by_one[:4], one_by_one[4:]]


def test_the_models_of_a_task_have_a_limit(blobs, unbalanced):
    wide = nn.Sequential(nn.Linear(8, MODELS // 22), nn.ReLU(), nn.Linear(MODELS // 22, 3))
    federation = Federation.of(wide, blobs, unbalanced, fedquilt.fed_avg(fraction=1.0, batch=float("inf")), 1)
    engine = chosen(auto(), federation, 10)[0]
    assert engine.compute != "fused" or engine.execution.block == 1
