"""`fedquilt cluster`: look at a Ray cluster before something runs on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Column, Table

from fedquilt.cli.console import FAILED, out, say

if TYPE_CHECKING:
    from fedquilt.engines.cluster.nodes import Node

app = typer.Typer(help="Look at a Ray cluster.", no_args_is_help=True)


@app.callback()
def cluster() -> None:
    """Look at a Ray cluster."""


@app.command(epilog="Example: fedquilt cluster check 127.0.0.1:6379")
def check(
    address: Annotated[str, typer.Argument(help='"auto", "local" or host:port, as in [engine] address.')],
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Also a cluster on the network without token authentication.")
    ] = False,
) -> None:
    """Ask every node what it has, and say whether results can be the same on all of them."""
    from fedquilt.engines.cluster.connection import cluster as connected
    from fedquilt.engines.cluster.nodes import differing, survey

    with connected(address.removeprefix("ray://"), insecure=insecure) as found:
        nodes = survey(found)
    _show(nodes)
    known = [node.facts for node in nodes if node.facts is not None]
    if known:
        say(f"Pinned on each: {', '.join(f'{name} {value}' for name, value in known[0].settings.items())}")
    lines = differing(nodes)
    if not lines:
        alone = (
            "There is one node" if len(nodes) == 1 else f"All {len(nodes)} nodes agree on what decides the last bits"
        )
        say(f"{alone}: digests can be equal on the whole cluster.")
        return
    for line in lines:
        say(line)
    say("Digests may differ between these nodes: a run on them is refused, unless its engine has mixed = true.")
    raise typer.Exit(FAILED)


def _show(nodes: list[Node]) -> None:
    names = ("node", "cores", "GPUs", "fedquilt", "torch", "instruction set", "variables")
    rows = []
    for node in nodes:
        facts = node.facts
        said = ("-", "-", "-", node.trouble) if facts is None else (facts.fedquilt, facts.torch, facts.capability, "")
        variables = "" if facts is None else " ".join(f"{key}={value}" for key, value in facts.variables.items())
        rows.append((node.address, f"{node.cpus:g}", f"{node.gpus:g}", *said[:3], said[3] or variables or "none set"))
    if not out.is_terminal:
        for row in rows:
            print("\t".join(row))
        return
    table = Table(*(Column(name, no_wrap=name != "variables") for name in names))
    for row in rows:
        table.add_row(*map(escape, row))
    out.print(table)
