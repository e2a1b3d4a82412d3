"""Searches for tuned values with Optuna: a study for every cell, kept in `search.db` beside the trials.

A few values are proposed at once, run, and told of together, in the order in which they were proposed; each proposal has a
seed of its own. What is proposed thereby depends on results alone, and not on how many trials run at once or how often the
sweep was interrupted. (TPE: Bergstra et al. 2011, "Algorithms for hyper-parameter optimization"; pruning by the median:
Golovin et al. 2017, "Google Vizier".)
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedquilt.base.errors import MissingExtraError
from fedquilt.base.rng import generator
from fedquilt.experiment.contents import ASIDE
from fedquilt.experiment.design.experiment import Experiment
from fedquilt.experiment.design.metric import LOWER, CellMetric
from fedquilt.experiment.design.search import Range, Search, Values
from fedquilt.experiment.design.trial import Trial
from fedquilt.experiment.folder import RunFolder
from fedquilt.experiment.results.measured import curve_name, measure
from fedquilt.experiment.results.outcome import outcome_of
from fedquilt.experiment.results.proposals import Proposal, proposed_trials, write_proposals
from fedquilt.experiment.sweeping.board import TrialProgress
from fedquilt.experiment.sweeping.executors import Advanced

if TYPE_CHECKING:
    import optuna

STORAGE = "search.db"

STARTUP = 10
"""Proposals that are drawn at random before the first that follows from results."""

GIVEN_UP = "given up"
"""What Optuna's storage notes of a proposal that is."""

DIGITS = 6
"""Significant digits of a proposed number: what a folder's name can show."""


class Searched:
    """A `Source` whose trials a search proposes."""

    why_given_up = "others were better after as many rounds"

    def __init__(self, experiment: Experiment, search: Search, folder: Path) -> None:
        """Continue the search that the folder holds, or begin one."""
        self._experiment, self._folder = experiment, folder
        self._metric = objective(experiment.metric)
        self._split = "test" if experiment.tuning is None else experiment.tuning.by
        with _quiet():
            studies = _studies(experiment, search, folder, self._metric)
            self._cells = [_Cell(cell, study, search, experiment) for cell, study in studies.items()]
            self._write()
        self._returned: set[str] = set()
        self._ended: dict[str, str] = {}
        self._caught_up: set[str] = set()

    def more(self) -> Sequence[Trial]:
        """Tell of the proposals that have ended and return the trials of new ones."""
        new = [] if self._returned else proposed_trials(self._experiment, self._folder)
        with _quiet():
            for cell in self._cells:
                cell.tell(self._value, self._ended)
                cell.ask()
                new += [trial for each in cell.open for trial in each.trials if trial.name not in self._returned]
            self._write()
        new = list({trial.name: trial for trial in new}.values())
        self._returned |= {trial.name for trial in new}
        return new

    def _write(self) -> None:
        write_proposals(self._folder, [each for cell in self._cells for each in cell.proposals()])

    def advanced(self, row: TrialProgress, event: Advanced) -> bool:
        """Report how the first repeat of a proposal goes; say whether to give the proposal up."""
        with _quiet():
            for cell in self._cells:
                for proposed in cell.open:
                    if row.name in [trial.name for trial in proposed.trials]:
                        return cell.pruned(proposed) or (
                            row.name == proposed.trials[0].name and self._report(cell, proposed, row.name, event)
                        )
        return False

    def _report(self, cell: _Cell, proposed: _Proposed, name: str, event: Advanced) -> bool:
        lower = self._metric.lower_is_better
        scores = {"test": event.loss if lower else event.accuracy, "validation": None if lower else event.validation}
        found = [(event.round, scores[self._split])]
        if name not in self._caught_up:  # rounds of a session before, of which nobody could be told any more
            self._caught_up.add(name)
            curve = RunFolder(self._folder / name).read().history.curve(curve_name(self._metric.of, self._split))
            found = [*zip(*curve, strict=True), *found]
        return cell.report(proposed, {round_: value for round_, value in found if value is not None})

    def needed(self, trial: Trial) -> bool:
        """Say that every proposal is run, until it is given up."""
        return True

    def ended(self, row: TrialProgress) -> None:
        """Note how a trial ended."""
        self._ended[row.name] = row.state

    def _value(self, trials: Sequence[Trial]) -> float | None:
        """Return the mean of the metric over a proposal's repeats; None where one has no value."""
        outcomes = [outcome_of(trial, self._folder) for trial in trials]
        found = [measure(self._metric, each.history, None, self._split).value for each in outcomes]
        known = [value for value in found if value is not None]
        sound = all(each.state == "finished" for each in outcomes) and len(known) == len(found)
        return sum(known) / len(known) if sound else None


def objective(metric: CellMetric) -> CellMetric:
    """Return what a search goes by: the best of the curve where a cell shows what was spent, or a point of the curve.

    >>> objective(CellMetric("rounds to 97%", "rounds_to", target=0.97)).name, objective(CellMetric("", "last")).name
    ('best', 'last')
    """
    name = metric.name if metric.name in ("best", "last", "mean_of_last") else "best"
    return replace(metric, name=name, target=None, relative_to=None, baseline=None)


@dataclass(frozen=True)
class _Proposed:
    """A proposal under way: its number in the study, and its trials, one a repeat."""

    number: int
    trials: tuple[Trial, ...]


class _Cell:
    """The search in one cell."""

    def __init__(self, cell: tuple[str, ...], study: optuna.Study, search: Search, experiment: Experiment) -> None:
        self._cell, self._study, self._search, self._experiment = cell, study, search, experiment
        self._space = experiment.blueprint.tuned(cell)
        found = study.trials
        self._reported = {each.number: set(each.intermediate_values) for each in found}
        self._given_up = {each.number for each in found if GIVEN_UP in each.user_attrs}
        self.open = [self._proposed(each) for each in found if not each.state.is_finished()]

    def ask(self) -> None:
        """Propose as many values as are tried at once, unless some still are, or were asked for before an interruption."""
        import optuna

        asked = len(self._study.trials)
        if self.open and asked % self._search.at_once == 0:
            return
        while asked < self._search.trials and (not self.open or asked % self._search.at_once):
            # A generator of its own for every proposal: what was drawn before an interruption does not matter.
            seed = int(generator(self._search.seed, "search", self._cell_number, asked).integers(2**31))
            self._study.sampler = optuna.samplers.TPESampler(n_startup_trials=STARTUP, seed=seed)
            found = self._study.ask({key: _distribution(values) for key, values in self._space.items()})
            self.open.append(self._proposed(self._study.trials[found.number]))
            asked += 1

    @property
    def _cell_number(self) -> int:
        return list(self._experiment.blueprint.cells()).index(self._cell)

    def tell(self, value: Any, ended: dict[str, str]) -> None:
        """Tell of the results of all that were proposed at once, when the last of them has ended."""
        import optuna

        if not all(self.pruned(each) or all(trial.name in ended for trial in each.trials) for each in self.open):
            return
        for each in self.open:
            if self.pruned(each):
                continue
            found = value(each.trials)
            states = [ended[trial.name] for trial in each.trials]
            # Values with which training diverges are bad ones; of others, nothing is known.
            failed = optuna.trial.TrialState.FAIL if "failed" in states else optuna.trial.TrialState.PRUNED
            self._study.tell(each.number, found, state=None if found is not None else failed)
        self.open = []

    def report(self, proposed: _Proposed, values: Mapping[int, float]) -> bool:
        """Report what was measured after some rounds; say whether the proposal is given up."""
        import optuna

        if not self._search.prune:
            return False
        trial = optuna.trial.Trial(self._study, self._study.trials[proposed.number]._trial_id)
        reported = self._reported.setdefault(proposed.number, set())
        for round_ in sorted(values.keys() - reported):
            reported.add(round_)
            trial.report(values[round_], round_)
            if trial.should_prune():
                self._given_up.add(proposed.number)
                trial.set_user_attr(GIVEN_UP, True)
                self._study.tell(proposed.number, state=optuna.trial.TrialState.PRUNED)
                return True
        return False

    def pruned(self, proposed: _Proposed) -> bool:
        """Say whether a proposal was given up."""
        return proposed.number in self._given_up

    def proposals(self) -> Iterator[Proposal]:
        """Go through all proposals so far."""
        for each in self._study.trials:
            yield Proposal(self._cell, self._tuned(each), each.number in self._given_up)

    def _proposed(self, found: optuna.trial.FrozenTrial) -> _Proposed:
        repeats, tuned = range(self._experiment.blueprint.repeats), self._tuned(found)
        return _Proposed(found.number, tuple(self._experiment.trial(self._cell, tuned, each) for each in repeats))

    def _tuned(self, found: optuna.trial.FrozenTrial) -> dict[str, Any]:
        return {key: _proposed_value(values, found.params[key]) for key, values in self._space.items()}


def _distribution(values: Values) -> optuna.distributions.BaseDistribution:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(values, Range):
        return (
            IntDistribution(int(values.low), int(values.high), values.log)
            if values.whole
            else FloatDistribution(values.low, values.high, values.log)
        )
    return CategoricalDistribution(range(len(values)))  # positions in the list, whose values may be of any kind


def _proposed_value(values: Values, proposed: Any) -> Any:
    if not isinstance(values, Range):
        return values[proposed]
    return proposed if values.whole else float(f"{proposed:.{DIGITS}g}")


def _studies(
    experiment: Experiment, search: Search, folder: Path, metric: CellMetric
) -> dict[tuple[str, ...], optuna.Study]:
    """Open the studies of a folder, or begin them; those of other settings are set aside."""
    try:
        import optuna
        from sqlalchemy.engine import URL
    except ImportError:
        raise MissingExtraError("[search]", "search") from None
    path = folder / STORAGE
    settings = {cell: _settings(experiment, search, cell) for cell in experiment.cells}
    url = URL.create("sqlite", database=str(path.absolute())).render_as_string(hide_password=False)
    before = {} if not path.exists() else {s.study_name: s.user_attrs for s in optuna.get_all_study_summaries(url)}
    changed = [
        cell for cell, text in settings.items() if before.get(_name(cell), {"settings": text})["settings"] != text
    ]
    if changed:
        RunFolder(folder).set_aside(path)
        warnings.warn(
            f"{folder}: the search begins anew, since what it searches, or what decides the results, has changed; what it "
            f"was is kept in {folder / ASIDE}",
            RuntimeWarning,
            stacklevel=2,
        )
    storage = optuna.storages.RDBStorage(url)
    studies = {}
    for cell, text in settings.items():
        rounds = experiment.trial(cell, {}, 0).spec.options.rounds
        study = optuna.create_study(
            storage=storage,
            study_name=_name(cell),
            direction="minimize" if metric.of in LOWER else "maximize",
            pruner=optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=rounds // 5),
            load_if_exists=True,
        )
        if "settings" not in study.user_attrs:
            study.set_user_attr("settings", text)
        studies[cell] = study
    return studies


def _name(cell: tuple[str, ...]) -> str:
    return ", ".join(cell) or "search"


def _settings(experiment: Experiment, search: Search, cell: tuple[str, ...]) -> str:
    """Write what a search and its results depend on; only the number of trials may grow."""
    tables = experiment.trial(cell, {}, 0).spec.resolved()
    engine = {key: value for key, value in tables.pop("engine").items() if key not in ("workers", "start")}
    tables["run"].pop("checkpoint_seconds")
    values = {key: str(each) for key, each in experiment.blueprint.tuned(cell).items()}
    about = {key: value for key, value in asdict(search).items() if key != "trials"}
    return json.dumps(
        [tables, engine, values, about, experiment.blueprint.repeat, str(experiment.tuning), str(experiment.metric)],
        default=str,
        sort_keys=True,
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Optuna from writing a line for every proposal."""
    try:
        import optuna
    except ImportError:
        raise MissingExtraError("[search]", "search") from None
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)
