"""Updates held until the end: copied, in the order of their slots, in blocks."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import torch

from fedquilt.algorithm.parts import reduction
from fedquilt.algorithm.parts.reduction import Held, blocks, squared_distances, weighted_mean
from fedquilt.algorithm.updates import ClientUpdate, Cohort

NOTHING = torch.zeros(0)


def update(slot, delta, weight=1.0):
    return ClientUpdate(slot, slot, delta, NOTHING, NOTHING, weight, loss=0.0, steps=1, examples=1)


def rows(clients, size, seed=0):
    return list(torch.from_numpy(np.random.default_rng(seed).normal(size=(clients, size)).astype("f4")))


def test_an_update_is_copied_since_engines_overwrite_it():
    fold = Held(lambda updates: torch.stack(updates.deltas), Cohort(2, 1.0, 2, 2))
    shared = torch.tensor([1.0, 2.0])
    fold.add(update(1, shared))
    shared.fill_(7.0)
    fold.add(update(0, shared))
    assert fold.finish().tolist() == [[7.0, 7.0], [1.0, 2.0]]


def test_a_client_without_weight_has_no_say_and_without_others_there_is_no_result():
    fold = Held(lambda updates: torch.stack(updates.deltas), Cohort(1, 1.0, 2, 2))
    assert fold.finish() is None
    fold.add(update(0, torch.tensor([9.0]), weight=0.0))
    assert fold.finish() is None
    fold.add(update(1, torch.tensor([1.0]), weight=0.5))
    assert fold.finish().tolist() == [[1.0]]


def test_blocks_put_side_by_side_are_all_coordinates(monkeypatch):
    deltas = rows(3, 50)
    monkeypatch.setattr(reduction, "BLOCK", 21)
    assert [block.shape[1] for block in blocks(deltas)] == [7] * 7 + [1]
    assert torch.equal(torch.cat(list(blocks(deltas)), dim=1), torch.stack(deltas))


@pytest.mark.parametrize("block", [2**20, 16, 1])
def test_distances_and_means_do_not_depend_on_the_blocks(block, monkeypatch):
    deltas, weights = rows(6, 40), torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    monkeypatch.setattr(reduction, "BLOCK", block)
    wide = torch.stack(deltas).double()
    expected = (wide[:, None] - wide[None, :]).square().sum(dim=2)
    assert torch.allclose(squared_distances(deltas), expected, atol=1e-12)
    assert torch.allclose(weighted_mean(deltas, weights), (weights.double() @ wide / 21).float(), atol=1e-7)


def test_one_client_far_away_does_not_blur_the_distances_of_the_others():
    deltas = rows(4, 1000)
    far = [*deltas, torch.full((1000,), 1e5)]
    assert torch.allclose(squared_distances(far)[:4, :4], squared_distances(deltas), rtol=1e-12)
    assert math.isfinite(float(squared_distances(far).max()))


def test_a_reduction_is_told_from_another_by_its_values():
    from fedquilt.base.records import describe
    from fedquilt.methods.trimmed_mean import coordinate_trimmed_mean

    texts = {describe(partial(Held, partial(coordinate_trimmed_mean, trim))) for trim in (0.1, 0.2, 0.2)}
    assert len(texts) == 2
    assert all("0x" not in text for text in texts)
