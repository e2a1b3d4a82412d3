"""Keeps the results of a sweep without its weights: a line for every trial that has ended, small enough to commit.

    python tools/kept.py runs/table-3

writes `experiments/<paper>/results/<file>.jsonl`, or `<file>.<scale>.jsonl` for another scale than the full one. A line has
the trial's name, how it ended, the digests of its model and of its settings, the commit and the machine, the EMD of its
clients, and its metrics: every evaluation, with what was spent since the one before; of a trial that was given up, the last
one. Where tuned values are chosen by their best or last accuracy, lines of values that were not chosen, and of folds, are
reduced to the best evaluation and the last, once all of a cell has ended. Lines of trials that the folder does not have
stay, if the file still has their settings: parts of an experiment may be run apart. Figures of trained models are kept as
their numbers, in `<file>.figures.json`, and as drawings: SVG, or PNG where they have thousands of points.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from fedquilt.analysis.curves import COUNTS, MAIN, History
from fedquilt.experiment.contents import Contents
from fedquilt.experiment.design.experiment import Experiment
from fedquilt.experiment.design.experiment import experiment as read_experiment
from fedquilt.experiment.design.trial import Trial
from fedquilt.experiment.folder import RunFolder
from fedquilt.experiment.report import report
from fedquilt.experiment.results.cells import cells_from
from fedquilt.experiment.results.figures import figures_of
from fedquilt.experiment.results.outcome import GIVEN_UP, NOT_RUN, Outcome, outcome_of
from fedquilt.experiment.results.race import overtaken
from fedquilt.experiment.results.selection import final_trials, outcomes_by_cell, trials_of

ROOT = Path(__file__).resolve().parents[1]
EXPERIMENTS = ROOT / "experiments"
FULL = "full"
NOTHING = History([])
DRAWN = {"interpolation": "svg", "features": "png", "population": "svg"}
"""Figures that need trained models or the data, which are not kept, and as what they are drawn."""


def kept_path(file: Path, scale: str) -> Path:
    """Return where results of an experiment are kept."""
    return file.parent / "results" / (f"{file.stem}.jsonl" if scale == FULL else f"{file.stem}.{scale}.jsonl")


def origin(folder: Path) -> tuple[Path, str]:
    """Return the experiment of a sweep, in this project, and its scale."""
    about = tomllib.loads((folder / "experiment.toml").read_text(encoding="utf-8"))["origin"]
    written = Path(about["file"])
    return EXPERIMENTS / written.parent.name / written.name, about.get("scale") or FULL


def settings(trial: Trial) -> str:
    """Return a digest of what decides a trial's result: its spec, without the engine."""
    tables = {name: table for name, table in trial.spec.resolved().items() if name != "engine"}
    if "start" in tables["run"]:  # wherever this clone is
        tables["run"] = tables["run"] | {"start": _below(Path(tables["run"]["start"]), trial.spec.folder)}
    return hashlib.sha256(json.dumps(tables, sort_keys=True, default=str).encode()).hexdigest()


def _below(path: Path, folder: Path | None) -> str:
    """Return a path as a spec names it: from the spec's folder or, if the file is not there, the working directory."""
    bases = [base for base in (folder, Path.cwd()) if base is not None and path.is_relative_to(base)]
    return path.relative_to(bases[0]).as_posix() if bases else str(path)


def settings_of_all(experiment: Experiment) -> str:
    """Return a digest of what decides the results of all trials."""
    return hashlib.sha256("".join(map(settings, experiment.trials)).encode()).hexdigest()


def kept_lines(experiment: Experiment, folder: Path) -> Iterator[str]:
    """Write the trials of a sweep that have ended, a line each."""
    outcomes = overtaken(experiment, [outcome_of(trial, folder) for trial in trials_of(experiment, folder)])
    shown = {trial.name for cell in cells_from(experiment, outcomes) for trial in cell.trials}
    complete = {cell for cell, found in outcomes_by_cell(outcomes).items() if all(outcome.ended for outcome in found)}
    for outcome in outcomes:
        if outcome.ended and len(outcome.history):
            trial = outcome.trial
            lost = bool(trial.tuned) and trial.cell in complete and trial.name not in shown and by_one_round(experiment)
            line = _line(outcome, RunFolder(outcome.folder).read(), lost)
            yield json.dumps(line, ensure_ascii=False) + "\n"


def by_one_round(experiment: Experiment) -> bool:
    """Say whether every cell shows the accuracy of one round, so that little of a curve is enough to choose by it."""
    return all(metric.name in {"best", "last"} and metric.of == "accuracy" for metric in experiment.metrics)


def _line(outcome: Outcome, found: Contents, lost: bool) -> dict[str, Any]:
    environment = found.environment or {}
    final = outcome.state != GIVEN_UP  # where such a one was stopped, chance decides
    rounds = _evaluated(outcome.history, lost) if final else set()
    return {
        "trial": outcome.trial.name,
        "state": outcome.state,
        "problem": outcome.problem,
        "model": found.saved.about.get("model") if found.saved is not None and final else None,
        "settings": settings(outcome.trial),
        "engine": {key: value for key, value in found.tables.get("engine", {}).items() if key != "workers"},
        "commit": environment.get("commit"),
        "torch": environment.get("packages", {}).get("torch"),
        "processor": environment.get("processor"),
        "instruction_set": environment.get("instruction_set"),
        "emd": None if found.holdings is None else found.holdings.emd,
        "reduced": lost,
        **_columns(outcome.history, rounds | {outcome.history.last}),
    }


def _evaluated(history: History, lost: bool) -> set[int]:
    """Return the rounds after which a run was evaluated; of one that lost, those with the best accuracies."""
    if not lost:
        return {record["round"] for record in history if _values(record)}
    best = set()
    for key in ("accuracy", "validation_accuracy"):
        known = [record for record in history if record.get(key) is not None]
        best |= {max(known, key=lambda record: record[key])["round"]} if known else set()
    return best


def _values(record: Mapping[str, Any]) -> dict[str, Any]:
    return {key: record[key] for key in MAIN if key != "local_loss" and record.get(key) is not None}


def _columns(history: History, rounds: set[int]) -> dict[str, Any]:
    """Return some rounds of a run as columns and rows; counts are those since the row before.

    Values are kept to the last digit: rounded, they could decide a tie of tuned values otherwise.
    """
    rows: list[dict[str, Any]] = []
    spent = dict.fromkeys(COUNTS, 0)
    for record in history:
        for key in COUNTS:
            spent[key] += record.get(key) or 0
        if record["round"] in rounds:
            counted = {key: round(value, 3) for key, value in spent.items()}
            rows.append({"round": record["round"], **_values(record), **(record.get("metrics") or {}), **counted})
            spent = dict.fromkeys(COUNTS, 0)
    columns = list(dict.fromkeys(key for row in rows for key in row))
    return {"columns": columns, "rows": [[row.get(key) for key in columns] for row in rows]}


def keep_figures(experiment: Experiment, folder: Path, path: Path) -> None:
    """Write the figures that an experiment asks for and that metrics do not give: their numbers, and drawings."""
    found = [each for each in figures_of(experiment, folder) if each.problem is None and each.request.name in DRAWN]
    if not found:
        return
    of = settings_of_all(experiment)
    numbers = [
        {"name": each.request.name, "title": each.request.title, "settings": of, **_numbers(each.data)}
        for each in found
    ]
    path.with_suffix(".figures.json").write_text(json.dumps(numbers, indent=1, ensure_ascii=False) + "\n", "utf-8")
    with tempfile.TemporaryDirectory() as out:
        report(folder, out=out)
        for name, kind in DRAWN.items():
            for drawing in sorted(Path(out).glob(f"**/*-{name}*.{kind}")):
                if drawing.stem.endswith("accuracy"):
                    continue
                shutil.copy(drawing, path.with_name(f"{path.stem}-{drawing.name}"))


def _numbers(data: dict[str, Any]) -> dict[str, Any]:
    """Leave the single points of features, and populations, to the drawing."""
    if "panels" not in data:
        return {key: value for key, value in data.items() if key != "run"}
    return {"panels": [{key: panel[key] for key in ("title", "discrepancy", "explained")} for panel in data["panels"]]}


def read_lines(path: Path) -> dict[str, dict[str, Any]]:
    """Return what is kept, by trial."""
    return {line["trial"]: line for line in map(json.loads, path.read_text(encoding="utf-8").splitlines())}


def read_kept(experiment: Experiment, path: Path) -> list[Outcome]:
    """Return the outcome of every trial of an experiment, from what is kept of it alone."""
    lines = read_lines(path)
    outcome = partial(_outcome, whole=not by_one_round(experiment))
    outcomes = [outcome(trial, lines.get(trial.name)) for trial in experiment.trials]
    if experiment.tuning is not None and experiment.tuning.folds is not None:
        for cell in list(outcomes_by_cell(outcomes).values()):
            outcomes += [outcome(trial, lines.get(trial.name)) for trial in final_trials(experiment, cell)]
    return outcomes


def _outcome(trial: Trial, line: dict[str, Any] | None, whole: bool) -> Outcome:
    where = Path(trial.name)
    if line is None:
        return Outcome(trial, where, "not run", NOTHING, NOT_RUN)
    if line["settings"] != settings(trial):
        return Outcome(trial, where, "unusable", NOTHING, "was run with other settings than the file has now")
    if whole and line.get("reduced"):
        return Outcome(trial, where, "unusable", NOTHING, "only its best and last evaluations are kept")
    records = [_record(dict(zip(line["columns"], row, strict=True))) for row in line["rows"]]
    return Outcome(trial, where, line["state"], History(records, thinned=True), line["problem"])


def _record(row: dict[str, Any]) -> dict[str, Any]:
    """Write a row as a run records it, other metrics than the usual ones by themselves."""
    usual = {key: value for key, value in row.items() if key in ("round", *MAIN, *COUNTS)}
    return usual | {"metrics": {key: value for key, value in row.items() if key not in usual and value is not None}}


def earlier_lines(experiment: Experiment, path: Path) -> dict[str, str]:
    """Return the lines that are kept of trials which an experiment still has, with the same settings, by trial."""
    if not path.exists():
        return {}
    usable = {outcome.trial.name for outcome in read_kept(experiment, path) if outcome.ended}
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return {name: line for line in lines if (name := json.loads(line)["trial"]) in usable}


def main(folders: Sequence[str]) -> None:
    """Keep the results of sweeps."""
    for folder in map(Path, folders):
        file, scale = origin(folder)
        path = kept_path(file, scale)
        path.parent.mkdir(exist_ok=True)
        experiment = read_experiment(file, scale=scale)
        lines = {json.loads(line)["trial"]: line for line in kept_lines(experiment, folder)}
        path.write_text("".join({**earlier_lines(experiment, path), **lines}.values()), encoding="utf-8")
        keep_figures(experiment, folder, path)
        print(f"{len(lines)} trials: {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main(sys.argv[1:])
