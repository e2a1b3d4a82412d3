"""Takes from the results of `experiments/benchmark` what `fedquilt partition` says of them: which methods were best where.

`results.py` writes it to `src/fedquilt/analysis/benchmark.json`, which comes with the package.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import kept

if TYPE_CHECKING:
    from results import Measured

    from fedquilt.experiment.design.trial import Trial
    from fedquilt.experiment.results.cells import Cell

PATH = kept.ROOT / "src" / "fedquilt" / "analysis" / "benchmark.json"
PLAIN = "fed_avg"


def benchmark(files: Iterable[Sequence[Measured]]) -> str:
    """Write, for each file of the benchmark, the largest scale at which methods were run with several seeds."""
    repeated = [next((each for each in scales if _several(each)), None) for scales in files]
    found = [_about(each) for each in repeated if each is not None]
    return json.dumps([each for each in found if each["settings"]], indent=1, ensure_ascii=False) + "\n"


def _several(measured: Measured) -> bool:
    return any(cell.marked for cell in measured.cells)


def _about(measured: Measured) -> dict[str, Any]:
    settings: dict[str, list[Cell]] = {}
    for cell in measured.cells:
        settings.setdefault(cell.key[measured.axes.index("setting")], []).append(cell)
    emds = {name: line["emd"] for name, line in kept.read_lines(measured.path).items()}
    whole = {name: cells for name, cells in settings.items() if any(cell.best for cell in cells)}
    listed = [_setting(name, cells, measured, emds) for name, cells in whole.items() if _by_population(cells)]
    return {"title": measured.title, "settings": listed}


def _by_population(cells: Sequence[Cell]) -> bool:
    """Say whether a setting is a population alone, cut from one data set, and nothing that happens to its clients."""
    spec = cells[0].trials[0].spec.resolved()
    return "simulate" not in spec and spec["partition"]["name"] != "natural"


def _setting(name: str, cells: Sequence[Cell], measured: Measured, emds: dict[str, float]) -> dict[str, Any]:
    shown = [trial for cell in cells for trial in cell.trials]
    known = [emds[trial.name] for trial in shown]
    methods = [
        {
            "name": cell.key[measured.axes.index("method")],
            "parts": _parts(cell.trials[0]),
            "mean": round(cell.value, 6),
            "std": round(cell.std, 6),
            "not_significantly_worse": cell.marked,
        }
        for cell in sorted((cell for cell in cells if cell.value is not None), key=lambda cell: -(cell.value or 0.0))
        if cell.value is not None and cell.std is not None
    ]
    exponent = cells[0].trials[0].spec.resolved()["partition"].get("exponent")
    return {"name": name, "emd": round(sum(known) / len(known), 4), "equal_sizes": not exponent, "methods": methods}


def _parts(trial: Trial) -> list[str]:
    """Return the names of a method, as a spec has them: those of its wrappers, where it is FedAvg with wrappers.

    Every method of the benchmark has one part of its own.
    """
    spec = trial.spec.resolved()
    names = [spec["method"]["name"], *(wrapper["name"] for wrapper in spec.get("wrap", ()))]
    return [name for name in names if name != PLAIN] or [PLAIN]
