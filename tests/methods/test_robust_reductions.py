"""Robust reductions on hand-computed cohorts, and the properties that each must have."""

from __future__ import annotations

from functools import partial
from math import sqrt

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fedquilt.algorithm.parts.reduction import Held, WeightedMean
from fedquilt.algorithm.updates import ClientUpdate, Cohort
from fedquilt.methods.geometric_median import geometric_median_of
from fedquilt.methods.krum import krum_choice
from fedquilt.methods.median import coordinate_median
from fedquilt.methods.norm_bound import Bounded
from fedquilt.methods.trimmed_mean import coordinate_trimmed_mean

NOTHING = torch.zeros(0)
GEOMETRIC = partial(geometric_median_of, 1000, 1e-6, 1e-6)
HELD = {
    "median": partial(Held, coordinate_median),
    "trimmed mean": partial(Held, partial(coordinate_trimmed_mean, 0.2)),
    "krum": partial(Held, partial(krum_choice, 1, 1)),
    "multi-krum": partial(Held, partial(krum_choice, 1, 3)),
    "geometric median": partial(Held, GEOMETRIC),
}
REDUCTIONS = {**HELD, "bounded mean": partial(Bounded, 2.0, WeightedMean)}
EVERY = pytest.mark.parametrize("reduce", REDUCTIONS.values(), ids=REDUCTIONS.keys())
EVERY_HELD = pytest.mark.parametrize("reduce", HELD.values(), ids=HELD.keys())


def reduced(reduce, deltas, weights=None, order=None):
    """Reduce updates that arrive in the order given, in one buffer that each overwrites."""
    deltas = [torch.as_tensor(delta, dtype=torch.float32) for delta in deltas]
    weights = weights or [1.0] * len(deltas)
    fold = reduce(Cohort(len(deltas[0]), sum(weights), len(deltas), len(deltas)))
    buffer = torch.empty_like(deltas[0])
    for slot in order or range(len(deltas)):
        buffer.copy_(deltas[slot])
        fold.add(ClientUpdate(slot, slot, buffer, NOTHING, NOTHING, weights[slot], loss=0.0, steps=1, examples=1))
    return fold.finish()


def draw(seed, clients, size=5, scale=1.0):
    return torch.from_numpy(np.random.default_rng(seed).normal(scale=scale, size=(clients, size)).astype("f4"))


# Closed forms


def test_the_median_of_an_odd_and_of_an_even_number():
    """Sorted: 1, 2, 9 → 2 and −5, 0, 4 → 0; with a fourth, 1, 2, 3, 9 → (2 + 3) / 2 and −5, 0, 4, 8 → (0 + 4) / 2."""
    three = [[9, -5], [1, 4], [2, 0]]
    assert reduced(HELD["median"], three).tolist() == [2.0, 0.0]
    assert reduced(HELD["median"], [*three, [3, 8]]).tolist() == [2.5, 2.0]


def test_the_median_does_not_look_at_weights_above_zero():
    deltas = [[0], [1], [5], [7]]
    assert reduced(HELD["median"], deltas, [1.0, 1.0, 1000.0, 0.0]).tolist() == [1.0]


def test_the_trimmed_mean_drops_the_floor_of_its_share_at_either_end():
    """Of five, β = 0.2: one at either end, (2 + 3 + 7) / 3 = 4; β = 0.4: two, 3; β = 0.19: ⌊0.95⌋ = 0, 112 / 5 = 22.4."""
    deltas = [[100], [3], [0], [2], [7]]
    for trim, expected in ((0.2, 4.0), (0.4, 3.0), (0.19, 22.4)):
        result = reduced(partial(Held, partial(coordinate_trimmed_mean, trim)), deltas, [5.0, 1.0, 1.0, 1.0, 1.0])
        assert result.tolist() == pytest.approx([expected], rel=1e-7)


def test_the_trimmed_mean_drops_as_many_as_the_decimal_number_says():
    """⌊0.29·100⌋ is 29, though the nearest double to 0.29 times 100 is below: of 0…99, 29…70 stay, whose mean is 49.5.

    A hundred at one end tells 29 from 28: with v_i = 1 for i < 29, what stays is all 0 exactly if 29 are dropped.
    """
    ones = [[1.0 if i < 29 else 0.0] for i in range(100)]
    assert reduced(partial(Held, partial(coordinate_trimmed_mean, 0.29)), ones).tolist() == [0.0]
    assert reduced(partial(Held, partial(coordinate_trimmed_mean, 0.28)), ones).tolist() != [0.0]


SQUARE = [[0, 0], [1, 0], [0, 2], [4, 0], [90, 90]]


def test_krum_scores_by_the_nearest_others():
    """With m = 5 and f = 1 these are two nearest others each.

    Squared distances among a = (0, 0), b = (1, 0), c = (0, 2), d = (4, 0): ab 1, ac 4, ad 16, bc 5, bd 9, cd 20.
    Scores: a 1 + 4 = 5, b 1 + 5 = 6, c 4 + 5 = 9, d 9 + 16 = 25, the fifth huge.
    So Krum takes a; the best two average to (1/2, 0), the best three to (1/3, 2/3).
    """
    for selected, expected in ((1, [0, 0]), (2, [0.5, 0]), (3, [1 / 3, 2 / 3])):
        result = reduced(partial(Held, partial(krum_choice, 1, selected)), SQUARE, [1.0, 9.0, 9.0, 9.0, 1.0])
        assert result.tolist() == pytest.approx(expected, abs=1e-7)


def test_krum_with_another_number_of_corrupt_clients_scores_otherwise():
    """With f = 0, three nearest others each. a 1 + 4 + 16 = 21, b 1 + 5 + 9 = 15, c 4 + 5 + 20 = 29: now it is b.

    With f = 2, one nearest other each. a 1 and b 1 tie: the lower slot, a.
    """
    assert reduced(partial(Held, partial(krum_choice, 0, 1)), SQUARE).tolist() == [1.0, 0.0]
    assert reduced(partial(Held, partial(krum_choice, 2, 1)), SQUARE).tolist() == [0.0, 0.0]


def test_ties_in_krum_go_to_the_lower_slot_whatever_the_order():
    """−1, 0, 1 about a far pair 10, 11: with one nearest other all of the five have score 1."""
    line = [[11], [10], [1], [0], [-1]]
    reduce = partial(Held, partial(krum_choice, 2, 1))
    assert reduced(reduce, line).tolist() == [11.0]
    assert reduced(reduce, line, order=[4, 3, 2, 1, 0]).tolist() == [11.0]


def test_selecting_everyone_in_krum_is_the_plain_mean():
    deltas = draw(0, 6)
    result = reduced(partial(Held, partial(krum_choice, 1, 6)), deltas, [3.0, 1.0, 1.0, 1.0, 1.0, 1.0])
    assert torch.allclose(result, deltas.mean(dim=0), atol=1e-7)


def test_too_few_clients_for_krum_are_named_with_the_numbers():
    with pytest.warns(RuntimeWarning, match=r"krum: 4 clients reported.*corrupt = 2.*= 0 nearest.*at least 5.*7 for"):
        assert reduced(partial(Held, partial(krum_choice, 2, 1)), draw(0, 4)) is None
    with pytest.warns(RuntimeWarning, match=r"krum: 1 clients reported.*corrupt = 1"):
        assert reduced(partial(Held, partial(krum_choice, 1, 1)), draw(0, 1)) is None
    with pytest.warns(RuntimeWarning, match=r"krum: 4 clients reported.*selected = 5"):
        assert reduced(partial(Held, partial(krum_choice, 0, 5)), draw(0, 4)) is None
    with pytest.warns(RuntimeWarning, match=r"krum: 3 clients reported"):  # the fourth has no weight, and no say
        assert reduced(partial(Held, partial(krum_choice, 1, 1)), draw(0, 4), [1.0, 1.0, 1.0, 0.0]) is None


def test_the_geometric_median_of_a_triangle_is_its_fermat_point():
    """Of (−1, 0), (1, 0), (0, √3 + 2): from the point (0, 1/√3) the base is seen under 120°, and it lies on the axis.

    There the three unit vectors add up to 0: (±√3/2, −1/2) twice and (0, 1). The apex may be anywhere above.
    """
    result = reduced(HELD["geometric median"], [[-1, 0], [1, 0], [0, sqrt(3) + 2]])
    assert result.tolist() == pytest.approx([0.0, 1 / sqrt(3)], abs=1e-5)
    farther = reduced(HELD["geometric median"], [[-1, 0], [1, 0], [0, 1e5]])
    assert farther.tolist() == pytest.approx([0.0, 1 / sqrt(3)], abs=1e-5)


def test_the_geometric_median_is_weighted():
    """Of (±1, 0) with weight 1 each and (0, 9) with weight w: at (0, y) the pull w upwards balances 2y/√(1 + y²).

    With w = 1 that is y = 1/√3; with w = 1.2, y = 0.6/√(1 − 0.36) = 3/4. A weight of more than half takes all.
    """
    for weight, height in ((1.0, 1 / sqrt(3)), (1.2, 0.75), (2.5, 9.0)):
        result = reduced(HELD["geometric median"], [[-1, 0], [1, 0], [0, 9]], [1.0, 1.0, weight])
        assert result.tolist() == pytest.approx([0.0, height], abs=1e-4)


def test_one_step_of_weiszfeld_from_the_mean():
    """Of 0, 0, 0 and 4: the mean is 1, at distances 1, 1, 1, 3; β = 1, 1, 1, 1/3; v = (4/3) / (10/3) = 0.4.

    A smoothing of 2 stops the near ones from pulling harder: β = 1/2, 1/2, 1/2, 1/3; v = (4/3) / (11/6) = 8/11.
    """
    deltas = [[0], [0], [0], [4]]
    for smoothing, expected in ((1e-6, 0.4), (2.0, 8 / 11)):
        result = reduced(partial(Held, partial(geometric_median_of, 1, 0.0, smoothing)), deltas)
        assert result.tolist() == pytest.approx([expected], rel=1e-6)


@pytest.mark.parametrize("iterations", [1, 3, 20])
def test_weiszfeld_on_distances_is_weiszfeld_on_vectors(iterations):
    deltas, weights = draw(4, 7, size=30), [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0]
    points, alpha = deltas.double().numpy(), np.array(weights) / sum(weights)
    v = alpha @ points
    for _ in range(iterations):
        beta = alpha / np.maximum(1e-6, np.linalg.norm(points - v, axis=1))
        v = beta @ points / beta.sum()
    result = reduced(partial(Held, partial(geometric_median_of, iterations, 0.0, 1e-6)), deltas, weights)
    assert np.abs(result.numpy() - v).max() < 1e-6


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_the_tolerance_bounds_the_gradient_whatever_the_length_of_the_updates(scale):
    deltas = draw(5, 9, size=20, scale=scale)
    for tolerance in (1e-1, 1e-3, 1e-5):
        v = reduced(partial(Held, partial(geometric_median_of, 1000, tolerance, 1e-9)), deltas).double()
        away = v - deltas.double()
        gradient = (away / torch.linalg.vector_norm(away, dim=1, keepdim=True)).mean(dim=0)
        assert torch.linalg.vector_norm(gradient) <= tolerance + 1e-6


def test_a_bound_shortens_long_updates_and_leaves_short_ones():
    """Limit 5: (6, 8) of length 10 becomes (3, 4); (0, 1) stays. With weights 1 and 3: (3/4, 7/4)."""
    result = reduced(partial(Bounded, 5.0, WeightedMean), [[6, 8], [0, 1]], [1.0, 3.0])
    assert result.tolist() == pytest.approx([0.75, 1.75], rel=1e-6)


def test_a_bound_comes_before_the_wrapped_reduction():
    """Limit 1: 8 becomes 1, −8 becomes −1, and 0.5 stays, the median of the three; of 8, 8 and 0.5 it is 1."""
    reduce = partial(Bounded, 1.0, HELD["median"])
    assert reduced(reduce, [[8], [-8], [0.5]]).tolist() == [0.5]
    assert reduced(reduce, [[8], [8], [0.5]]).tolist() == [1.0]


# What holds for all of them


@EVERY
def test_without_weight_there_is_no_result(reduce):
    assert reduced(reduce, draw(0, 3), [0.0, 0.0, 0.0]) is None


@EVERY
def test_a_client_without_weight_changes_nothing(reduce):
    deltas = draw(1, 6, scale=0.1)
    weighty = [1.0, 2.0, 3.0, 1.0, 2.0, 0.0]
    deltas[5] = 1e5
    assert torch.allclose(reduced(reduce, deltas, weighty), reduced(reduce, deltas[:5], weighty[:5]), atol=1e-9)


@EVERY
@settings(max_examples=20, deadline=None)
@given(data=st.data(), clients=st.integers(5, 12), seed=st.integers(0, 1000))
def test_the_order_of_arrival_does_not_change_a_bit(reduce, data, clients, seed):
    deltas = draw(seed, clients)
    weights = [float(w) for w in np.random.default_rng(seed).integers(1, 100, size=clients)]
    order = data.draw(st.permutations(range(clients)))
    assert torch.equal(reduced(reduce, deltas, weights), reduced(reduce, deltas, weights, order))


@pytest.mark.parametrize("name", ["median", "trimmed mean", "geometric median", "bounded mean"])
def test_one_client_alone_is_its_update(name):
    delta = draw(2, 1, scale=0.1)
    assert torch.allclose(reduced(REDUCTIONS[name], delta, [7.0]), delta[0], atol=1e-9)
    assert torch.equal(reduced(partial(Held, partial(krum_choice, 0, 1)), delta, [7.0]), delta[0])


@EVERY
def test_where_all_agree_it_is_fed_avg(reduce):
    deltas = draw(3, 1, scale=0.1).repeat(6, 1)
    weights = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert torch.allclose(reduced(reduce, deltas, weights), reduced(WeightedMean, deltas, weights), atol=1e-8)


@EVERY_HELD
@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1000), clients=st.integers(6, 12), liar=st.integers(0, 5), sign=st.sampled_from([-1, 1]))
def test_one_client_that_lies_does_not_drag_the_rest_along(reduce, seed, clients, liar, sign):
    """In every coordinate the result stays within the range of the honest clients, up to rounding.

    The geometric median may leave that box, if hardly: it is held to the honest updates' ball around their mean.
    """
    deltas = draw(seed, clients)
    deltas[liar] = sign * 1e5
    honest = deltas[[slot for slot in range(clients) if slot != liar]]
    result = reduced(reduce, deltas)
    if reduce is HELD["geometric median"]:
        centre = honest.mean(dim=0)
        radius = torch.linalg.vector_norm(honest - centre, dim=1).max()
        assert torch.linalg.vector_norm(result - centre) <= radius
    else:
        assert (result >= honest.amin(dim=0) - 1e-6).all()
        assert (result <= honest.amax(dim=0) + 1e-6).all()
    assert reduced(WeightedMean, deltas).abs().max() > 1e3


def test_one_client_that_lies_moves_a_bounded_mean_by_no_more_than_its_share():
    deltas = draw(6, 10, scale=0.1)
    honest = reduced(REDUCTIONS["bounded mean"], deltas)
    deltas[4] = 1e5
    moved = torch.linalg.vector_norm(reduced(REDUCTIONS["bounded mean"], deltas) - honest)
    assert moved <= 2 * 2.0 / 10 + 1e-6


@EVERY_HELD
@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1000), clients=st.integers(5, 9))
def test_permuted_coordinates_and_relabelled_clients(reduce, seed, clients):
    """Permuting coordinates permutes the result; which client sits in which slot does not matter (there are no ties)."""
    deltas, rng = draw(seed, clients), np.random.default_rng(seed)
    result = reduced(reduce, deltas)
    coordinates, slots = rng.permutation(5), rng.permutation(clients)
    assert torch.allclose(reduced(reduce, deltas[:, coordinates]), result[coordinates], atol=1e-5)
    assert torch.allclose(reduced(reduce, deltas[slots]), result, atol=1e-5)


@EVERY_HELD
@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1000), clients=st.integers(5, 9), shift=st.floats(-10, 10, width=32))
def test_a_shift_of_all_updates_shifts_the_result(reduce, seed, clients, shift):
    deltas = draw(seed, clients)
    assert torch.allclose(reduced(reduce, deltas + shift), reduced(reduce, deltas) + shift, atol=1e-4)


@EVERY_HELD
@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1000), clients=st.integers(5, 9), factor=st.floats(0.01, 100))
def test_a_scale_of_all_updates_scales_the_result(reduce, seed, clients, factor):
    deltas = draw(seed, clients)
    assert torch.allclose(reduced(reduce, deltas * factor), reduced(reduce, deltas) * factor, atol=1e-4 * factor)


@settings(max_examples=60, deadline=None)
@given(
    values=st.lists(st.floats(-1e5, 1e5, width=32), min_size=1, max_size=15),
    trim=st.floats(0, 0.49),
)
def test_ranks_are_those_of_numpy(values, trim):
    """The median is NumPy's; both lie between the least and the greatest; the trimmed mean tends to the median."""
    column = [[value] for value in values]
    median = float(reduced(HELD["median"], column))
    assert median == pytest.approx(float(np.median(np.array(values, dtype="f8"))), rel=1e-6, abs=1e-30)
    trimmed = float(reduced(partial(Held, partial(coordinate_trimmed_mean, trim)), column))
    for result in (median, trimmed):
        assert min(values) <= result <= max(values)
    most = (len(values) - 1) // 2
    assume(most / len(values) < 0.5)
    share = (most + 0.25) / len(values)
    assert float(reduced(partial(Held, partial(coordinate_trimmed_mean, share)), column)) == median
