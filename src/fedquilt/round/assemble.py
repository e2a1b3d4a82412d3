"""Puts a federation together: who holds what, and what is checked before the first round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from torch import nn

from fedquilt.algorithm.algorithm import Algorithm
from fedquilt.algorithm.metric import Metric
from fedquilt.algorithm.parts.metrics import accuracy
from fedquilt.algorithm.penalty import classifier_layer
from fedquilt.base.errors import FedquiltError, SpecError, naming_part
from fedquilt.base.types import Indices
from fedquilt.compute.layout import Layout, ModelState
from fedquilt.compute.pinned import pinned
from fedquilt.compute.replica import Replica, copied
from fedquilt.data.data import Data
from fedquilt.partition.partition import Partition
from fedquilt.round.agreement import Agreement, agree
from fedquilt.round.evaluation import no_rows
from fedquilt.round.per_client import hold_out
from fedquilt.round.rehearsal import Rehearsal
from fedquilt.round.server_data import rows_of_server, take_share
from fedquilt.round.site import ClientTests
from fedquilt.round.validation import Validation
from fedquilt.simulate.simulation import Simulation


class Division(NamedTuple):
    """A data set divided up: what clients train on, rows of the server's own and for validation, clients' tests."""

    data: Data
    partition: Partition
    server_rows: Indices
    validation_rows: Indices
    tests: ClientTests | None


def divided(
    data: Data, given: Partition, algorithm: Algorithm, seed: int, validation: Validation | None = None
) -> Division:
    """Divide a data set up as partition and method ask for it."""
    _require_rows(data, given, "training", len(data.train))
    if not len(given.indices):
        raise FedquiltError("the partition gives no client an example to train on")
    partition, validation_rows = given, no_rows()
    if validation is not None:
        with naming_part("run"):
            partition, validation_rows = validation.hold_out(partition, seed)
    partition = partition.pooled() if algorithm.course.pooled else partition
    if given.noise is not None:
        data = replace(data, train=replace(data.train, noise=given.noise))
    server_rows = rows_of_server(data)
    if not len(server_rows):  # else the server has examples of its own, and takes none from clients
        partition, server_rows = take_share(partition, data.train.y.numpy(), algorithm.after.share, seed)
    share = algorithm.per_client.share
    tests = ClientTests(partition, data.train) if share == 0 else None
    if partition.test is not None:  # those test examples are used, and nothing is held out
        _require_rows(data, partition.test, "test", len(data.test))
        if len(partition.test) != len(partition):
            raise FedquiltError(
                f"the partition has {len(partition)} clients, but per-client tests for {len(partition.test)}"
            )
        tests = ClientTests(partition.test, replace(data.test, noise=partition.test.noise))
    elif share:
        partition, tested = hold_out(partition, share, seed)
        tests = ClientTests(tested, data.train)
    return Division(data, partition, server_rows, validation_rows, tests)


def require_labels_to_flip(simulation: Simulation, data: Data) -> None:
    """Refuse corrupt labels where an example has no single class."""
    flips = any(corruption.labels is not None for corruption in simulation.corruption)
    if flips and (data.train.y.dim() > 1 or not data.classes):
        has = "sequences" if data.classes else "numbers as targets"
        raise FedquiltError(
            f"corrupt: labels can be flipped only if every example has one class label; {data.name} has {has}"
        )


class Prepared(NamedTuple):
    """What every view of a run begins with: a model to train and its first values, what is measured, what is agreed on."""

    replica: Replica
    initial: ModelState
    algorithm: Algorithm
    metrics: tuple[Metric, ...]
    agreement: Agreement


def prepared(
    module: nn.Module,
    data: Data,
    algorithm: Algorithm,
    seed: int,
    metrics: Sequence[Metric] | None,
    known: Indices | Agreement,
) -> Prepared:
    """Copy a model, and try it out on the data that are here.

    What server and sites must do alike is decided here, if clients' sizes are `known`; a site knows what was decided.
    """
    module = copied(module)
    replica = Replica(module, Layout.of(module))
    _require_trained_classifier(module, algorithm)
    with naming_part("run"):
        chosen = measured(metrics, data)
    initial = replica.read()
    with pinned():
        rehearsal = Rehearsal(replica, initial, algorithm, data, chosen, seed)
        agreement = known if isinstance(known, Agreement) else agree(rehearsal, known)
        replica.put_channels_last(agreement.channels_last)
        rehearsal.rehearse()
    return Prepared(replica, initial, agreement.applied(algorithm), chosen, agreement)


def _require_trained_classifier(module: nn.Module, algorithm: Algorithm) -> None:
    """Refuse a penalty on a classifier that is not trained."""
    for penalty in algorithm.penalties:
        with naming_part(penalty.name):
            layer = classifier_layer(module, penalty.layer)
            if not module.get_submodule(layer).weight.requires_grad:
                raise FedquiltError(f"{penalty.name} changes how the classifier learns, but {layer} is frozen")


def measured(metrics: Sequence[Metric] | None, data: Data) -> tuple[Metric, ...]:
    """Return what is measured besides the loss: accuracy, where the data have classes and nothing else is asked for."""
    if metrics is None:
        return (accuracy(),) if data.classes else ()
    for metric in metrics:
        if metric.classes > data.classes:
            has = f"has {data.classes}" if data.classes else "has none: its targets are numbers"
            least = f"at least {metric.classes} classes" if metric.classes > 1 else "classes"
            raise SpecError(f"metrics: {metric.name} needs {least}; the data set {data.name} {has}")
    return tuple(metrics)


def _require_rows(data: Data, held: Partition, part: str, rows: int) -> None:
    """Refuse a partition that names examples which are not there."""
    if len(held.indices) and int(held.indices.min()) < 0:
        raise FedquiltError(f"the partition names example {int(held.indices.min())}; positions start at 0")
    if len(held.indices) and int(held.indices.max()) >= rows:
        raise FedquiltError(
            f"the partition names example {int(held.indices.max())}, but the data set {data.name} has only "
            f"{rows} {part} examples"
        )
