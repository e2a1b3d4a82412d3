"""The Dirichlet partition against its closed forms."""

from collections import Counter, defaultdict

import numpy as np
import pytest
from scipy import stats

from fedquilt.base.arguments import ArgumentError
from fedquilt.base.errors import SpecError
from fedquilt.partition import dirichlet, power_law

TEN = np.repeat(np.arange(10), 5_000)


def test_balanced_population_of_the_paper() -> None:
    held = dirichlet(TEN, clients=100, alpha=0.5)
    assert (held.sizes == 500).all()
    assert np.array_equal(np.sort(held.indices), np.arange(50_000))


def test_power_law_sizes_leave_nobody_without_examples() -> None:
    held = dirichlet(TEN, clients=500, alpha=1.0, exponent=1.0)
    assert np.array_equal(held.sizes, power_law(TEN, clients=500, exponent=1.0).sizes)
    assert np.array_equal(np.sort(held.indices), np.arange(50_000))
    with pytest.raises(SpecError, match="set only one of the two"):
        dirichlet(TEN, clients=500, alpha=1.0, exponent=1.0, examples=10)


def test_alpha_0_is_one_class_a_client() -> None:
    # Ten clients fit into a class exactly, so that no client ever runs out of its class.
    counts = dirichlet(TEN, clients=100, alpha=0.0).class_counts(TEN, 10)
    assert (counts.max(axis=1) == 500).all()


def test_alpha_0_goes_on_with_another_class() -> None:
    labels = np.repeat(np.arange(4), 30)
    counts = dirichlet(labels, clients=6, alpha=0.0, seed=3).class_counts(labels, 4)
    # 20 a client: a class is left with 10 after its first client, and its second one then goes on elsewhere.
    assert ((counts > 0).sum(axis=1) <= 3).all()
    assert (counts[0] > 0).sum() == 1


@pytest.mark.parametrize("alpha", [1e-320, 1e-260, 1e-12])
def test_tiny_alpha_is_alpha_0(alpha: float) -> None:
    counts = dirichlet(TEN, clients=100, alpha=alpha).class_counts(TEN, 10)
    assert (counts.max(axis=1) == 500).all()


def test_alpha_inf_is_the_prior() -> None:
    # Each count is multinomial with p = 1/10: 500 examples, standard deviation 6.7; five of them bound 50 clients × 10.
    counts = dirichlet(TEN, clients=50, alpha=np.inf, examples=500).class_counts(TEN, 10)
    assert np.abs(counts - 50).max() < 5 * np.sqrt(500 * 0.1 * 0.9)
    assert counts.std() == pytest.approx(np.sqrt(500 * 0.1 * 0.9), rel=0.1)


def test_alpha_inf_with_the_empirical_prior() -> None:
    labels = np.repeat([0, 1], [9_000, 1_000])
    counts = dirichlet(labels, clients=10, alpha=np.inf, prior="empirical", examples=500).class_counts(labels, 2)
    assert counts[:, 1].mean() == pytest.approx(50, abs=5 * np.sqrt(500 * 0.1 * 0.9 / 10))


@pytest.mark.parametrize("alpha", [0.1, 1.0, 10.0])
def test_class_shares_are_beta(alpha: float) -> None:
    """A class's share of Dir(α/C, …) is Beta(α/C, α − α/C): off by C, as Dir(α, …, α) would be, it fails by far.

    2,000 clients take few enough that no class runs out; with 250 examples the count is beta-binomial, compared here by
    the mean of its square, E[n²q²] + E[nq(1−q)], to within five standard errors.
    """
    classes, clients, size = 5, 2_000, 250
    labels = np.repeat(np.arange(classes), 300_000)
    held = dirichlet(labels, clients=clients, alpha=alpha, examples=size, seed=1)
    counts = held.class_counts(labels, classes)
    law = stats.betabinom(size, alpha / classes, alpha - alpha / classes)
    second = (counts[:, 0] ** 2).astype(float)
    error = np.sqrt((law.moment(4) - law.moment(2) ** 2) / clients)
    assert second.mean() == pytest.approx(law.moment(2), abs=5 * error)
    assert counts[:, 0].mean() == pytest.approx(law.mean(), abs=5 * law.std() / np.sqrt(clients))


@pytest.mark.parametrize("alpha", [0.2, 2.0])
def test_largest_share(alpha: float) -> None:
    """E[max q] agrees with NumPy's own Dirichlet, to within five standard errors of both samples."""
    clients, size = 2_000, 250
    labels = np.repeat(np.arange(4), 300_000)
    ours = dirichlet(labels, clients=clients, alpha=alpha, examples=size).class_counts(labels, 4).max(axis=1) / size
    rng = np.random.default_rng(0)
    theirs = rng.multinomial(size, rng.dirichlet(np.full(4, alpha / 4), clients)).max(axis=1) / size
    error = np.sqrt((ours.var() + theirs.var()) / clients)
    assert ours.mean() == pytest.approx(theirs.mean(), abs=5 * error)


def test_empirical_prior_sets_the_mean() -> None:
    labels = np.repeat([0, 1, 2], [60_000, 30_000, 10_000])
    counts = dirichlet(labels, clients=400, alpha=1.0, prior="empirical", examples=50).class_counts(labels, 3)
    share = counts[:, 2].mean() / 50
    # Var q = p(1 − p)/(1 + α) for each client.
    assert share == pytest.approx(0.1, abs=5 * np.sqrt(0.1 * 0.9 * 0.6 / 400))


def one_by_one(left: list[int], q: list[float], size: int) -> dict[tuple[int, ...], float]:
    """Return the exact law of one client's counts when its examples are drawn singly by equation 5."""
    law: dict[tuple[int, ...], float] = {(0,) * len(q): 1.0}
    for _ in range(size):
        following: defaultdict[tuple[int, ...], float] = defaultdict(float)
        for counts, chance in law.items():
            open_ = [c for c in range(len(q)) if counts[c] < left[c]]
            for c in open_:
                after = tuple(n + (i == c) for i, n in enumerate(counts))
                following[after] += chance * q[c] / sum(q[o] for o in open_)
        law = dict(following)
    return law


def test_drawing_at_once_is_drawing_one_by_one() -> None:
    """With α = ∞, q is the empirical prior; the first client's counts follow the law of single draws (χ², p > 1e-4)."""
    labels = np.repeat([0, 1, 2], [2, 3, 5])
    law = one_by_one([2, 3, 5], [0.2, 0.3, 0.5], size=6)
    runs = 4_000
    seen = Counter(
        tuple(
            dirichlet(labels, clients=1, alpha=np.inf, prior="empirical", examples=6, seed=seed)
            .class_counts(labels, 3)[0]
            .tolist()
        )
        for seed in range(runs)
    )
    assert set(seen) <= set(law)
    outcomes = sorted(law)
    expected = [runs * law[outcome] for outcome in outcomes]
    assert stats.chisquare([seen[outcome] for outcome in outcomes], expected).pvalue > 1e-4


def test_examples_within_a_class_are_taken_at_random() -> None:
    first = [
        dirichlet(np.zeros(20, dtype=int), clients=1, alpha=1.0, examples=1, seed=s).indices[0] for s in range(400)
    ]
    assert stats.chisquare(np.bincount(first, minlength=20)).pvalue > 1e-4


def test_alpha_0_draws_the_class_from_the_prior() -> None:
    labels = np.repeat([0, 1], [80, 20])
    for prior, share in (("uniform", 0.5), ("empirical", 0.2)):
        ones = [
            int(labels[dirichlet(labels, clients=1, alpha=0.0, prior=prior, examples=1, seed=s).indices[0]])  # type: ignore[arg-type]
            for s in range(600)
        ]
        assert np.mean(ones) == pytest.approx(share, abs=5 * np.sqrt(share * (1 - share) / 600))


@pytest.mark.parametrize("alpha", [0.0, 1e-6, 0.01, 0.1, 1.0, 100.0])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_exhausted_classes_with_skewed_labels(alpha: float, seed: int) -> None:
    """A uniform prior on labels that are far from it: small classes run out at once, and all examples are held."""
    labels = np.repeat(np.arange(6), [5_000, 500, 50, 5, 1, 1])
    held = dirichlet(labels, clients=40, alpha=alpha, seed=seed)
    assert np.array_equal(np.sort(held.indices), np.arange(len(labels)))
    assert held.sizes.max() - held.sizes.min() <= 1


def test_examples_leave_the_rest_to_nobody() -> None:
    held = dirichlet(TEN, clients=10, alpha=1.0, examples=7)
    assert (held.sizes == 7).all()
    assert len(np.unique(held.indices)) == 70


def test_errors() -> None:
    labels = np.arange(10)
    with pytest.raises(
        SpecError, match=r"examples: 4 clients × 3 examples = 12, but there are 10; at most 2 per client"
    ):
        dirichlet(labels, clients=4, alpha=1.0, examples=3)
    for alpha in (-0.1, np.nan):
        with pytest.raises(ArgumentError, match="alpha: must be at least 0"):
            dirichlet(labels, clients=4, alpha=alpha)
    with pytest.raises(ArgumentError, match="prior: must be one of 'uniform' or 'empirical'"):
        dirichlet(labels, clients=4, alpha=1.0, prior="test")  # type: ignore[arg-type]
