"""Methods together: they run, resume, reproduce; those that contradict each other are refused with both names."""

from __future__ import annotations

import pytest

import fedquilt as fq
from fedquilt.base.errors import SpecError
from fedquilt.models import random_fourier


def avg(**more):
    return fq.fed_avg(fraction=0.5, batch=8, **more)


COMBINED = {
    "the second paper's": lambda: fq.fed_ir(fq.fed_vc(fq.fed_avg_m(fraction=0.5, batch=8), size=16)),
    "the fifth paper's best": lambda: fq.server_training(
        fq.sign_agreement(fq.fed_avg_m(fraction=0.5, batch=8), threshold=2), share=0.1
    ),
    "proximal with server momentum": lambda: fq.fed_prox(fq.fed_avg_m(fraction=0.5, batch=8), mu=0.1),
    "projected, noisy, virtual": lambda: fq.fed_vc(fq.gradient_noise(fq.projected(avg(), radius=2.0)), size=16),
    "variates and step counts": lambda: fq.fed_nova(fq.scaffold(avg(momentum=0.5))),
    "features and classes": lambda: fq.fed_ir(fq.fed_avg_r(fq.fed_avg_m(fraction=0.5, batch=8))),
    "clusters of personal models": lambda: fq.fl_hc(fq.ditto(avg(), holdout=0.0), rounds=2, clusters=2),
    "features, variates, server": lambda: fq.server_training(fq.fed_avg_r(fq.scaffold(avg())), share=0.1),
    "importance by the server's data": lambda: fq.fed_ir(fq.server_training(avg(), share=0.2), target="server"),
}


@pytest.fixture
def module():
    import torch

    torch.manual_seed(0)
    return random_fourier(inputs=8, features=6, classes=3, sigma=0.3)


@pytest.mark.filterwarnings("ignore:the run has .* rounds?, but its method changes course:RuntimeWarning")
@pytest.mark.parametrize("name", COMBINED)
def test_together_they_run_resume_and_reproduce(name, module, blobs, unbalanced, tmp_path):
    def go(rounds, engine=None, out=None):
        return fq.train(
            module,
            blobs,
            unbalanced,
            COMBINED[name](),
            rounds=rounds,
            seed=3,
            engine=engine or fq.inline(),
            out=None if out is None else tmp_path / out,
        )

    whole = go(5)
    assert go(5, fq.processes(workers=2)).digest == whole.digest
    for stop in (1, 3):  # before and after FL+HC's clustering
        go(stop, out=f"stopped after {stop}")
        assert go(5, out=f"stopped after {stop}").digest == whole.digest
    assert not any(record["dropped"] for record in whole.history)


@pytest.mark.parametrize(
    ("together", "names", "part"),
    [
        (lambda: fq.median(fq.fed_dyn(avg())), ("fed_dyn", "median"), "reduce"),
        (lambda: fq.fed_dyn(fq.fed_avg_m()), ("fed_avg_m", "fed_dyn"), "server"),
        (lambda: fq.fine_tuned(fq.fl_hc(avg()), holdout=0.5), ("fl_hc", "fine_tuned"), "per_client.share"),
        (lambda: fq.ditto(fq.fine_tuned(avg())), ("fine_tuned", "ditto"), "per_client.personalise"),
    ],
)
def test_contradictions_are_refused_with_both_names(together, names, part):
    with pytest.raises(SpecError, match=rf"{names[0]} and {names[1]} both set `{part}` \(.*\), to different values"):
        together()


@pytest.mark.parametrize("keeping", [fq.scaffold, fq.fed_dyn, fq.ditto])
def test_a_client_that_keeps_something_takes_part_once_a_round(keeping, module, blobs, unbalanced):
    """FedVC draws clients several times unless told not to; in whatever order the two are applied."""
    for method in (keeping(fq.fed_vc(avg(), size=16)), fq.fed_vc(keeping(avg()), size=16)):
        with pytest.raises(SpecError, match="fed_vc draws a client several times a round, but"):
            fq.train(module, blobs, unbalanced, method, 1, engine=fq.inline())
    once = fq.fed_vc(keeping(avg()), size=16, distinct=True)
    fq.train(module, blobs, unbalanced, once, 1, engine=fq.inline())


@pytest.mark.parametrize("normalising", [fq.scaffold, fq.fed_nova])
def test_methods_that_count_steps_need_momentum_that_starts_anew(normalising):
    with pytest.raises(SpecError, match="needs momentum that starts anew in every round"):
        normalising(avg(momentum=0.9, keep_momentum=True))


def test_corrupt_labels_reach_own_models(module, blobs, unbalanced):
    """Ditto's own training, and fine-tuning, see the labels that the corrupt client sees."""
    for own in (fq.ditto, fq.fine_tuned):
        flipped = [fq.corrupt(0.5, kind="label_flip")]
        corrupted = fq.train(module, blobs, unbalanced, own(avg()), 3, engine=fq.inline(), simulate=flipped)
        clean = fq.train(module, blobs, unbalanced, own(avg()), 3, engine=fq.inline())
        assert [r["per_client_accuracy"] for r in clean.history] != [
            r["per_client_accuracy"] for r in corrupted.history
        ]


def test_clusters_mix_the_features_of_their_members_alone(module, blobs, unbalanced):
    method = fq.fl_hc(fq.fed_avg_r(fq.fed_avg(fraction=1.0, batch=8)), rounds=1, clusters=2)
    result = fq.train(module, blobs, unbalanced, method, 3, engine=fq.inline())
    assert len(result.run.groups) == 2
    for group in result.run.groups:
        weights = group.state.broadcast["fed_avg_r"]["weights"]
        assert weights.sum() == pytest.approx(1)
        assert sorted(weights.nonzero().flatten().tolist()) == group.clients.tolist()


def test_a_grid_over_the_fifth_papers_techniques(tmp_path):
    """§4.2's grid search: each technique switched on and off by its own key; zeros leave it out."""
    spec = {
        "run": {"rounds": 2},
        "data": {"name": "digits"},
        "partition": {"name": "shards", "clients": 4},
        "model": {"name": "softmax_regression", "inputs": 64},
        "method": {"name": "fed_avg_m", "fraction": 1.0, "server_momentum": 0.0},
        "engine": {"name": "inline"},
        "wrap": [
            {"name": "projected", "radius": float("inf")},
            {"name": "sign_agreement", "threshold": 0},
            {"name": "server_training", "share": 0.0},
        ],
        "grid": {
            "method.server_momentum": [0.0, 0.9],
            "wrap.2.threshold": [0.0, 2.0],
            "wrap.3.share": [0.0, 0.05],
        },
    }
    done = fq.sweep(spec, out=tmp_path / "grid")
    assert [row.state for row in done.trials] == ["finished"] * 8
