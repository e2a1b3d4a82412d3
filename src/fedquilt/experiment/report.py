"""A report: runs, folders of runs and experiments on one page, with every table and figure as files too."""

from __future__ import annotations

import html
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedquilt.base.errors import RunError, SpecError
from fedquilt.base.text import html_table
from fedquilt.experiment.contents import EXPERIMENT, no_folder
from fedquilt.experiment.imports import unimported
from fedquilt.experiment.page.document import page
from fedquilt.experiment.page.experiment import part_of_experiment, read_study
from fedquilt.experiment.page.figure import FORMATS
from fedquilt.experiment.page.part import Part
from fedquilt.experiment.page.runs import part_of_runs
from fedquilt.experiment.page.source import Reader, ReadRun, is_run, run_folders
from fedquilt.experiment.page.table import TextTable
from fedquilt.experiment.storage import storing

PAGE = "index.html"


@dataclass(frozen=True)
class Report:
    """What was read, and the files that were written; `tables` are those of the page."""

    parts: tuple[Part, ...]
    target: float | None
    files: tuple[Path, ...]

    @property
    def page(self) -> Path:
        """The page that shows it all."""
        return self.files[0]

    def _repr_html_(self) -> str:
        """Show its tables in a notebook, and a link to the page."""
        tables = "".join(
            part.result._repr_html_()
            if part.result is not None
            else "".join(html_table(table.header, table.rows) for table in part.tables)
            for part in self.parts
        )
        return f'{tables}<p><a href="{html.escape(str(self.page))}">{html.escape(str(self.page))}</a></p>'

    @property
    def tables(self) -> tuple[TextTable, ...]:
        """The tables of all parts."""
        return tuple(table for part in self.parts for table in part.tables)

    @property
    def damage(self) -> tuple[str, ...]:
        """What was found damaged."""
        return tuple(note for part in self.parts for note in part.notes)


def report(
    paths: str | Path | Sequence[str | Path], out: str | Path | None = None, target: float | None = None
) -> Report:
    """Compare runs on a page, and save it in `out` with its tables and figures as files.

    Without `out`, that is the folder `report` within the one that is shown, or `runs/report` if there are several.

    Each of `paths` is a run folder, a folder of runs, or the folder of an experiment. `target` is an accuracy for the
    rounds that reaching it took; unless given, it is 95% of the best accuracy that any of the runs reached.

    >>> import tempfile
    >>> import numpy as np
    >>> from torch import nn
    >>> from fedquilt import arrays, fed_avg, fed_avg_m, iid, inline, train
    >>> x = np.random.default_rng(0).normal(size=(60, 2))
    >>> y = (x[:, 0] > 0).astype("int64")
    >>> data, held = arrays(x[:40], y[:40], x[40:], y[40:]), iid(y[:40], clients=4)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for method in (fed_avg(lr=0.5), fed_avg_m(lr=0.5)):
    ...         _ = train(nn.Linear(2, 2), data, held, method, 2, engine=inline(), out=f"{folder}/runs/{method.name}")
    ...     done = report(f"{folder}/runs", out=f"{folder}/report")
    >>> [row[0] for row in done.tables[0].rows], done.page.name
    (['fed_avg', 'fed_avg_m'], 'index.html')
    """
    given = [paths] if isinstance(paths, str | Path) else list(paths)
    parts, goal = gather([Path(path) for path in given], Reader(), target)
    folder = Path(out) if out is not None else Path(given[0] if len(given) == 1 else "runs") / "report"
    files = [folder / PAGE]
    with storing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        files[0].write_text(page(parts, "Report"), encoding="utf-8")
        for number, part in enumerate(parts, 1):
            within = folder if len(parts) == 1 else folder / str(number)
            files += _write(part, within)
    return Report(tuple(parts), goal, tuple(files))


def gather(paths: Sequence[Path], reader: Reader, target: float | None = None) -> tuple[list[Part], float | None]:
    """Read all that is asked for, and make the parts of the page; code that runs name is not imported."""
    if target is not None and not 0 < target <= 1:
        raise SpecError(f"target: must be an accuracy above 0 and at most 1, such as 0.97; got {target:g}")
    if not paths:
        raise RunError("nothing to report: name a run folder, or a folder of runs")
    parts: list[Part] = []
    runs: dict[Path, ReadRun] = {}
    for path in dict.fromkeys(paths):
        if (path / EXPERIMENT).is_file():
            with unimported():
                parts.append(part_of_experiment(read_study(path, reader)))
            continue
        for folder in _runs_in(path):
            runs.setdefault(folder, reader.run(folder))
    if not runs:
        return parts, None
    if not parts and all(run.found is None for run in runs.values()):
        raise RunError("\n".join(run.problem or "" for run in runs.values()))
    part, goal = part_of_runs(list(runs.values()), target)
    return [*parts, part], goal


def _runs_in(path: Path) -> list[Path]:
    """Return the runs of a folder, or say what is there instead."""
    if is_run(path):
        return [path]
    if not path.exists():
        raise RunError(no_folder(path))
    if not path.is_dir():
        raise RunError(f"{path}: is a file; a report takes run folders, and folders of runs")
    found = list(run_folders(path))
    if not found:
        empty = "is empty" if not any(path.iterdir()) else "holds no run (there is no spec.toml in it or below it)"
        raise RunError(f"{path}: {empty}; `fedquilt run SPEC --out {shlex.quote(str(path))}` makes a run there")
    return found


def _write(part: Part, folder: Path) -> list[Path]:
    """Write the tables and figures of a part."""
    files = []
    texts = dict(part.files)
    for table in part.tables:
        texts |= {
            f"{table.name}.md": table.markdown(),
            f"{table.name}.csv": table.csv(),
            f"{table.name}.tex": table.latex(),
        }
    for name, text in texts.items():
        files.append(folder / "tables" / name)
        files[-1].parent.mkdir(parents=True, exist_ok=True)
        files[-1].write_text(text, encoding="utf-8")
    for figure in part.figures:
        files += figure.write(folder / "figures", FORMATS)
    return files
