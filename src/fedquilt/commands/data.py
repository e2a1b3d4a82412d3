"""`fedquilt data`: which data sets there are, what they are, and their files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
from rich.table import Table

from fedquilt import registry
from fedquilt.errors import DataError, nearest

if TYPE_CHECKING:
    from fedquilt.data.download import Tell
    from fedquilt.data.published import Published

app = typer.Typer(help="List, describe and fetch data sets.", no_args_is_help=True)
out = Console(emoji=False)
BY_HAND_STATE = "by hand"

Name = Annotated[str, typer.Argument(help="A data set, as `fedquilt data list` names it.")]


@app.command(name="list", epilog="Example: fedquilt data list")
def list_() -> None:
    """List the data sets, and whether their files are there."""
    rows = [(name, *_state(name)) for name in _names()]
    if not out.is_terminal:
        for row in rows:
            print("\t".join(row))
        return
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for name, state, about in rows:
        table.add_row(f"[bold]{name}[/bold]", escape(state), escape(about))
    out.print(table)


@app.command(epilog="Example: fedquilt data info cifar10")
def info(name: Name) -> None:
    """Describe a data set: counts, licence, sources, where its files are looked for and which are missing."""
    published = _published(name)
    if published is None:
        _say(registry.datasets.summary(name))
        _say(_by_hand(name) or "It has no published files: nothing is to be fetched.")
        return
    from fedquilt.data.folders import folders

    _say(published.about)
    _say(f"examples: {published.train:,} to train, {published.test:,} to test, {published.classes} classes")
    _say(f"in a spec: {published.in_spec}")
    _say(f"licence: {published.licence}")
    for source in published.sources:
        _say(f"source: {source}")
    for folder in folders():
        _say(f"looked for in: {', '.join(str(folder / below) for below in published.folders)}")
    for file in published.files:
        there = published.found(file)
        _say(f"missing: {file.name}" if there is None else f"there: {there}")


@app.command(epilog="Example: fedquilt data get cifar10")
def get(name: Name) -> None:
    """Fetch a data set's missing files from its sources, and check them."""
    published = _published(name)
    if published is None:
        if _state(name)[0] == BY_HAND_STATE:
            raise DataError(f"{name}: {_by_hand(name)}")
        _say(_by_hand(name) or f"{name} has no published files: nothing is to be fetched.")
        return
    from fedquilt.data.fetch import fetch

    with _progress() as tell:
        placed = fetch(published, tell, _say)
    for path in placed:
        _say(f"Wrote {path}")
    _say(f"{name}: all {len(published.files)} files are there, and were checked.")


@contextmanager
def _progress() -> Iterator[Tell]:
    """Show a bar on a terminal, and nothing elsewhere."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=out, disable=not out.is_terminal, transient=True) as progress:
        task = progress.add_task("", total=None, visible=False)

        def tell(what: str, done: int, total: int | None) -> None:
            progress.update(task, description=escape(what), completed=done, total=total, visible=True)

        yield tell


def _names() -> list[str]:
    """List every data set: those of published files by their own names, the others by the function that makes them."""
    from fedquilt.data.published import PUBLISHED

    return sorted({*registry.datasets, *PUBLISHED} - {published.family for published in PUBLISHED.values()})


def _published(name: str) -> Published | None:
    from fedquilt.data.published import PUBLISHED

    names = _names()
    family = [member.name for member in PUBLISHED.values() if member.family == name]
    if family:
        raise DataError(f"{name} is {len(family)} data sets: name one of {', '.join(family)}")
    if name not in names:
        raise DataError(f"no data set is called '{name}'; {nearest(name, names)}")
    return PUBLISHED.get(name)


def _by_hand(name: str) -> str:
    """Say what a data set looks for that fedquilt cannot fetch; nothing if it is none of those."""
    from fedquilt.data.by_hand import BY_HAND
    from fedquilt.data.folders import folders

    if name not in BY_HAND:
        return ""
    sources = dict.fromkeys(wanted.source for wanted in BY_HAND[name])
    return "\n".join(
        [
            "fedquilt has no source to fetch its files from; they are put in place by hand.",
            f"looked for in: {', '.join(map(str, folders()))} (FEDQUILT_DATA names other folders)",
            *map(str, BY_HAND[name]),
            *(f"source: {source}" for source in sources),
        ]
    )


def _state(name: str) -> tuple[str, str]:
    from fedquilt.data.by_hand import BY_HAND

    published = _published(name)
    if published is None:
        needed = [wanted for wanted in BY_HAND.get(name, ()) if not wanted.when]
        state = "there" if all(wanted.found() for wanted in needed) else BY_HAND_STATE
        return state if needed else "nothing to fetch", registry.datasets.summary(name)
    there = len(published.files) - len(published.missing())
    if there in (0, len(published.files)):
        return "there" if there else "missing", published.about
    return f"{there} of {len(published.files)} files", published.about


def _say(text: str) -> None:
    out.print(text, highlight=False, markup=False, soft_wrap=True)
