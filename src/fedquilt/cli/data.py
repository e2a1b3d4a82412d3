"""`fedquilt data`: which data sets there are, what they are, and their files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
from rich.table import Column, Table

from fedquilt.base import registry
from fedquilt.base.errors import DataError, nearest
from fedquilt.cli.console import err, out, say
from fedquilt.data.fetch.folders import folders
from fedquilt.data.fetch.published import ByHand, File, PublishedData, Tell, Wanted, all_by_hand, all_published

app = typer.Typer(help="List, describe and fetch data sets.", no_args_is_help=True)
BY_HAND_STATE = "by hand"

Name = Annotated[str, typer.Argument(help="A data set, as `fedquilt data list` names it.")]


@app.command(name="list", epilog="Example: fedquilt data list")
def list_() -> None:
    """List the data sets, and whether their files are present."""
    rows = [(name, *_state(name)) for name in _names()]
    if not out.is_terminal:
        for row in rows:
            print("\t".join(row))
        return
    table = Table(Column("data set", no_wrap=True), Column("files", no_wrap=True), "what it is")
    for name, state, about in rows:
        table.add_row(f"[bold]{name}[/bold]", escape(state), escape(about))
    out.print(table)


@app.command(epilog="Example: fedquilt data info cifar10 --check")
def info(
    name: Name,
    check: Annotated[
        bool, typer.Option("--check", help="Also read the files that are present: are they the published ones?")
    ] = False,
) -> None:
    """Describe a data set: counts, licence, sources, where its files are looked for and which are missing."""
    published = _published(name)
    files: list[tuple[File | Wanted, Path]]
    if published is None:
        known = all_by_hand().get(name, ByHand())
        say(registry.datasets.summary(name))
        for counts in known.counts:
            say(str(counts))
        say(_by_hand(name) or "It has no published files: nothing is to be fetched.")
        files = [(each, found) for each in known.wanted if (found := each.found()) is not None]
    else:
        say(published.about)
        say(f"examples: {published.train:,} to train, {published.test:,} to test, {published.classes} classes")
        say(f"in a spec: {published.in_spec}")
        say(f"licence: {published.licence}")
        for source in published.sources:
            say(f"source: {source}")
        for folder in folders():
            say(f"looked for in: {', '.join(str(folder / below) for below in published.folders)}")
        for file in published.files:
            where = published.found(file)
            say(f"missing: {file.name}" if where is None else f"found: {where}")
        files = [(each, found) for each in published.files if (found := published.found(each)) is not None]
    if check:
        _check(name, files)


def _check(name: str, files: list[tuple[File | Wanted, Path]]) -> None:
    """Say of files whether they are the published ones; raise a DataError if one is not."""
    wrong, seen = 0, set()
    with _progress() as tell:
        for file, path in files:
            if path in seen or not path.is_file():
                continue
            seen.add(path)
            try:
                file.check(path, tell)
            except DataError as error:
                wrong += 1
                say(f"not as published: {error}")
            else:
                say(f"as published: {path}" if file.can_check(path) else f"no digest is known: {path}")
    if not seen:
        say("There are no files to check.")
    if wrong:
        raise DataError(f"{name}: {wrong} of {len(seen)} files are not as published")


@app.command(epilog="Example: fedquilt data get cifar10")
def get(name: Name) -> None:
    """Fetch a data set's missing files from its sources, and check them."""
    published = _published(name)
    if published is None:
        if _state(name)[0] == BY_HAND_STATE:
            err.print(_by_hand(name), highlight=False, markup=False, soft_wrap=True)
            raise DataError(f"{name}: its files cannot be fetched; put them in place by hand, as listed above")
        say(_by_hand(name) or f"{name} has no published files: nothing is to be fetched.")
        return
    from fedquilt.data.fetch.download import fetch

    with _progress() as tell:
        placed = fetch(published, tell, say)
    for path in placed:
        say(f"Wrote {path}")
    say(f"{name}: all {len(published.files)} files are present, and were checked.")


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
    known = all_published()
    return sorted({*registry.datasets, *known} - {published.family for published in known.values()})


def _published(name: str) -> PublishedData | None:
    names = _names()
    family = [member.name for member in all_published().values() if member.family == name]
    if family:
        raise DataError(f"{name} is {len(family)} data sets: name one of {', '.join(family)}")
    if name not in names:
        raise DataError(f"no data set is called '{name}'; {nearest(name, names)}")
    return all_published().get(name)


def _by_hand(name: str) -> str:
    """Say what a data set looks for that fedquilt cannot fetch; nothing if it is none of those."""
    files = all_by_hand().get(name, ByHand()).wanted
    if not files:
        return ""
    sources = dict.fromkeys(wanted.source for wanted in files)
    return "\n".join(
        [
            "fedquilt has no source to fetch its files from; they are put in place by hand.",
            f"looked for in: {', '.join(map(str, folders()))} (FEDQUILT_DATA names other folders)",
            *map(str, files),
            *(f"source: {source}" for source in sources),
        ]
    )


def _state(name: str) -> tuple[str, str]:
    published = _published(name)
    if published is None:
        needed = [wanted for wanted in all_by_hand().get(name, ByHand()).wanted if not wanted.when]
        state = "present" if all(wanted.found() for wanted in needed) else BY_HAND_STATE
        return state if needed else "nothing to fetch", registry.datasets.summary(name)
    found = len(published.files) - len(published.missing())
    if found in (0, len(published.files)):
        return "present" if found else "missing", published.about
    return f"{found} of {len(published.files)} files", published.about
