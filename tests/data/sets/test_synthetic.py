import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedquilt.base.errors import DataError
from fedquilt.data import Data
from fedquilt.datasets import synthetic


def of_client(data: Data, client: int) -> torch.Tensor:
    assert data.train.ids is not None
    return data.train.x[torch.from_numpy(data.train.ids == client)]


@settings(max_examples=20, deadline=None)
@given(clients=st.integers(1, 12), minimum=st.integers(1, 200), fraction=st.floats(0.05, 0.9), seed=st.integers(0, 99))
def test_sizes(clients: int, minimum: int, fraction: float, seed: int) -> None:
    data = synthetic(clients=clients, minimum=minimum, test_fraction=fraction, features=3, seed=seed)
    assert data.train.ids is not None
    assert data.test.ids is not None
    trained, tested = np.bincount(data.train.ids, minlength=clients), np.bincount(data.test.ids, minlength=clients)
    assert len(trained) == len(tested) == clients
    assert trained.min() >= minimum
    assert np.array_equal(tested, np.ceil(trained * fraction / (1 - fraction)))


def test_sizes_have_the_log_normal_median() -> None:
    data = synthetic(clients=2000, minimum=10, features=1)
    assert data.train.ids is not None
    beyond = np.log(np.bincount(data.train.ids) - 10 + 0.5)
    assert np.median(beyond) == pytest.approx(4, abs=0.15)
    assert np.quantile(beyond, 0.8413) == pytest.approx(6, abs=0.25)  # one standard deviation, 2, above


def test_clients_do_not_depend_on_each_other() -> None:
    few, many = synthetic(clients=3, seed=5), synthetic(clients=9, seed=5)
    for client in range(3):
        assert torch.equal(of_client(few, client), of_client(many, client))
    assert not torch.equal(few.train.x, synthetic(clients=3, seed=6).train.x[: len(few.train)])


def test_features_spread_as_the_paper_says() -> None:
    # One client's features have variance j^−1.2 around its centre.
    data = synthetic(clients=1, minimum=40_000)
    variance = of_client(data, 0).double().var(dim=0).numpy()
    assert variance == pytest.approx(np.arange(1, 61) ** -1.2, rel=0.05)


def test_beta_sets_the_clients_centres_apart() -> None:
    def spread(beta: float) -> float:
        data = synthetic(beta=beta, clients=200, minimum=20, features=30)
        # The mean over the 30 features of a client's centre is B_k, up to a deviation of 30^−½.
        return float(np.std([of_client(data, k).mean() for k in range(200)]))

    assert spread(0.0) == pytest.approx(30**-0.5, rel=0.3)
    assert spread(3.0) == pytest.approx((9 + 1 / 30) ** 0.5, rel=0.2)


def test_labels_are_those_of_a_linear_model() -> None:
    """A client's labels follow one softmax regression: no classes overlap, and a linear model finds them."""
    data = synthetic(clients=1, minimum=3000, features=2, classes=3, seed=3)
    x = torch.cat([data.train.x, torch.ones(len(data.train), 1)], dim=1).double()
    weights = torch.zeros(3, 3, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([weights], max_iter=500, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        optimiser.zero_grad()
        value = torch.nn.functional.cross_entropy(x @ weights, data.train.y)
        value.backward()
        return value

    optimiser.step(loss)
    assert ((x @ weights).argmax(dim=1) == data.train.y).double().mean() > 0.995
    assert len(torch.unique(data.train.y)) > 1


def test_too_large_is_refused_before_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDQUILT_MEMORY", "1MB")
    with pytest.raises(DataError, match=r"synthetic: .* examples would take"):
        synthetic(clients=10, minimum=10_000)
