"""Hypothesis conflicts and parameter divergence against numbers derived by hand."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedquilt.analysis.diagnosis import conflict_rate, parameter_divergence


def pairwise(predictions: torch.Tensor) -> float:
    """The definition, pair by pair."""
    pairs = list(itertools.combinations(predictions, 2))
    return sum(float((a != b).double().mean()) for a, b in pairs) / len(pairs)


def test_conflict_rate() -> None:
    """Models 1 and 2 differ on 1 input of 4, 1 and 3 on 2, 2 and 3 on 2: (1/4 + 2/4 + 2/4)/3 = 5/12."""
    predictions = torch.tensor([[0, 1, 2, 3], [0, 1, 2, 0], [0, 2, 2, 1]])
    assert conflict_rate(predictions) == 5 / 12


def test_identical_models_have_no_conflicts() -> None:
    assert conflict_rate(torch.tensor([3, 1, 2]).repeat(9, 1)) == 0


def test_models_that_never_agree() -> None:
    assert conflict_rate(torch.arange(6)[:, None].repeat(1, 4)) == 1


def test_a_model_alone_conflicts_with_none() -> None:
    assert conflict_rate(torch.tensor([[0, 1, 2]])) == 0


@given(models=st.integers(2, 7), inputs=st.integers(1, 9), classes=st.integers(1, 5), seed=st.integers(0, 999))
@settings(deadline=None)
def test_counting_classes_counts_pairs(models: int, inputs: int, classes: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    predictions = torch.randint(classes, (models, inputs), generator=generator)
    rate = conflict_rate(predictions)
    assert rate == pytest.approx(pairwise(predictions))
    order = torch.randperm(models, generator=generator)
    names = torch.randperm(classes, generator=generator)
    assert conflict_rate(predictions[order]) == rate
    assert conflict_rate(names[predictions]) == rate


def test_small_whole_numbers_do_not_overflow() -> None:
    """300 models make 44,850 pairs an input, which 8 bits do not hold; half against half, 150²/44,850 of them differ."""
    predictions = (torch.arange(300) % 2).to(torch.uint8)[:, None].expand(300, 3)
    assert conflict_rate(predictions) == pytest.approx(22_500 / 44_850)


@pytest.mark.parametrize(
    "predictions", [torch.zeros(3), torch.zeros(2, 0).long(), torch.rand(2, 3), torch.tensor([[0], [-1]])]
)
def test_what_are_no_predictions(predictions: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="predictions must be"):
        conflict_rate(predictions)


def test_parameter_divergence() -> None:
    """The mean of (0, 4), (6, 4) and (3, 4) is (3, 4), of norm 5; the distances are 3, 3 and 0, their mean 2."""
    divergence = parameter_divergence(torch.tensor([[0.0, 4.0], [6.0, 4.0], [3.0, 4.0]]))
    assert (divergence.distance, divergence.relative) == (2, 2 / 5)


def test_equal_models_do_not_diverge() -> None:
    generator = torch.Generator().manual_seed(0)
    divergence = parameter_divergence(torch.randn(1, 50, generator=generator).repeat(7, 1))
    assert (divergence.distance, divergence.relative) == (0, 0)


def test_updates_have_the_distance_of_the_models() -> None:
    generator = torch.Generator().manual_seed(0)
    start, updates = torch.randn(20, generator=generator).double(), torch.randn(5, 20, generator=generator).double()
    models, steps = parameter_divergence(start + updates), parameter_divergence(updates)
    assert models.distance == pytest.approx(steps.distance)
    assert models.relative != pytest.approx(steps.relative)


def test_relative_divergence_has_no_unit() -> None:
    vectors = torch.randn(4, 9, generator=torch.Generator().manual_seed(0))
    small, large = parameter_divergence(vectors), parameter_divergence(1024 * vectors)
    assert large.distance == pytest.approx(1024 * small.distance)
    assert large.relative == pytest.approx(small.relative)


def test_order_of_clients_does_not_matter() -> None:
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(8, 30, generator=generator)
    here, there = parameter_divergence(vectors), parameter_divergence(vectors[torch.randperm(8, generator=generator)])
    assert there.distance == pytest.approx(here.distance)
    assert there.relative == pytest.approx(here.relative)


def test_updates_that_cancel_out() -> None:
    divergence = parameter_divergence(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))
    assert (divergence.distance, divergence.relative) == (1, math.inf)
    assert parameter_divergence(torch.zeros(2, 3)).relative == 0


@pytest.mark.parametrize("vectors", [torch.zeros(3), torch.zeros(0, 3)])
def test_what_are_no_vectors(vectors: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="vectors must be"):
        parameter_divergence(vectors)
