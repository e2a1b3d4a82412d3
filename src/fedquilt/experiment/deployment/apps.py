"""The ServerApp and the ClientApp that a federation's `app.py` names: all that Flower runs of ours."""

from __future__ import annotations

import json
import logging
import os
import traceback
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fedquilt.base.errors import FedquiltError, reason_of
from fedquilt.base.text import visible
from fedquilt.engines.flower.client_state import FolderShelf
from fedquilt.engines.flower.engine import FlowerEngine
from fedquilt.engines.flower.greeting import Hello, Silent, SiteAnswer, greet, require_all, unlike
from fedquilt.engines.flower.site import Host, Kind, RefusalError, answer
from fedquilt.engines.flower.wire import packed, unpacked
from fedquilt.experiment.build import made_for, site_data
from fedquilt.experiment.deployment.folder import SHARES, SITE, DeploymentFolder
from fedquilt.experiment.deployment.ticket import Ticket
from fedquilt.experiment.deployment.views import (
    as_json,
    difference,
    first_broadcast_made,
    own_hello,
    server_data,
    server_of,
    settings_of,
    site_of,
    with_present_keys,
)
from fedquilt.experiment.folder import RunFolder
from fedquilt.experiment.run import Run, resume, run
from fedquilt.experiment.spec import Spec
from fedquilt.round.agreement import Agreement
from fedquilt.round.server import Server
from fedquilt.round.session import Engine
from fedquilt.round.site import Site

WAIT = 180.0
"""Seconds to wait for all sites before the first round, and for their answers to a hello: a process starts for each."""

SITES = "sites.json"
"""What the sites of a run said of themselves, in its run folder."""

server = ServerApp()
client = ClientApp()


# The server


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Run, resume or check a federation, as `fedquilt deploy` has submitted it."""
    config: Mapping[str, Any] = context.run_config
    folder = DeploymentFolder.here()
    ticket = Ticket(folder, str(config.get("ticket", "")))
    try:
        ticket.write("waiting")
        if config.get("check"):
            ticket.write("checked", sites=checked(grid, folder))
            return
        rounds = int(config.get("rounds", 0)) or None
        ended = conducted(grid, folder, str(config["run"]), rounds, ticket)
        result = ended.result
        ticket.write(
            "interrupted" if result.interrupted else "ended",
            digest=result.digest,
            rounds=result.run.round,
            diverged=result.diverged,
        )
    except BaseException as error:
        said = str(error) if isinstance(error, FedquiltError) else reason_of(error)
        ticket.write("failed", reason=visible(said, 2_000, keep="\\n"))
        if not isinstance(error, FedquiltError):
            traceback.print_exc()
        raise


def conducted(grid: Grid, folder: DeploymentFolder, name: str, rounds: int | None, ticket: Ticket) -> Run:
    """Begin a run, or go on with it: the run folder is what counts, and a Flower run can be thrown away."""
    out = RunFolder(folder.run(name))

    def built(spec: Spec) -> tuple[Server, Engine]:
        made = _built(grid, with_present_keys(spec, folder.load(), out.path), out.path, ticket)
        ticket.write("running", folder=str(out.path))
        return made

    if out.spec.exists():
        return resume(out.path, rounds, built=built)
    return run(folder.load(() if rounds is None else (f"run.rounds={rounds}",)), out=out.path, built=built)


def _built(grid: Grid, spec: Spec, out: Path, ticket: Ticket) -> tuple[Server, Engine]:
    data = server_data(spec)
    made = made_for(spec, data)
    engine = made.engine
    assert isinstance(engine, FlowerEngine)
    expected = own_hello(spec, made, data, "server", 0)
    answers = greet(
        grid,
        spec.sites,
        expected,
        settings_of(spec),
        WAIT,
        engine.poll,
        tell=lambda text: ticket.write("waiting", text=text),
    )
    hellos = require_all(spec.sites, answers)
    for site, hello in zip(spec.sites, hellos, strict=True):
        for why in unlike(hello, expected):
            logging.getLogger("fedquilt.server").warning("site %s: %s; bits may differ", site.name, why)
    (out / SITES).parent.mkdir(parents=True, exist_ok=True)
    (out / SITES).write_text(json.dumps([asdict(hello) for hello in hellos], indent=2), encoding="utf-8")
    server = server_of(spec, data, made, [hello.examples for hello in hellos])
    return first_broadcast_made(grid, spec, server, WAIT, engine.poll), engine.at(grid, spec.sites)


def checked(grid: Grid, folder: DeploymentFolder) -> list[dict[str, Any]]:
    """Ask all sites who they are, and say of each whether it can take part, and whether digests can be equal."""
    spec = folder.load()
    data = server_data(spec)
    made = made_for(spec, data)
    assert isinstance(made.engine, FlowerEngine)
    expected = own_hello(spec, made, data, "server", 0)
    answers = greet(grid, spec.sites, expected, settings_of(spec), WAIT, made.engine.poll)
    return [_row(site.name, each, expected) for site, each in zip(spec.sites, answers, strict=True)]


def _row(name: str, each: SiteAnswer, expected: Hello) -> dict[str, Any]:
    if isinstance(each, Silent):
        return {"name": name, "refused": each.why}
    return {"name": name, "examples": each.examples, "versions": dict(each.versions), "unlike": unlike(each, expected)}


# A site


@client.train()
def train(message: Message, context: Context) -> Message:
    """Train the site's client."""
    return _answered(message, "task")


@client.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Test the model on the site's own examples."""
    return _answered(message, "task")


@client.query("hello")
def hello(message: Message, context: Context) -> Message:
    """Say who the site is."""
    return _answered(message, "hello")


@client.query("first")
def first(message: Message, context: Context) -> Message:
    """Upload what the first broadcast is made from."""
    return _answered(message, "first")


def _answered(message: Message, kind: Kind) -> Message:
    logging.basicConfig(level=logging.INFO)
    said, parts = answer(_host(), kind, unpacked(message.content))
    return Message(packed(said, parts), reply_to=message)


@cache
def _host() -> Host:
    name = os.environ.get(SITE, "")
    return host_of(DeploymentFolder.here(), name, os.environ.get(SHARES) == "1")


def host_of(folder: DeploymentFolder, name: str, shares_class_counts: bool = False) -> Host:
    """Return what a site of a federation brings: everything is loaded when it is asked for."""

    def spec_of_site() -> Spec:
        spec = folder.load()
        if name not in [site.name for site in spec.sites]:
            raise RefusalError(f"was started as site {name}, which is not in its spec")
        return spec

    def says(settings: Mapping[str, Any]) -> dict[str, Any]:
        spec = spec_of_site()
        data = site_data(spec, name)
        differs = difference(settings_of(spec), settings)
        return as_json(own_hello(spec, made_for(spec, data), data, name, len(data.train), differs))

    def site(agreement: Agreement) -> Site:
        spec = spec_of_site()
        data = site_data(spec, name)
        return site_of(spec, name, data, made_for(spec, data), agreement)

    return Host(says, site, FolderShelf(folder.site_state(name) / "kept"), shares_class_counts)
