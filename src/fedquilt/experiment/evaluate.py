"""Evaluates the trained model of a run: on the run's data, or on other data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fedquilt.algorithm.loss import with_loss
from fedquilt.algorithm.state import RunState
from fedquilt.base import registry
from fedquilt.base.arguments import check
from fedquilt.base.errors import DataError, FedquiltError, RunError, SpecError, listed
from fedquilt.base.text import visible
from fedquilt.compute.replica import copied
from fedquilt.data.data import IGNORED, Data, whole
from fedquilt.engines.processes import processes
from fedquilt.experiment.build import build, data_of
from fedquilt.experiment.changes import change
from fedquilt.experiment.checkpoint import load_frozen
from fedquilt.experiment.contents import PARTITION, Contents
from fedquilt.experiment.export import NAMES, Which, names_of, stored, warn_if_diverged
from fedquilt.experiment.folder import RunFolder
from fedquilt.experiment.objective import OWN_LOSS, OwnFunction, chosen_loss, chosen_metrics, chosen_validation
from fedquilt.experiment.options import Options
from fedquilt.experiment.run import spec_of
from fedquilt.experiment.spec import Spec, check_spec, read_tables
from fedquilt.experiment.toml import Table
from fedquilt.experiment.warm import warm
from fedquilt.methods.centralised import centralised
from fedquilt.partition.partition import Partition
from fedquilt.partition.stored import stored as stored_partition
from fedquilt.round.evaluation import SplitName, no_rows
from fedquilt.round.federation import Federation
from fedquilt.round.measures import Measures, evaluating

TABLES = (".csv", ".tsv", ".parquet")
"""Endings of files with one row per example, as the data set `table` reads them."""


def evaluate(
    run: str | Path,
    data: str | Path | Data | None = None,
    sets: Iterable[str] = (),
    split: SplitName = "test",
    checkpoint: str | Path | None = None,
    which: Which = "last",
    model: nn.Module | None = None,
    loss: str | OwnFunction | None = None,
) -> dict[str, Any]:
    """Evaluate the model of a run, and return its loss, accuracy and metrics, each group's too where there are several.

    - data: other data than the run's own: a data set's name, a spec file whose `[data]` is taken, a CSV, TSV or Parquet
      file whose rows are tested on, or a `Data`.
    - sets: changes of its keys, such as "data.preprocess=centre". split: "test" or "train"; or "validation", what the run
      held out of its training data.
    - which: the "last" model, or the "best" one of a run with `keep = "best"`. checkpoint: another than the newest.
    - model: for a run from Python, whose model and data no file describes: a module like the one that was trained, with
      any values; give `data`, a `Data`, too, and `loss` if it was trained with a loss of your own.

    >>> import tempfile
    >>> from fedquilt import run
    >>> spec = {
    ...     "run": {"rounds": 2, "metrics": ["accuracy", "top5"]},
    ...     "data": {"name": "digits"},
    ...     "partition": {"name": "iid", "clients": 10},
    ...     "model": {"name": "softmax_regression"},
    ...     "method": {"name": "fed_avg"},
    ... }
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ended = run(spec, out=folder)
    ...     found = evaluate(folder)
    >>> found["accuracy"] == ended.result.history.accuracy[-1], list(found["metrics"])
    (True, ['top5'])
    """
    folder, sets = RunFolder(Path(run)), list(sets)
    found = folder.read_aloud()
    warn_if_diverged(folder, found)
    if "python" in found.tables:
        federation = _from_python(folder, found, data, model, split, loss)
        path, state, about = stored(folder, checkpoint, which)
        return _measured(folder, _loaded(federation, path, about), state, split)
    for name, given in (("model", model), ("loss", loss)):
        if given is not None:
            raise SpecError(f"{name}: the run folder {folder.path} describes its {name}; do not pass another")
    spec = spec_of(folder, found)
    path, state, about = stored(folder, checkpoint, which)
    federation = _loaded(build(spec)[0], path, about)
    names = federation.data.class_names
    if split == "validation":
        _require_validation(federation, data is not None or bool(sets))
    if isinstance(data, Data):
        other: Data | None = data
    elif data is not None and Path(data).suffix in TABLES:
        if split != "test":
            raise SpecError(f"split: all rows of {data} are used for the test; remove --split")
        other = _rows(spec, Path(data), sets, federation.data.classes)
        names = names or tuple(str(number) for number in range(federation.data.classes))
    else:
        other = _other(spec, data, sets)
    if other is not None:
        federation = _on(federation, other if names is None else _numbered_as(federation.data, other, names, split))
    return _measured(folder, federation, state, split)


def _from_python(
    folder: RunFolder,
    found: Contents,
    data: object,
    model: nn.Module | None,
    split: SplitName,
    loss: str | OwnFunction | None,
) -> Federation:
    """Put the federation of a run from Python together from what the user has: its data and its model."""
    if not isinstance(data, Data) or model is None:
        raise RunError(
            f"{folder.path}: is a run from Python, and its data and model are in no file: give them, as in "
            f"fedquilt.evaluate({str(folder.path)!r}, data=data, model=model)"
        )
    options = Options(**check(Options, found.tables["run"]))
    module = copied(model)
    warm(module, replace(options, start=None, start_skip=None))
    algorithm = with_loss(centralised(), chosen_loss(_loss_from_python(folder, found, options, loss)))
    metrics = None if options.metrics is None else chosen_metrics(options.metrics)
    held, validation = Partition.of([range(len(data.train))]), None
    if split == "validation":
        held = stored_partition(folder.path / PARTITION, data.train.y.numpy())
        validation = chosen_validation(options)
    federation = Federation.of(module, data, held, algorithm, options.seed, metrics, validation=validation)
    if split == "validation":
        _require_validation(federation, other=False)
    return federation


def _loss_from_python(
    folder: RunFolder, found: Contents, options: Options, given: str | OwnFunction | None
) -> str | OwnFunction:
    """Return the loss that a run from Python was trained with: it may have been the method's own."""
    known = found.tables["python"].get("loss", options.loss or "cross_entropy")
    if given is None and known == OWN_LOSS:
        raise RunError(
            f"{folder.path}: was trained with a loss of your own, which is in no file: give it, as in "
            f"fedquilt.evaluate({str(folder.path)!r}, data=data, model=model, loss=loss)"
        )
    if given is not None and known not in (OWN_LOSS, given):
        raise SpecError(f"loss: {folder.path} was trained with {known}; do not pass another")
    return known if given is None else given


def _loaded(federation: Federation, path: Path, about: dict[str, str]) -> Federation:
    """Return the federation with what a checkpoint has of its model besides the state, or refuse another model."""
    if about.get(NAMES, names_of(federation.replica)) != names_of(federation.replica):
        raise RunError(
            f"{path}: holds a model with other layers or shapes than its spec describes now, or than the one given"
        )
    federation.replica.put_frozen(load_frozen(path))
    return replace(federation, tests=None)


def _measured(folder: RunFolder, federation: Federation, state: RunState, split: SplitName) -> dict[str, Any]:
    with processes().open(federation) as session:
        record = evaluating(federation.server, session, state, Measures(), split)()
    chosen = federation.evaluator.split(split)
    return {
        "run": str(folder.path),
        "round": state.round,
        "data": federation.data.name,
        "split": split,
        "examples": len(chosen),
    } | record


def _require_validation(federation: Federation, other: bool) -> None:
    """Refuse to evaluate on what is held out where nothing is."""
    if other:
        raise SpecError('split: "validation" is part of the run\'s own data; do not pass other data with it')
    if not len(federation.validation_rows):
        raise SpecError('split: the run holds no examples out ([run] validation or folds); use "test" or "train"')


def _on(federation: Federation, data: Data) -> Federation:
    """Return the federation with other data to evaluate on, or refuse data that the model does not fit."""
    if bool(data.classes) != bool(federation.data.classes):
        raise SpecError(
            f"data: {data.name} cannot test a model of {federation.data.name}: "
            "one has class labels and the other numerical targets"
        )
    federation = replace(federation, data=data, server_rows=no_rows(), validation_rows=no_rows())
    try:
        federation.rehearsal.rehearse()
    except DataError:  # a file that cannot be read
        raise
    except FedquiltError as error:
        raise SpecError(f"data: {error}") from error
    return federation


def _numbered_as(run: Data, data: Data, names: tuple[str, ...], split: SplitName) -> Data:
    """Number the classes of data by their names as the run's data does, where they have any; refuse other names."""
    if data.class_names is None or data.class_names == names or not run.classes:
        return data
    labels = (data.test if split == "test" else data.train).y
    known, named = {name: number for number, name in enumerate(names)}, data.class_names
    other = sorted({named[number] for number in set(whole(labels).tolist())} - known.keys())
    if other:
        classes = (
            f"the numbers from 0 to {run.classes - 1}" if run.class_names is None else f"called {listed(names, 5)}"
        )
        raise SpecError(
            f"data: {data.name}: labels are {listed([repr(visible(name, 40)) for name in other], 3)}, but the classes that "
            f"the run's model was trained on, those of {run.name}, are {classes}: use these names for the labels"
        )
    table = torch.tensor([known.get(name, IGNORED) for name in named])
    train, test = (replace(part, y=table[whole(part.y)]) for part in (data.train, data.test))
    return replace(data, train=train, test=test, classes=run.classes, class_names=run.class_names)


def _other(spec: Spec, data: str | Path | None, sets: list[str]) -> Data | None:
    """Load other data: of a name or of a spec file, with keys changed."""
    if data is None and not sets:
        return None
    table, folder = spec.resolved()["data"], None
    if data is not None:
        table, folder = _table(data)
    return data_of(_with_data(spec, dict(table), sets, str(data or spec.source), folder))


def _rows(spec: Spec, file: Path, sets: list[str], classes: int) -> Data:
    """Read a file of rows to test on: as the run's table was read, or else by its own columns."""
    if not file.is_file():
        raise SpecError(f"data: {file}: no such file")
    table = spec.resolved()["data"]
    if table["name"] == "table":
        table = table | {"test": str(file.absolute())}
    else:
        table = {"name": "table", "path": str(file.absolute()), "test": str(file.absolute()), "classes": classes}
        if not any(assignment.partition("=")[0].strip() == "data.label" for assignment in sets):
            raise SpecError(f"data: which column of {file} is the label? Set it with --set data.label=NAME")
    return replace(data_of(_with_data(spec, table, sets, str(file), None)), name=file.stem)


def _with_data(spec: Spec, table: Table, sets: list[str], source: str, folder: Path | None) -> Spec:
    """Return a run's spec with another `[data]`, and keys of that changed."""
    tables: Table = spec.resolved() | {"data": table}
    for assignment in sets:
        if not assignment.strip().startswith("data."):
            raise SpecError(
                f"--set {visible(assignment, 80)}: only keys of [data] can be changed here, such as --set data.name=mnist"
            )
    change(tables, sets)
    return check_spec(tables, source=source, folder=folder)


def _table(data: str | Path) -> tuple[Table, Path | None]:
    if str(data) in registry.datasets or (":" in str(data) and not Path(data).exists()):
        return {"name": str(data)}, Path.cwd()
    path = Path(data)
    if path.suffix != ".toml" and not path.exists():
        raise SpecError(
            f"data: '{data}' is neither a data set ({', '.join(registry.datasets)}) nor a spec file nor a CSV, TSV or "
            'Parquet file; or give the import path of your own, "module:function"'
        )
    table = read_tables(path).get("data")
    if not isinstance(table, dict):
        raise SpecError(f"{path}: [data]: the table is missing")
    return table, path.resolve().parent
