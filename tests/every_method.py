"""Every registered method, wrapper and simulation, with arguments: for tests that hold for all of them."""

from __future__ import annotations

import inspect
import typing
from typing import Any

import fedquilt
from fedquilt.algorithm.algorithm import Algorithm
from fedquilt.base import registry
from fedquilt.simulate import Simulation

METHODS = [*registry.methods, *registry.wrappers, *registry.simulations]

STEPS = {"lr": 0.05, "epochs": 2, "batch": 7, "momentum": 0.5, "weight_decay": 0.1}
"""Other values of the arguments that most methods have."""

ADAPTIVE = {"server_lr": 0.02, "beta1": 0.5, "tau": 0.01}

CHOSEN: dict[str, list[dict[str, Any]]] = {
    "centralised": [
        {"lr": 0.05, "batch": 7, "momentum": 0.5, "weight_decay": 0.1},
        {"batch": 7, "steps": 3},
        {"batch": 7, "drop_last": True},
    ],
    "fed_avg": [
        STEPS | {"fraction": 0.5, "reshuffle": False, "keep_momentum": True},
        {"fraction": 0.5, "batch": float("inf"), "weight_decay": 0.1},
        {"cohort": 4, "batch": 7, "drop_last": True},
    ],
    "fed_avg_m": [
        STEPS | {"fraction": 0.5, "server_momentum": 0.5, "nesterov": True, "server_lr": 0.5},
        {"cohort": 4, "momentum": 0.5, "reshuffle": False, "keep_momentum": True, "drop_last": True},
    ],
    "fed_sgd": [{"lr": 0.05, "fraction": 0.5, "weight_decay": 0.1}, {"cohort": 4}],
    "local_only": [STEPS | {"holdout": 0.0}, {"batch": 7, "drop_last": True}],
    "one_shot": [
        {
            "lr": 0.05,
            "batch": 7,
            "tolerance": 0.01,
            "patience": 2,
            "max_epochs": 3,
            "momentum": 0.5,
            "weight_decay": 0.1,
        },
        {"batch": 7, "max_epochs": 3, "drop_last": True},
    ],
    "availability": [{"period": 2, "low": 0.5, "high": 0.6}],
    "corrupt": [
        {"share": 0.5, "kind": "noise", "strength": 0.1},
        {"share": 0.5, "kind": "label_flip"},
        {"share": 0.5, "kind": "sign_flip"},
        {"share": 0.5, "kind": "nan"},
    ],
    "ditto": [{"pull": 1.0, "lr": 0.05, "epochs": 2, "batch": 7, "holdout": 0.0}, {"batch": 7, "drop_last": True}],
    "dropout": [{"probability": 0.5}],
    "fed_adagrad": [ADAPTIVE],
    "fed_adam": [ADAPTIVE | {"beta2": 0.5}],
    "fed_yogi": [ADAPTIVE | {"beta2": 0.5}],
    "fed_avg_r": [
        {"alpha": 0.1, "beta": 0.1, "gamma": 0.1, "norm": "client", "squared": True, "estimator": "full"},
        {"alpha": 0.0, "beta": 0.1, "gamma": 0.0, "norm": "batch"},
        {"alpha": 0.0, "beta": 0.1, "gamma": 0.0, "norm": "client"},
        {"alpha": 0.1, "beta": 0.0, "gamma": 0.0, "layer": "2"},
        {"alpha": 0.0, "beta": 0.0, "gamma": 0.1, "samples": 7},
    ],
    "fed_dyn": [{"alpha": 0.1}],
    "fed_ir": [
        {"target": "uniform", "normalise": False},
        {"target": "population", "normalise": False},
        {"target": [1.0, 0.0, 3.0], "normalise": False},
        {"target": [1.0, 0.0, 3.0]},
    ],
    "fed_prox": [{"mu": 0.5}],
    "fed_vc": [{"size": 16, "distinct": True}],
    "fine_tuned": [{"lr": 0.05, "epochs": 2, "batch": 7, "holdout": 0.0}, {"batch": 7, "drop_last": True}],
    "fl_hc": [
        {"rounds": 1, "clusters": 3, "linkage": "average", "distance": "cosine", "holdout": 0.1},
        {"rounds": 1, "threshold": 0.5, "linkage": "single", "distance": "cityblock"},
        {"rounds": 1, "clusters": 3, "linkage": "complete"},
    ],
    "geometric_median": [{"iterations": 3, "tolerance": 0.01, "smoothing": 0.01}],
    "gradient_noise": [{"std": 0.01}],
    "krum": [{"corrupt": 1, "selected": 2}],
    "norm_bound": [{"limit": 0.1}],
    "own_test": [{"holdout": 0.0}],
    "projected": [{"radius": 1.0, "centre": "start"}],
    "server_training": [STEPS | {"share": 0.1}, {"batch": 7, "drop_last": True}],
    "sign_agreement": [{"threshold": 1.0, "mask": "update", "absolute": False, "flip": True}],
    "stragglers": [{"seconds_per_example": 0.1, "spread": 0.1, "deadline": 4.0, "over_select": 0.5}],
    "trimmed_mean": [{"trim": 0.4}],
}
"""Arguments that differ from the defaults, where other values than those of `derived` are wanted."""


def parameters(name: str) -> dict[str, inspect.Parameter]:
    """Return the arguments that a method takes, besides the one that a wrapper wraps."""
    function = function_of(name)
    return {key: each for key, each in inspect.signature(function).parameters.items() if key != "algorithm"}


def function_of(name: str) -> Any:
    known = (registry.methods, registry.wrappers, registry.simulations)
    return next(functions[name] for functions in known if name in functions)


def derived(name: str) -> list[dict[str, Any]]:
    """Return other values than the defaults, for a method with nothing in CHOSEN."""
    hints = typing.get_type_hints(function_of(name))
    changed = {key: other_value(each.default, hints[key]) for key, each in parameters(name).items()}
    return [changed] if changed else []


def other_value(default: object, hint: object) -> object:
    if typing.get_origin(hint) is typing.Literal:
        return next(choice for choice in typing.get_args(hint) if choice != default)
    match default:
        case bool():
            return not default
        case int():
            return default + 1
        case float():
            return default / 2 if default else 0.1
    raise NotImplementedError(f"no other value is known for an argument with the default {default!r}: add it to CHOSEN")


VARIANTS = {name: CHOSEN[name] if name in CHOSEN else derived(name) for name in METHODS}
"""Every argument of every method stands in one of them at least."""

PAIRS = [(name, number) for name in METHODS for number in range(len(VARIANTS[name]))]


def base() -> Algorithm:
    """What wrappers are put around: batches of 8, so that most clients have a shorter one."""
    return fedquilt.fed_avg(fraction=0.5, batch=8)


def made(name: str, **arguments: Any) -> Algorithm:
    """Return a method, a wrapper around the base, or the base for a simulation."""
    if name in registry.methods:
        return registry.methods[name](**arguments)  # type: ignore[return-value]
    if name in registry.simulations:
        return base()
    return registry.wrappers[name](base(), **arguments)  # type: ignore[return-value]


def simulated(name: str, **arguments: Any) -> list[Simulation]:
    """Return what is simulated: nothing, unless it is the name of a simulation."""
    return [registry.simulations[name](**arguments)] if name in registry.simulations else []  # type: ignore[list-item]
