"""Keyed generators."""

from __future__ import annotations

import torch

from fedquilt.base.rng import generator, torch_seeded


def test_a_hundred_thousand_keys_give_different_streams():
    draws = {int(generator(0, "sample", r, k, 0).integers(2**63)) for r in range(100) for k in range(1000)}
    assert len(draws) == 100_000


def test_seed_purpose_and_every_part_of_the_key_count():
    keys = [(0, "a", 1, 2), (1, "a", 1, 2), (0, "b", 1, 2), (0, "a", 2, 1), (0, "a", 12), (0, "a", 1, 2, 0)]
    assert len({int(generator(*key).integers(2**63)) for key in keys}) == len(keys)


def test_slots_of_a_round_have_streams_of_their_own_and_the_global_state_comes_back():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    streams = []
    for slot in range(50):
        with torch_seeded(1, "module", 4, slot):
            streams.append(tuple(torch.rand(4).tolist()))
    assert len(set(streams)) == 50
    assert torch.equal(torch.rand(3), expected)
