"""The command `fedquilt partition`: how skewed a population is, and what to try on it first."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Column, Table

from fedquilt.base.text import listed
from fedquilt.cli.console import out, say
from fedquilt.cli.options import NoImport, Sets, Unsets

EXAMPLE = "fedquilt partition first.toml --set partition.alpha=0.1"

_ROWS: dict[str, tuple[str, str]] = {
    "clients": ("clients", ",d"),
    "clients_without_examples": ("clients without examples", ",d"),
    "examples": ("examples", ",d"),
    "size_least": ("examples of a client, least", ",d"),
    "size_median": ("examples of a client, median", ",.1f"),
    "size_most": ("examples of a client, most", ",d"),
    "size_most_to_median": ("most / median", ".2f"),
    "size_gini": ("Gini of the sizes", ".3f"),
    "classes": ("classes", ",d"),
    "classes_held": ("classes of a client", ",.1f"),
    "effective_classes": ("effective classes of a client", ",.2f"),
    "label_entropy": ("label entropy of a client (bits)", ".3f"),
    "emd": ("EMD (Hsu 2020)", ".3f"),
    "emd_by_chance": ("EMD if dealt out at random", ".3f"),
    "jensen_shannon": ("Jensen–Shannon divergence (bits)", ".3f"),
}

_LARGEST = 5
"""Classes that are named with their examples."""


def partition(
    spec: Annotated[Path, typer.Argument(help="A spec file; only \\[data] and \\[partition] are looked at.")],
    sets: Sets = None,
    unsets: Unsets = None,
    folder: Annotated[
        Path | None, typer.Option("--out", file_okay=False, help="Where to write (default: runs/NAME-partition).")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")] = False,
    no_import: NoImport = False,
) -> None:
    """Show how skewed a spec's clients are, draw them, and say what to try first."""
    import fedquilt
    from fedquilt.experiment.spec import load_population

    checked = load_population(spec, sets or (), unsets or ())  # a typo is answered before PyTorch is imported
    found = fedquilt.inspect_partition(checked, out=folder or Path("runs") / f"{spec.stem}-partition")
    about = found.about()
    if json:
        from fedquilt.experiment.summary import as_json

        print(as_json(about))  # plain print: Rich would wrap long lines
        return
    table = Table(Column(no_wrap=True), Column(justify="right"), show_header=False, box=None, padding=(0, 2, 0, 0))
    for key, (words, style) in _ROWS.items():
        if key in about and (about[key] or key != "clients_without_examples"):
            table.add_row(f"[bold]{escape(words)}[/bold]", format(about[key], style))
    if found.data.class_names is not None:
        counts = found.class_examples()
        largest = sorted(range(len(counts)), key=lambda number: -counts[number])[:_LARGEST]
        words = ", ".join(f"{found.data.class_name(number)} {counts[number]:,}" for number in largest)
        table.add_row("[bold]largest classes, examples[/bold]", escape(words))
    out.print(table)
    if "emd" in about:
        say("Numbers of classes are means over clients, weighted by their examples.")
    for line in about["advice"]:
        say("")
        _advise(line)
    say("")
    for file, kinds in _by_name(about["files"]).items():
        say(f"Wrote {file}{', '.join(kinds)}")


def _by_name(files: list[str]) -> dict[str, list[str]]:
    """Put the files together that differ in what their names end with.

    >>> _by_name(["runs/emd.svg", "runs/emd.pdf", "runs/partition.npz"])
    {'runs/emd': ['.svg', '.pdf'], 'runs/partition': ['.npz']}
    """
    found: dict[str, list[str]] = {}
    for file in files:
        path = Path(file)
        found.setdefault(str(path.with_suffix("")), []).append(path.suffix)
    return found


def _advise(line: dict[str, Any]) -> None:
    used = f"the spec has {listed(line['used'])}, as is advised" if line["used"] else ""
    todo = f"try {listed(line['methods'])}" if line["methods"] else ""
    say(f"{line['found'][0].upper()}{line['found'][1:]}: {'; '.join(words for words in (used, todo) if words)}.")
    for words in textwrap.wrap(f"{line['source']}.", width=max(min(out.width, 100) - 2, 40)):
        say(f"  {words}")
