"""Compares runs. Reads run folders only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedquilt.base.errors import SpecError
from fedquilt.base.text import figure
from fedquilt.experiment.contents import Contents
from fedquilt.experiment.folder import RunFolder
from fedquilt.experiment.plots import draw_curves, draw_fares
from fedquilt.experiment.storage import storing
from fedquilt.experiment.summary import summarise

HEADER = (
    "run",
    "method",
    "partition",
    "rounds",
    "state",
    "last accuracy",
    "mean of last 10",
    "best accuracy",
    "per client",
    "rounds to target",
    "MB sent",
    "last loss",
    "other metrics",
)


@dataclass(frozen=True)
class Report:
    """A table of runs and the files written for it."""

    rows: list[tuple[str, ...]]
    target: float
    files: list[Path]
    damage: tuple[str, ...] = ()


def report(paths: Sequence[str | Path], out: str | Path, target: float | None = None) -> Report:
    """Compare runs in a table and a plot, and save both in `out`.

    `target` is an accuracy; unless given, it is 95% of the best accuracy that any of the runs reached.

    >>> import tempfile
    >>> import numpy as np
    >>> from torch import nn
    >>> from fedquilt import arrays, fed_avg, fed_avg_m, iid, inline, train
    >>> x = np.random.default_rng(0).normal(size=(60, 2))
    >>> y = (x[:, 0] > 0).astype("int64")
    >>> data, held = arrays(x[:40], y[:40], x[40:], y[40:]), iid(y[:40], clients=4)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for method in (fed_avg(lr=0.5), fed_avg_m(lr=0.5)):
    ...         _ = train(nn.Linear(2, 2), data, held, method, 2, engine=inline(), out=f"{folder}/{method.name}")
    ...     done = report([f"{folder}/fed_avg", f"{folder}/fed_avg_m"], out=f"{folder}/report")
    >>> [row[0] for row in done.rows], [file.name for file in done.files]
    (['fed_avg', 'fed_avg_m'], ['curves.png', 'report.md'])
    """
    if target is not None and not 0 < target <= 1:
        raise SpecError(f"target: must be an accuracy above 0 and at most 1, such as 0.97; got {target:g}")
    folders = [RunFolder(path) for path in dict.fromkeys(Path(path) for path in paths)]
    contents = [folder.read() for folder in folders]
    summaries = [summarise(folder, found) for folder, found in zip(folders, contents, strict=True)]
    named = len({folder.path.name for folder in folders}) == len(folders)
    histories = {
        folder.path.name if named and folder.path.name else str(folder.path): found.history
        for folder, found in zip(folders, contents, strict=True)
    }
    best = max((found.history.best[1] for found in contents if found.history.best), default=0.0)
    goal = target if target is not None else round(0.95 * best, 3)
    rows: list[tuple[str, ...]] = []
    for about, name, found in zip(summaries, histories, contents, strict=True):
        history, spec, known = found.history, about["spec"], about["known"] or about
        least = "≥ " if found.lost else ""  # rounds whose records are lost may have been better, and sent more
        sent = f"{least}{(known['bytes_down'] + known['bytes_up']) / 1e6:.1f}"
        rows.append(
            (
                name,
                " + ".join(
                    str(table.get("name", "own"))
                    for table in [spec.get("method", {}), *spec.get("wrap", []), *spec.get("simulate", [])]
                ),
                _partition(spec.get("partition", {})),
                str(about["round"]),
                about["state"],
                _percent(about["accuracy"]),
                "–" if found.lost_since((history.rounds[-10:] or [0])[0]) else _percent(_mean(history.accuracy[-10:])),
                f"{least}{_percent(history.best[1])}" if history.best else "–",
                _percent(about["per_client_accuracy"]),
                _reached(found, goal),
                sent,
                figure("loss", about["loss"]),
                ", ".join(f"{name} {figure(name, value)}" for name, value in about["metrics"].items()) or "–",
            )
        )
    folder = Path(out)
    files = [folder / "curves.png", folder / "report.md"]
    known = {name: found.fares for name, found in zip(histories, contents, strict=True) if found.fares}
    damage = tuple(text for found in contents for text in found.damage)
    with storing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        draw_curves(files[0], histories, goal or None)
        if known:
            files.append(folder / "per_client.png")
            draw_fares(files[-1], known)
        files[1].write_text(_markdown(rows, goal, bool(known), damage), encoding="utf-8")
    return Report(rows, goal, files, damage)


def _reached(found: Contents, goal: float) -> str:
    """Write the rounds to the target: at most so many where a record before it is lost."""
    crossed = found.history.rounds_to(goal)
    if crossed is None:
        return "–" if found.lost else "not reached"
    return f"≤ {crossed:.1f}" if any(rounds.start < crossed for rounds in found.lost) else f"{crossed:.1f}"


def _partition(table: dict[str, object]) -> str:
    details = [f"{key}={table[key]}" for key in ("alpha", "shards") if key in table]
    return " ".join([str(table.get("name", "own")), *details])


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.2f}%"


def _markdown(rows: Sequence[tuple[str, ...]], goal: float, per_client: bool, damage: Sequence[str]) -> str:
    lines = ["| " + " | ".join(HEADER) + " |", "|" + "---|" * len(HEADER)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(
        [
            *["# Comparison of runs", "", *lines, "", f"Target accuracy: {_percent(goal or None)}.", ""],
            *["![](curves.png)", ""],
            *(["## Per-client test", "", "![](per_client.png)", ""] if per_client else []),
            *(["## Damaged files", "", *(f"- {text}" for text in damage), ""] if damage else []),
        ]
    )
