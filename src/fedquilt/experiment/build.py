"""Makes a federation and an engine from a checked spec."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

from torch import nn

from fedquilt.algorithm.algorithm import Algorithm, check_consistent
from fedquilt.algorithm.loss import with_loss
from fedquilt.algorithm.metric import Metric
from fedquilt.base.arguments import takes
from fedquilt.base.errors import FedquiltError, SpecError, reason_of
from fedquilt.base.rng import torch_seeded
from fedquilt.data.data import Data, require_sound
from fedquilt.data.fetch.folders import beside
from fedquilt.data.joined import joined
from fedquilt.experiment.objective import chosen_loss, chosen_metrics, chosen_validation, require_accuracy
from fedquilt.experiment.spec import Spec, check_spec
from fedquilt.experiment.tables import SIMULATE, WRAP
from fedquilt.experiment.warm import warm
from fedquilt.models.building import WithinMemory
from fedquilt.partition.partition import Partition
from fedquilt.round.federation import Federation
from fedquilt.round.session import Engine
from fedquilt.round.site import Site
from fedquilt.simulate.simulation import Simulation, combined

RETURNS = {
    "data": "a fedquilt.Data, such as fedquilt.arrays(...)",
    "partition": "a fedquilt.Partition, such as fedquilt.Partition.of(...)",
    "model": "a torch.nn.Module",
    "method": "a method, such as fedquilt.fed_avg(...)",
    "wrap": "a method, such as fedquilt.fed_prox(algorithm)",
    "simulate": "a simulation, such as fedquilt.dropout(probability)",
    "engine": "an engine, such as fedquilt.inline()",
}


@runtime_checkable
class _Engine(Engine, Protocol):
    """An engine, told by what it can do."""


@runtime_checkable
class RebuildsSites(Protocol):
    """An engine whose workers can make their run's site by themselves, from its spec."""

    def from_spec(self, site: Callable[[], Site]) -> Engine:
        """Return the engine, told how."""


class Made(NamedTuple):
    """What every view of a spec's run is made of, besides data."""

    module: nn.Module
    algorithm: Algorithm
    metrics: Sequence[Metric] | None
    simulation: Simulation
    engine: Engine


def build(spec: Spec) -> tuple[Federation, Engine]:
    """Load the data, split it over clients, make the model and the method."""
    data, partition = build_population(spec)
    made = made_for(spec, data)
    options = spec.options
    with naming(spec, "model"):
        federation = Federation.of(
            made.module,
            data,
            partition,
            made.algorithm,
            options.seed,
            made.metrics,
            made.simulation,
            options.client_seconds,
            chosen_validation(options),
        )
    with naming(spec, "run"):
        require_accuracy(options, federation)
    return federation, made.engine


def made_for(spec: Spec, data: Data) -> Made:
    """Make the model, the method and the engine of a spec, for data that it may ask for."""
    options = spec.options
    with torch_seeded(options.seed, "initialise"), WithinMemory():
        module = _made(spec, "model", nn.Module, **_wanted(spec, "model", data=data))
    with naming(spec, "run"):
        warm(module, options)
    algorithm = method_of(spec)
    simulation = combined(_made(spec, name, Simulation) for name in spec.parts if name.startswith(SIMULATE))
    home = None if options.import_from is None else Path(options.import_from)
    if options.loss is not None:
        algorithm = with_loss(algorithm, chosen_loss(options.loss, home))
    metrics = None if options.metrics is None else chosen_metrics(options.metrics, home)
    engine = _made(spec, "engine", _Engine)
    if isinstance(engine, RebuildsSites):
        engine = engine.from_spec(partial(_site_of, spec.resolved(), spec.source))
    with naming(spec, "method"):
        check_consistent(algorithm)
    return Made(module, algorithm, metrics, simulation, engine)


def method_of(spec: Spec) -> Algorithm:
    """Make the method of a spec, with its wrappers."""
    algorithm: Algorithm = _made(spec, "method", Algorithm)
    for name in spec.parts:
        if name.startswith(WRAP):
            algorithm = _made(spec, name, Algorithm, algorithm=algorithm)
    return algorithm


def _site_of(tables: dict[str, Any], source: str) -> Site:
    """Make a run's site once more, in another process, or on another machine."""
    return build(check_spec(tables, source))[0].site


def data_of(spec: Spec) -> Data:
    """Load a spec's data; where it has sites, those of all of them."""
    if not spec.sites:
        return _made(spec, "data", Data)  # type: ignore[no-any-return]
    server, sites = site_data(spec, None), [(site.name, site_data(spec, site.name)) for site in spec.sites]
    with naming(spec, "data"):
        return joined(server, sites)


def site_data(spec: Spec, site: str | None) -> Data:
    """Load the data of one site of a spec, or of its server."""
    return _made(spec, "data", Data, site=site)  # type: ignore[no-any-return]


def build_population(spec: Spec) -> tuple[Data, Partition]:
    """Load the data and split it over clients."""
    data = data_of(spec)
    with naming(spec, "data"):
        require_sound(data)
    offered = _wanted(spec, "partition", labels=data.train.y.numpy(), data=data)
    return data, _made(spec, "partition", Partition, **offered)


def _wanted(spec: Spec, table: str, **offered: object) -> dict[str, object]:
    return {name: value for name, value in offered.items() if takes(spec.parts[table].function, name)}


def _made(spec: Spec, table: str, kind: type[Any], **given: object) -> Any:
    part = spec.parts[table]
    with naming(spec, table), beside(spec.folder):
        made = part.function(**given, **part.arguments)
        if not isinstance(made, kind):
            raise SpecError(
                f"name: '{part.name}' must return {RETURNS[table.partition(' ')[0]]}; got {type(made).__name__}"
            )
    return made


@contextmanager
def naming(spec: Spec, table: str) -> Iterator[None]:
    """Say of an error to which table of the spec it belongs."""
    try:
        yield
    except FedquiltError as error:
        named = [name for name, part in spec.parts.items() if error.part is not None and part.name == error.part]
        named = [error.part] if error.part in ("run", "data") else named
        raise SpecError(f"{spec.source}: [{named[0] if named else table}] {error}") from error
    except Exception as error:
        if table not in spec.parts:
            raise
        raise SpecError(f"{spec.source}: [{table}] {spec.parts[table].name} failed: {reason_of(error)}") from error
