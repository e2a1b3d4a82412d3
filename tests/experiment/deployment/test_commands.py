"""What `fedquilt deploy` writes and refuses, and the guard before Flower's program; no process of Flower's is started."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")

from fedquilt.base.errors import RunError
from fedquilt.experiment.deployment import commands, guard
from fedquilt.experiment.deployment.folder import SITE, VARIABLE, DeploymentFolder
from fedquilt.experiment.deployment.server import start_server
from fedquilt.experiment.deployment.submission import progress
from fedquilt.experiment.deployment.template import write_folder
from fedquilt.experiment.deployment.ticket import Ticket


@pytest.fixture
def clinics(tmp_path: Path) -> DeploymentFolder:
    folder = DeploymentFolder(tmp_path / "clinics")
    write_folder(folder, ["bern", "oslo"])
    return folder


def test_flower_is_started_with_safe_defaults(clinics: DeploymentFolder) -> None:
    link = commands.superlink(clinics, "127.0.0.1", 9092)
    assert {"--enable-supernode-auth", "--disable-runtime-dependency-installation", "--ssl-certfile"} <= {*link}
    assert "--insecure" not in link
    node = commands.supernode(clinics, "bern", "fl.example.org:443", 9100)
    assert {"--root-certificates", "--auth-supernode-private-key"} <= {*node}
    assert not {"--insecure", "--allow-runtime-dependency-installation"} & {*node}
    for environment in (commands.server_environment(clinics, 9092), commands.site_environment(clinics, "bern", False)):
        assert environment["FLWR_TELEMETRY_ENABLED"] == "0"
        assert environment["FLWR_DISABLE_UPDATE_CHECK"] == "1"
        assert Path(environment["FLWR_HOME"]).is_relative_to(clinics.path)
        assert environment[VARIABLE] == str(clinics.path)
    assert environment[SITE] == "bern"
    assert Path(environment["PATH"].split(":")[0]) == clinics.site_state("bern") / "bin"
    assert commands.port_of(clinics) == 9092


def test_deploy_says_what_is_wrong(command: Callable[..., Any]) -> None:
    assert command("deploy", "init", "clinics", "--sites", "2").code == 0
    again = command("deploy", "init", "clinics")
    assert (again.code, "is not empty" in again.err) == (2, True)
    exposed = command("deploy", "server", "clinics", "--host", "0.0.0.0")
    assert exposed.code == 2
    assert "whoever reaches this port can submit apps" in exposed.err
    stranger = command("deploy", "site", "clinics", "rome")
    assert (stranger.code, "there is no site rome" in stranger.err) == (2, True)
    nobody = command("deploy", "keys", "clinics")
    assert (nobody.code, "--site NAME or --server" in nobody.err) == (2, True)
    made = command("deploy", "keys", "clinics", "--site", "rome")
    assert '[[site]]\nname = "rome"\nkey = "ecdsa-sha2-nistp384 ' in made.out
    assert command("deploy", "run", "clinics", "--run", "../../elsewhere").code == 2
    missing = command("deploy", "run", "nowhere")
    assert missing.code != 0


def test_a_key_that_was_taken_from_the_roster_is_forgotten(clinics: DeploymentFolder) -> None:
    """Flower would go on letting it in: its database is thrown away, and the keys of the roster are registered anew."""
    roster, database = clinics.load().sites, clinics.state / "superlink.db"
    commands.keys_to_register(clinics, roster)
    database.touch()
    assert not commands.forget_other_keys(clinics, roster)
    assert database.exists()
    assert commands.forget_other_keys(clinics, roster[:1])
    assert not database.exists()
    assert not commands.forget_other_keys(clinics, roster[:1])


def test_a_port_in_use_is_refused(clinics: DeploymentFolder) -> None:
    """What listens there would be told the keys of the roster, and be taken for the server."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(RunError, match=f"cannot listen at 127.0.0.1:{port}.*is another server running"):
            start_server(clinics, "127.0.0.1", port, print)


def test_the_app_is_told_by_its_digest(clinics: DeploymentFolder) -> None:
    """What Flower sends is `app.py` and `pyproject.toml`: a site's data.py, spec and keys are its own."""
    before = guard.digest_of_app(clinics.path)
    (clinics.path / "data.py").write_text("# of this site alone\n")
    clinics.spec.write_text("# of this site alone\n")
    assert guard.digest_of_app(clinics.path) == before
    (clinics.path / "app.py").write_text("import os\n" + (clinics.path / "app.py").read_text())
    assert guard.digest_of_app(clinics.path) != before


def test_a_site_runs_the_app_that_it_was_given_and_no_other(
    clinics: DeploymentFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flwr.cli.build import build_fab_from_disk
    from flwr.supernode import cli
    from flwr.supernode.runtime import run_clientapp

    app, unpacked = build_fab_from_disk(clinics.path), list[bytes]()
    monkeypatch.setitem(vars(run_clientapp), "install_from_fab", lambda content, **_: unpacked.append(content))
    monkeypatch.setattr(sys, "argv", ["guard", "flwr-clientapp", "--token", "x"])
    monkeypatch.setenv(VARIABLE, str(clinics.path))
    monkeypatch.setattr(cli, "flwr_clientapp", lambda: vars(run_clientapp)["install_from_fab"](app, skip_prompt=True))
    guard.main()
    assert unpacked == [app]
    (clinics.path / "app.py").write_text("from evil import client, server\n")
    monkeypatch.setattr(sys, "argv", ["guard", "flwr-clientapp", "--token", "x"])
    monkeypatch.setitem(vars(run_clientapp), "install_from_fab", lambda content, **_: unpacked.append(content))
    with pytest.raises(PermissionError, match="is not the one this site was given"):
        guard.main()
    assert unpacked == [app]


def test_a_site_runs_none_of_flowers_other_programs(clinics: DeploymentFolder) -> None:
    environment = commands.site_environment(clinics, "bern", False)
    for program in commands.GUARDED[1:3]:
        done = subprocess.run([program], env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == guard.REFUSED
        assert f"a site runs no {program}" in done.stderr


def running_app(clinics: DeploymentFolder) -> tuple[subprocess.Popen[bytes], Iterator[Any]]:
    """Start a process that waits, as the server app of a submission, and return what is said of its progress."""
    app = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    ticket = Ticket(clinics, "abc")
    ticket.write("running")
    ticket.path.write_text(ticket.path.read_text().replace(str(os.getpid()), str(app.pid)))
    events = progress(ticket, clinics.run("federation"))
    assert next(events)["state"] == "running"
    return app, events


def test_a_server_app_that_was_killed_is_noticed(clinics: DeploymentFolder) -> None:
    """Flower does not ask for the code of what it started: a process that was killed stays listed, and is dead."""
    killed, events = running_app(clinics)
    killed.kill()
    try:
        with pytest.raises(RunError, match="ended without saying why; rounds that were saved are not lost"):
            next(events)
    finally:
        killed.communicate()


def test_an_interruption_ends_the_server_app(clinics: DeploymentFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flower would leave it running: the command that goes on would find the run folder locked."""
    app, events = running_app(clinics)

    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    try:
        with monkeypatch.context() as patch:
            patch.setattr(time, "sleep", interrupted)
            with pytest.raises(KeyboardInterrupt):
                next(events)
        assert app.wait(10) == -signal.SIGTERM
    finally:
        app.kill()
        app.communicate()
