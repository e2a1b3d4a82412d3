"""The names that others may rely on, and how they are documented."""

from __future__ import annotations

import inspect

import pytest

import fedquilt
from fedquilt import registry

NAMES = [
    "Data",
    "FedquiltError",
    "History",
    "Inspection",
    "Partition",
    "Result",
    "Run",
    "Simulation",
    "Split",
    "arrays",
    "availability",
    "centralised",
    "cifar10",
    "cifar100",
    "class_blocks",
    "corrupt",
    "digits",
    "dirichlet",
    "dirichlet_per_class",
    "ditto",
    "dropout",
    "evaluate",
    "export",
    "fashion_mnist",
    "feature_skew",
    "fed_adagrad",
    "fed_adam",
    "fed_avg",
    "fed_avg_m",
    "fed_avg_r",
    "fed_dyn",
    "fed_ir",
    "fed_nova",
    "fed_prox",
    "fed_sgd",
    "fed_vc",
    "fed_yogi",
    "femnist",
    "fine_tuned",
    "fl_hc",
    "geo",
    "geometric_median",
    "gradient_noise",
    "hugging_face",
    "iid",
    "image_folder",
    "inaturalist",
    "inline",
    "inspect_partition",
    "krum",
    "landmarks",
    "leaf",
    "libsvm",
    "load_spec",
    "load_weights",
    "local_only",
    "median",
    "mnist",
    "mnist_5k",
    "natural",
    "no_import",
    "norm_bound",
    "one_shot",
    "own_test",
    "posts",
    "power_law",
    "processes",
    "projected",
    "quantity_skew",
    "report",
    "resume",
    "rounds_to",
    "run",
    "scaffold",
    "server_training",
    "shakespeare",
    "shards",
    "sign_agreement",
    "stack_overflow",
    "stored",
    "stragglers",
    "stratified",
    "summary",
    "sweep",
    "synthetic",
    "table",
    "train",
    "trimmed_mean",
    "vectorised",
]

REGISTERED = {
    "methods": [
        "centralised",
        "fed_avg",
        "fed_avg_m",
        "fed_sgd",
        "local_only",
        "one_shot",
    ],
    "models": [
        "char_lstm",
        "cifar_cnn_hsu",
        "cifar_cnn_mcmahan",
        "mnist_2nn",
        "mnist_cnn",
        "mobilenet_v2",
        "random_fourier",
        "resnet20_fixup",
        "softmax_regression",
        "word_lstm",
    ],
    "datasets": [
        "cifar10",
        "cifar100",
        "digits",
        "fashion_mnist",
        "femnist",
        "hugging_face",
        "image_folder",
        "inaturalist",
        "landmarks",
        "leaf",
        "libsvm",
        "mnist",
        "mnist_5k",
        "posts",
        "shakespeare",
        "stack_overflow",
        "synthetic",
        "table",
    ],
    "partitions": [
        "class_blocks",
        "dirichlet",
        "dirichlet_per_class",
        "feature_skew",
        "geo",
        "iid",
        "natural",
        "power_law",
        "quantity_skew",
        "shards",
        "stored",
        "stratified",
    ],
    "wrappers": [
        "ditto",
        "fed_adagrad",
        "fed_adam",
        "fed_avg_r",
        "fed_dyn",
        "fed_ir",
        "fed_nova",
        "fed_prox",
        "fed_vc",
        "fed_yogi",
        "fine_tuned",
        "fl_hc",
        "geometric_median",
        "gradient_noise",
        "krum",
        "median",
        "norm_bound",
        "own_test",
        "projected",
        "scaffold",
        "server_training",
        "sign_agreement",
        "trimmed_mean",
    ],
    "simulations": ["availability", "corrupt", "dropout", "stragglers"],
    "engines": ["inline", "processes", "vectorised"],
    "losses": ["cross_entropy", "mean_squared_error"],
    "metrics": ["accuracy", "error", "perplexity", "top5"],
}

FUNCTIONS = [name for name in NAMES if inspect.isfunction(getattr(fedquilt, name))]


def test_public_names() -> None:
    """A change here is a change of the interface: CHANGELOG.md has to say so."""
    assert sorted(fedquilt.__all__) == NAMES
    assert all(hasattr(fedquilt, name) for name in NAMES)


@pytest.mark.parametrize("kind", REGISTERED)
def test_registered_names(kind: str) -> None:
    assert list(getattr(registry, kind)) == REGISTERED[kind]


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in REGISTERED.items() for name in names])
def test_summary_is_one_sentence(kind: str, name: str) -> None:
    chosen: registry.Registry = getattr(registry, kind)
    summary = chosen.summary(name)
    rest = (inspect.getdoc(chosen[name]) or "").split("\n")[1:]
    assert summary.endswith(".")
    assert rest == [] or rest[0] == "", "the first line is the whole sentence"


@pytest.mark.parametrize("name", REGISTERED["methods"])
def test_methods_name_their_paper(name: str) -> None:
    assert "20" in registry.methods.summary(name)


@pytest.mark.parametrize("name", NAMES)
def test_public_names_are_documented(name: str) -> None:
    assert (inspect.getdoc(getattr(fedquilt, name)) or "").split("\n")[0].endswith(".")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_public_functions_have_an_example(name: str) -> None:
    assert ">>> " in (inspect.getdoc(getattr(fedquilt, name)) or "")
