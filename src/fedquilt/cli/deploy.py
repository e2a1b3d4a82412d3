"""`fedquilt deploy`: the same algorithm across real sites, on Flower's deployment engine."""

from __future__ import annotations

import shlex
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedquilt.base.errors import RunError, SpecError
from fedquilt.base.text import counted, percent
from fedquilt.cli.console import FAILED, INTERRUPTED, complain, say, warn

if TYPE_CHECKING:
    from fedquilt.experiment.deployment.folder import DeploymentFolder

UNTOUCHED = "Interrupted: what was started is ended; rounds that were saved are not lost."

app = typer.Typer(
    help="Run a method across real sites that keep their data, on Flower.",
    epilog="Start with: fedquilt deploy init clinics, then: fedquilt deploy local clinics",
    no_args_is_help=True,
)


class DataSource(StrEnum):
    """Where sites have their data."""

    digits = "digits"
    csv = "csv"
    parquet = "parquet"
    images = "images"
    code = "code"


Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder of the federation.")]
Port = Annotated[int, typer.Option(help="The SuperLink's port.")]
KnownPort = Annotated[int | None, typer.Option(help="The SuperLink's port (default: as it was started).")]
RunName = Annotated[str, typer.Option("--run", help="The name of the run folder, in FOLDER/runs.")]
Rounds = Annotated[int | None, typer.Option(help="Run up to this many rounds instead.")]
Share = Annotated[
    bool, typer.Option("--share-class-counts", help="Let the server know how many examples of each class there are.")
]


def _folder(path: Path) -> DeploymentFolder:
    from fedquilt.experiment.deployment.folder import DeploymentFolder

    return DeploymentFolder(path)


@app.command(epilog="Example: fedquilt deploy init clinics --sites 3 --data csv")
def init(
    folder: Folder,
    sites: Annotated[int, typer.Option(help="Sites to begin with.")] = 3,
    name: Annotated[list[str] | None, typer.Option(help="The name of a site; repeatable.")] = None,
    data: Annotated[DataSource, typer.Option(help="What data.py reads to begin with.")] = DataSource.digits,
) -> None:
    """Write the folder of a federation: a Flower app, a spec, data.py, and keys for trying out."""
    from fedquilt.experiment.deployment.commands import require_flower
    from fedquilt.experiment.deployment.template import site_names, write_folder

    require_flower()
    if sites < 1:
        raise SpecError("--sites: must be 1 or more")
    write_folder(_folder(folder), name or site_names(sites), data.value)
    shown = shlex.quote(str(folder))
    say(f"Wrote {folder}. Simulate it with: fedquilt run {shown}")
    say(f"Try it out with real sites on this machine: fedquilt deploy local {shown}")


@app.command(epilog="Example: fedquilt deploy keys clinics --site bern")
def keys(
    folder: Folder,
    site: Annotated[str | None, typer.Option(help="Make the key pair of this site.")] = None,
    server: Annotated[bool, typer.Option("--server", help="Make the server's certificate.")] = False,
    host: Annotated[list[str] | None, typer.Option(help="A name or address of the server; repeatable.")] = None,
) -> None:
    """Make the key pair of a site, where it belongs, or the server's certificate."""
    from fedquilt.experiment.deployment.commands import require_flower
    from fedquilt.experiment.deployment.keys import make_certificates, make_site_key
    from fedquilt.experiment.deployment.template import roster_entry

    require_flower()
    if site is None and not server:
        raise SpecError("say whose keys: --site NAME or --server")
    made = _folder(folder)
    if server:
        make_certificates(made, host or ())
        say(f"Wrote {made.authority}, which every site needs, and {made.certificate} with its key, which stay here.")
    if site is not None:
        entry = roster_entry(site, make_site_key(made, site))
        say(
            f"The private key is {made.key(site)}, and stays here. Put into {made.spec}, at the server and all sites, "
            "in the place of another entry of that name:\n"
        )
        say(entry)


@app.command(epilog="Example: fedquilt deploy server clinics")
def server(
    folder: Folder,
    port: Port = 9092,
    host: Annotated[str, typer.Option(help="The address to listen at.")] = "127.0.0.1",
    exposes_control: Annotated[
        bool,
        typer.Option("--expose-control", help="Listen at an address that others reach, with no proxy in front."),
    ] = False,
) -> None:
    """Start the server: Flower's SuperLink, with TLS and node authentication, and the keys of the roster."""
    from fedquilt.base.addresses import is_loopback
    from fedquilt.experiment.deployment.processes import end
    from fedquilt.experiment.deployment.server import start_server

    if not is_loopback(host) and not exposes_control:
        raise SpecError(
            f"--host {host}: whoever reaches this port can submit apps, since Flower has one port for its Fleet and its "
            "Control API. Listen at 127.0.0.1 with a proxy in front that passes on /v1/fleet/ alone (see docs/deploy.md), "
            "or say --expose-control"
        )
    process = start_server(_folder(folder), host, port, say)
    say(f"The server listens at {host}:{port}. Ctrl-C ends it; it goes on where it was when it is started again.")
    try:
        code = process.wait()
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    finally:
        end(process)
    raise RunError(f"the SuperLink ended with the code {code}")


@app.command(epilog="Example: fedquilt deploy site clinics bern --server fl.example.org:443")
def site(
    folder: Folder,
    name: Annotated[str, typer.Argument(help="The name of the site, as the roster has it.")],
    server: Annotated[str, typer.Option(help="Where the server is, as host:port.")] = "127.0.0.1:9092",
    port: Annotated[int | None, typer.Option(help="A port of loopback for the SuperNode itself.")] = None,
    share_class_counts: Share = False,
    once: Annotated[bool, typer.Option("--once", help="Do not start the SuperNode again when it ends.")] = False,
) -> None:
    """Start a site: Flower's SuperNode, which runs the app of this folder and no other, and is kept running."""
    from fedquilt.experiment.deployment.supervise import supervise

    made = _folder(folder)
    if name not in [member.name for member in made.load().sites]:
        raise SpecError(f"{made.spec}: [[site]]: there is no site {name}; `fedquilt deploy keys` prints what to add")
    try:
        code = supervise(made, name, server, say, port, share_class_counts, restarts=0 if once else None)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    if code:
        raise RunError(f"the SuperNode ended with the code {code}")


@app.command(epilog="Example: fedquilt deploy run clinics")
def run(folder: Folder, name: RunName = "federation", rounds: Rounds = None, port: KnownPort = None) -> None:
    """Train across the sites, or continue an interrupted run: submits the app, and shows its progress."""
    from fedquilt.experiment.deployment.commands import port_of
    from fedquilt.experiment.deployment.submission import submitted

    made = _folder(folder)
    _follow(made, submitted(made, port or port_of(made), say, name, rounds), name, "run")


def resume_at_sites(run_folder: Path, rounds: int | None) -> None:
    """Go on with a run of real sites: its folder is `runs/NAME` in that of the federation."""
    path = run_folder.resolve()
    run(path.parent.parent, path.name, rounds, None)


@app.command(epilog="Example: fedquilt deploy check clinics")
def check(folder: Folder, port: KnownPort = None) -> None:
    """Say who is there, with which versions and how many examples, and whether digests can be equal."""
    from fedquilt.experiment.deployment.commands import port_of
    from fedquilt.experiment.deployment.submission import progress, submitted

    made = _folder(folder)
    ticket = submitted(made, port or port_of(made), say, check=True)
    for said in progress(ticket, made.run("federation")):
        if said["state"] == "failed":
            raise RunError(said["reason"])
        if said["state"] == "checked":
            _show_sites(said["sites"])


@app.command(name="local", epilog="Example: fedquilt deploy local clinics --sites 3")
def local_(
    folder: Folder,
    sites: Annotated[int, typer.Option(help="Sites of a folder that is not there yet.")] = 3,
    name: RunName = "federation",
    rounds: Rounds = None,
    share_class_counts: Share = False,
) -> None:
    """Run a whole federation on this machine, with TLS and keys: server, sites and training in one command."""
    from fedquilt.experiment.deployment.commands import require_flower
    from fedquilt.experiment.deployment.local import local
    from fedquilt.experiment.deployment.submission import submitted
    from fedquilt.experiment.deployment.template import site_names, write_folder

    require_flower()
    made = _folder(folder)
    if not made.spec.exists():
        write_folder(made, site_names(sites))
        say(f"Wrote {folder}.")
    with local(made, say, share_class_counts) as running:
        _follow(made, submitted(made, running.port, say, name, rounds), name, "local")


def _follow(folder: DeploymentFolder, ticket: Any, name: str, command: str) -> None:
    """Show how a submission goes: rounds, accuracy, who reported, who was left out and why."""
    from fedquilt.experiment.deployment.submission import progress

    out = folder.run(name)
    again = (
        f"fedquilt deploy {command} {shlex.quote(str(folder.path))}{'' if name == 'federation' else f' --run {name}'}"
    )
    names = [member.name for member in folder.load().sites]
    for said in progress(ticket, out):
        state = said["state"]
        if state == "round":
            _show_round(said["record"], names)
        elif state == "waiting":
            say(f"{said.get('text', 'waiting for the sites')} …")
        elif state == "failed":
            complain(said["reason"])
            if (out / "checkpoints").exists():
                say(f"Rounds that were saved are not lost. Continue with: {again}")
            raise typer.Exit(FAILED)
        elif state == "interrupted":
            say(f"Interrupted after round {said['rounds']}; nothing is lost.")
            say(f"Continue with: {again}")
            raise typer.Exit(INTERRUPTED)
        elif state == "ended":
            say(f"Finished {counted(said['rounds'], 'round')}.")
            say(f"Model SHA-256: {said['digest']}")
            say(f"Run folder: {out}")
            say(f"Page: fedquilt report {shlex.quote(str(out))}")
            if said["diverged"]:
                complain(said["diverged"])
                raise typer.Exit(FAILED)


def _show_round(record: dict[str, Any], names: list[str]) -> None:
    reported = ", ".join(names[client] for client in record["clients"]) or "nobody"
    scores = [f"accuracy {percent(record['accuracy'])}"] if record["accuracy"] is not None else []
    scores += [f"loss {record['loss']:.4f}"] if record["loss"] is not None else []
    applied = "" if record["applied"] else "; not committed: the model stays as it was"
    say(f"round {record['round']}: {', '.join([*scores, f'reported: {reported}'])}; {record['seconds']:.1f} s{applied}")
    for fault in record["dropped"]:
        warn(f"round {record['round']}: site {names[fault['client']]} was left out: {fault['reason']}")
    for fault in record.get("per_client_dropped", ()):
        warn(f"round {record['round']}: the test of site {names[fault['client']]} was left out: {fault['reason']}")


def _show_sites(sites: list[dict[str, Any]]) -> None:
    for each in sites:
        if "refused" in each:
            complain(f"site {each['name']} {each['refused']}")
            continue
        versions = ", ".join(f"{name} {version}" for name, version in each["versions"].items())
        say(f"site {each['name']}: {counted(each['examples'], 'example')}; {versions}")
        for why in each["unlike"]:
            warn(f"site {each['name']}: {why}")
    if any("refused" in each for each in sites):
        raise typer.Exit(FAILED)
    if any(each["unlike"] for each in sites):
        say("All sites can take part; digests may differ from the simulation's in the last bits.")
    else:
        say("All sites can take part, and digests can be those of the simulation on a machine like the server.")
