"""Which tables a spec and an experiment file have, and what each of them can name."""

from __future__ import annotations

from fedquilt.base import registry
from fedquilt.base.registry import Registry

REGISTRIES: dict[str, Registry] = {
    "data": registry.datasets,
    "partition": registry.partitions,
    "model": registry.models,
    "method": registry.methods,
    "engine": registry.engines,
}
DEFAULT_ENGINE = "auto"
"""The engine of a spec that names none."""

WRAP, SIMULATE = "wrap", "simulate"
SITE = "site"
"""The table of a site of a real federation, written `[[site]]`: its name and its public key."""

ARRAYS: dict[str, Registry] = {WRAP: registry.wrappers, SIMULATE: registry.simulations}
"""Tables of which a spec has any number, written `[[wrap]]` and `[[simulate]]`. The n-th is the part `wrap n`."""

MOST_WRAPS = 50
"""Each calls the one that it wraps: more would fill Python's stack."""

GIVEN = {
    "data": frozenset({"site"}),
    "partition": frozenset({"labels", "data"}),
    "model": frozenset({"data"}),
    WRAP: frozenset({"algorithm"}),
}
"""Parameters that are filled in: by the data set, which partitions and models may ask for, by the wrapped method, and by
the name of each site, where a spec has sites."""

EXPERIMENT_TABLES = (
    "experiment", "case", "grid", "zip", "when", "values", "derive", "tune", "repeat", "metric", "significance", "figure",
    "published", "scale", "search",
)  # fmt: skip
"""Tables of a file that describes many runs; see `experiment/design`."""
