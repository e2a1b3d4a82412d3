"""The part of the page that shows an experiment: its table in the paper's shape, and what stands behind every cell."""

from __future__ import annotations

import shlex
import statistics
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedquilt.base.errors import RunError, SpecError
from fedquilt.base.text import counted, percent
from fedquilt.experiment.contents import EXPERIMENT
from fedquilt.experiment.design import experiment as design
from fedquilt.experiment.design.experiment import Experiment
from fedquilt.experiment.design.keys import label
from fedquilt.experiment.page.curves import over_of
from fedquilt.experiment.page.figure import Figure
from fedquilt.experiment.page.hyper_parameters import figure_of_hyper_parameters
from fedquilt.experiment.page.model_figures import model_figures
from fedquilt.experiment.page.part import Detail, Part, RunGroup, detail_of, machine, run_figures
from fedquilt.experiment.page.skewness import Reached, figure_of_skew
from fedquilt.experiment.page.source import Reader, ReadRun
from fedquilt.experiment.page.table import TextTable
from fedquilt.experiment.results.cells import Cell, cells_from
from fedquilt.experiment.results.figures import FigureData
from fedquilt.experiment.results.outcome import GIVEN_UP, Outcome
from fedquilt.experiment.results.race import overtaken
from fedquilt.experiment.results.selection import trials_of
from fedquilt.experiment.results.shaped import AGREES, agreement
from fedquilt.experiment.results.table import is_number, table_of
from fedquilt.experiment.results.written import ours, unit_of


@dataclass(frozen=True)
class Study:
    """An experiment with its runs, as they are now."""

    experiment: Experiment
    folder: Path
    outcomes: tuple[Outcome, ...]
    cells: tuple[Cell, ...]
    runs: dict[str, ReadRun]
    figures: tuple[FigureData, ...]


def read_study(folder: Path, reader: Reader) -> Study:
    """Read the folder of an experiment: its file, and the runs that there are so far."""
    try:
        experiment = design.experiment(folder / EXPERIMENT)
    except SpecError as error:
        raise RunError(f"{folder}: the experiment cannot be read: {error}") from None
    outcomes = tuple(overtaken(experiment, [reader.outcome(trial, folder) for trial in trials_of(experiment, folder)]))
    begun = [outcome for outcome in outcomes if len(outcome.history) or outcome.state not in ("not run", GIVEN_UP)]
    if not begun:
        file = shlex.quote(_near(experiment.tables.get("origin", {}).get("file") or str(folder / EXPERIMENT)))
        raise RunError(
            f"{folder}: none of the experiment's {counted(len(outcomes), 'trial')} has begun; "
            f"`fedquilt sweep {file} --out {shlex.quote(str(folder))}` runs them"
        )
    runs = {outcome.trial.name: reader.run(outcome.folder) for outcome in begun}
    cells = tuple(cells_from(experiment, outcomes))
    return Study(experiment, folder, outcomes, cells, runs, reader.figures(experiment, folder, outcomes))


def part_of_experiment(study: Study) -> Part:
    """Show an experiment."""
    experiment, cells = study.experiment, study.cells
    table = table_of(experiment, cells)
    groups = _groups(study)
    figures = run_figures(groups, over=over_of(experiment.metric), monotonic=experiment.monotonic)
    more = [_skew(study), figure_of_hyper_parameters(experiment, study.outcomes)]
    figures[1:1] = [figure for figure in more if figure is not None]
    by_folder = {str(run.path): run.found for run in study.runs.values() if run.found is not None}
    asked, missing = model_figures(study.figures, by_folder)
    figures[:0] = asked
    files = {"results.md": table.to_markdown(), "results.csv": table.to_csv(), "results.tex": table.to_latex()}
    return Part(
        title=experiment.title,
        lead=_lead(study),
        facts=(*([experiment.caption] if experiment.caption else []), *table.notes, *missing),
        result=table,
        tables=(_trials(study),),
        figures=tuple(figures),
        details=tuple(_details(study)),
        notes=tuple(
            text for run in study.runs.values() for text in (run.found.damage if run.found else [run.problem or ""])
        ),
        files=files,
    )


def name_of(experiment: Experiment, cell: Sequence[str], without: Collection[str] = ()) -> str:
    """Name a cell: its cases, with the names of the axes whose cases are values, but those of the axes in `without`.

    >>> digits = {"run": {"rounds": 3}, "data": {"name": "digits"}, "partition": {"name": "iid", "clients": 10}}
    >>> digits |= {"model": {"name": "softmax_regression"}, "method": {"name": "fed_avg"}}
    >>> name_of(design.experiment(digits | {"grid": {"method.lr": [0.1, 0.5], "method.epochs": [1, 5]}}), ("0.1", "5"))
    'lr = 0.1, epochs = 5'
    """
    axes = experiment.blueprint.axes
    pieces = [
        case if axis.named and not is_number(case) else f"{axis.name} = {case}"
        for axis, case in zip(axes, cell, strict=False)
        if len(axis.cases) > 1 and axis.name not in without
    ]
    return ", ".join(pieces) or experiment.title


def _groups(study: Study) -> list[RunGroup]:
    """Return the runs that each cell shows, those of the first metric."""
    first = study.experiment.metric.label
    shown = [cell for cell in study.cells if cell.metric.label == first]
    return [
        RunGroup(
            name_of(study.experiment, cell.key), tuple(study.runs[t.name] for t in cell.trials if t.name in study.runs)
        )
        for cell in shown
    ]


def _lead(study: Study) -> str:
    """Say in a few sentences what came out."""
    metric = study.experiment.metric
    known = [c for c in study.cells if c.metric.label == metric.label and c.value is not None and not c.beyond]
    ended = sum(outcome.ended for outcome in study.outcomes)
    words = []
    if known:
        best = (min if metric.lower_is_better else max)(known, key=lambda cell: cell.value or 0.0)
        unit = unit_of(metric).name
        so_far = " so far" if any(cell.problem is not None for cell in study.cells) else ""
        ahead = f" is ahead{so_far} with" if len(known) > 1 else f" has{so_far}"
        words.append(
            f"{metric.label[0].upper()}{metric.label[1:]}: {name_of(study.experiment, best.key)}{ahead} {ours(best)}"
            f"{'%' if unit == '%' else f' {unit}'}."
        )
    compared = [kind for cell in study.cells if (kind := agreement(cell)) is not None]
    if compared:
        words.append(f"{compared.count(AGREES)} of {counted(len(compared), 'published value')} agree with ours.")
    states = Counter(outcome.state for outcome in study.outcomes if outcome.state != "finished")
    if ended < len(study.outcomes) or states:
        rest = ", ".join(f"{count} {state}" for state, count in states.items())
        words.append(f"{ended} of {counted(len(study.outcomes), 'trial')} at their end ({rest}).")
    else:
        words.append(f"{counted(ended, 'trial')}.")
    return " ".join(words)


def _trials(study: Study) -> TextTable:
    """List all trials, also those with tuned values that were not chosen."""
    chosen = {trial.name for cell in study.cells for trial in cell.trials}
    header = ("trial", "shown", "state", "rounds", "last accuracy", "best accuracy", "MB sent", "seconds")
    rows = []
    for outcome in study.outcomes:
        run = study.runs.get(outcome.trial.name)
        about = run.about if run is not None else None
        history = outcome.history
        known = (about["known"] or about) if about is not None else None
        sent = None if known is None else (known["bytes_up"] or 0) + (known["bytes_down"] or 0)
        rows.append(
            (
                outcome.trial.name,
                "yes" if outcome.trial.name in chosen else "",
                outcome.state,
                "–" if about is None else f"{about['round']}/{about['rounds']}",
                "–" if about is None else percent(about["accuracy"]),
                percent(history.best[1]) if history.best else "–",
                "–" if sent is None else f"{sent / 1e6:.1f}",
                "–" if known is None else f"{known['seconds']:.1f}",
            )
        )
    if len(chosen) == len(rows):
        return TextTable("trials", "Trials", header, tuple(rows)).without("shown")
    caption = "“shown” are the trials behind the cells of the table; the others had tuned values that were not chosen."
    return TextTable("trials", "Trials", header, tuple(rows), caption)


def _details(study: Study) -> list[Detail]:
    """Say of every cell how it was made, run by run."""
    details = []
    experiment = study.experiment
    for cell in study.cells:
        runs = [(trial, study.runs.get(trial.name)) for trial in cell.trials]
        about: dict[str, str] = {
            experiment.metric.label if len(experiment.metrics) == 1 else cell.metric.label: ours(cell)
        }
        if cell.chosen:
            about["tuned values"] = label(cell.chosen)
        if cell.derived:
            about["derived"] = label(cell.derived)
        if cell.problem is not None:
            about["problem"] = cell.problem
        inner = tuple(detail_of(trial.name, run) for trial, run in runs if run is not None)
        made = {machine(run.found.environment or {}) for _, run in runs if run is not None and run.found is not None}
        about["machine"] = "; ".join(sorted(made)) or "–"
        metric = f": {cell.metric.label}" if len(experiment.metrics) > 1 else ""
        name = f"{name_of(experiment, cell.key)}{metric}"
        details.append(Detail(name, about, _command(study, cell), "", inner))
    return details


def _command(study: Study, cell: Cell) -> str:
    """Return the command that runs a cell's trials."""
    experiment = study.experiment
    origin = experiment.tables.get("origin", {})
    file = origin.get("file")
    words = ["fedquilt", "sweep", _near(file) if file else str(study.folder / EXPERIMENT)]
    words += ["--scale", experiment.scale] if experiment.scale else []
    words += [word for key, value in origin.get("sets", {}).items() for word in ("--set", f"{key}={label(value)}")]
    axes = [axis for axis in experiment.blueprint.axes if len(axis.cases) > 1]
    if len(axes) == 1:
        case = cell.key[experiment.blueprint.axes.index(axes[0])]
        words += ["--only", case if axes[0].named else f"{axes[0].name}={case}"]
    return shlex.join([*words, "--out", str(study.folder)])


def _near(file: str) -> str:
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file


def _skew(study: Study) -> Figure | None:
    """Draw the cells over the EMD of their populations, if these differ."""
    seen = {name: run.found.holdings for name, run in study.runs.items() if run.found is not None}
    emds = {name: held.emd for name, held in seen.items() if held is not None and held.emd is not None}
    return figure_of_cells_by_skew(study.experiment, study.cells, emds)


def figure_of_cells_by_skew(experiment: Experiment, cells: Sequence[Cell], emds: Mapping[str, float]) -> Figure | None:
    """Draw cells over the EMD of their trials' populations, by trial in `emds`; None where it is always the same."""
    metric = experiment.metric
    populations = [
        axis.name
        for axis in experiment.blueprint.axes
        if any(key.partition(".")[0] in ("partition", "data") for case in axis.cases.values() for key in case.keys)
    ]
    unit = unit_of(metric)
    points = []
    for cell in cells:
        if cell.metric.label != metric.label or cell.value is None or cell.beyond:
            continue
        known = [emds[trial.name] for trial in cell.trials if trial.name in emds]
        if known:
            line = name_of(experiment, cell.key, without=populations)
            spread = None if cell.std is None else round(unit.factor * cell.std, 4)
            value = round(unit.factor * cell.value, 4)
            points.append(Reached(line, statistics.fmean(known), value, spread, name_of(experiment, cell.key)))
    if len({round(point.emd, 2) for point in points}) < 2:
        return None
    return figure_of_skew(points, f"{metric.label} ({unit.name})" if unit.name not in metric.label else metric.label)
