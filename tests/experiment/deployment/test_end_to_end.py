"""Stock Flower on loopback: SuperLink, SuperNodes, TLS and node authentication, as a user starts them.

A round takes about ten seconds, which Flower's polling and the start of a process for every message take. Every process is
ended by its own id, and at the end none is left.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

pytest.importorskip("flwr")

import fedquilt
from fedquilt.base.errors import RunError
from fedquilt.experiment.deployment.commands import free_port, port_of, site_environment, supernode
from fedquilt.experiment.deployment.folder import DeploymentFolder
from fedquilt.experiment.deployment.keys import make_certificates, make_site_key
from fedquilt.experiment.deployment.local import Local, local
from fedquilt.experiment.deployment.processes import end, start
from fedquilt.experiment.deployment.server import start_server
from fedquilt.experiment.deployment.submission import progress, submitted
from fedquilt.experiment.deployment.template import write_folder

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(1500)]

ROUNDS = 2


def clinics(path: Path, rounds: int = ROUNDS) -> DeploymentFolder:
    folder = DeploymentFolder(path / "clinics")
    write_folder(folder, ["bern", "oslo"])
    text = (
        folder.spec.read_text().replace("rounds = 5", f"rounds = {rounds}").replace("mnist_2nn", "softmax_regression")
    )
    folder.spec.write_text(text.replace("client_seconds = 600", "client_seconds = 300"))
    return folder


def simulated(folder: DeploymentFolder, out: Path) -> str:
    digest: str = fedquilt.run(folder.path, out=out).result.digest
    return digest


def left_over(folder: DeploymentFolder) -> list[psutil.Process]:
    """Return processes of a folder that still run."""
    mark, found = str(folder.path), []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and mark in " ".join([*process.cmdline(), *process.environ().values()]):
                found.append(process)
        except psutil.Error:
            continue
    return found


@contextmanager
def nothing_left(folder: DeploymentFolder) -> Iterator[None]:
    yield
    psutil.wait_procs(left_over(folder), timeout=30)
    assert not left_over(folder)


def test_deploy_local_gives_the_digest_of_the_simulation(tmp_path: Path) -> None:
    """One command; show, report, resume and export work on what it leaves."""
    folder = clinics(tmp_path)
    expected = simulated(folder, tmp_path / "simulated")
    with nothing_left(folder):
        done = command("deploy", "local", str(folder.path))
    assert f"Model SHA-256: {expected}" in done
    assert "flower-superlink --host 127.0.0.1" in done
    assert "--enable-supernode-auth" in done
    assert "reported: bern, oslo" in done
    out = str(folder.run("federation"))
    assert "finished" in command("show", out)
    command("report", out, "--out", str(tmp_path / "report"))
    command("export", out, str(tmp_path / "model.safetensors"))


def command(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "fedquilt", *words], capture_output=True, text=True, check=False, env=os.environ.copy()
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


KILLED: dict[str, Callable[[DeploymentFolder, Local], int]] = {
    "the ServerApp": lambda folder, running: serverapp(folder),
    "the SuperLink": lambda folder, running: running.server.pid,
    "a site": lambda folder, running: running.sites["oslo"].pid,
}


def serverapp(folder: DeploymentFolder) -> int:
    (ticket,) = (folder.state / "submitted").glob("*.json")
    process: int = json.loads(ticket.read_text())["process"]
    return process


@pytest.mark.parametrize("who", KILLED)
def test_a_kill_in_the_middle_of_a_round_costs_nothing(who: str, tmp_path: Path) -> None:
    folder = clinics(tmp_path, rounds=3)
    expected = simulated(folder, tmp_path / "simulated")
    said: list[str] = []
    extra: list[subprocess.Popen[bytes]] = []
    with nothing_left(folder):
        try:
            with local(folder, said.append) as running:
                ticket = submitted(folder, running.port, said.append)
                killed, digest = False, ""

                def follow() -> str:
                    nonlocal killed
                    found = ""
                    for event in progress(ticket, folder.run("federation")):
                        if event["state"] == "failed":  # as when its SuperLink is gone
                            assert killed, event
                            assert who == "the SuperLink", event
                            said.append(f"the ServerApp ended without saying why, but for: {event['reason']}")
                        if event["state"] == "round" and not killed:
                            time.sleep(4)  # into the next round
                            os.kill(KILLED[who](folder, running), signal.SIGKILL)
                            killed = True
                            if who == "a site":
                                time.sleep(65)
                                extra.append(
                                    start(
                                        supernode(folder, "oslo", f"127.0.0.1:{running.port}", free_port()),
                                        site_environment(folder, "oslo", False),
                                        said.append,
                                        folder.state / "logs" / "oslo-again.log",
                                    )
                                )
                        found = event.get("digest", found)
                    return found

                try:
                    digest = follow()
                except RunError as error:
                    said.append(str(error))
                if not digest:
                    assert "ended without saying why" in said[-1]
                    if who == "the SuperLink":
                        end(running.server)
                        extra.append(
                            start_server(
                                folder, "127.0.0.1", running.port, said.append, folder.state / "logs" / "again.log"
                            )
                        )
                    for old in (folder.state / "submitted").glob("*.json"):
                        old.unlink()
                    ticket = submitted(folder, port_of(folder), said.append)
                    digest = follow()
                assert killed
        finally:
            for process in extra:
                end(process)
    assert digest == expected


@pytest.fixture(scope="module")
def listening(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[DeploymentFolder, str]]:
    """A SuperLink with the keys of two sites, and its address."""
    folder, port = clinics(tmp_path_factory.mktemp("listening")), free_port()
    with nothing_left(folder):
        server = start_server(folder, "127.0.0.1", port, print, folder.state / "logs" / "server.log")
        try:
            yield folder, f"127.0.0.1:{port}"
        finally:
            end(server)


def said_by(folder: DeploymentFolder, words: list[str], until: str) -> str:
    """Start a SuperNode, and return what it has said once it has ended, or has said something, or after half a minute."""
    log = folder.state / "logs" / "supernode.log"
    log.unlink(missing_ok=True)
    process = start([*words, "--max-retries", "1"], site_environment(folder, "bern", False), print, log)
    try:
        for _ in range(60):
            if process.poll() is not None or until in log.read_text():
                break
            time.sleep(0.5)
    finally:
        end(process)
    return log.read_text()


ADMITTED = "SuperNode ID"
"""What a SuperNode says once the SuperLink has let it in."""


def test_a_site_of_the_roster_is_let_in(listening: tuple[DeploymentFolder, str]) -> None:
    folder, address = listening
    assert ADMITTED in said_by(folder, supernode(folder, "bern", address, free_port()), ADMITTED)


def test_an_unknown_key_is_refused(listening: tuple[DeploymentFolder, str]) -> None:
    folder, address = listening
    make_site_key(folder, "nobody")
    text = said_by(folder, supernode(folder, "nobody", address, free_port()), ADMITTED)
    assert ADMITTED not in text
    assert "Failed to activate SuperNode" in text


def test_a_wrong_certificate_is_refused(listening: tuple[DeploymentFolder, str], tmp_path: Path) -> None:
    folder, address = listening
    stranger = DeploymentFolder(tmp_path / "stranger")
    make_certificates(stranger)
    words = supernode(folder, "bern", address, free_port())
    words[words.index("--root-certificates") + 1] = str(stranger.authority)
    text = said_by(folder, words, ADMITTED)
    assert ADMITTED not in text
    assert "certificate" in text.lower(), text


def test_plain_text_is_refused(listening: tuple[DeploymentFolder, str]) -> None:
    folder, address = listening
    words = [
        "flower-supernode",
        "--superlink",
        address,
        "--insecure",
        "--host",
        "127.0.0.1",
        "--port",
        str(free_port()),
    ]
    assert ADMITTED not in said_by(folder, words, ADMITTED)


def test_a_site_runs_no_other_app_than_it_was_given(tmp_path: Path) -> None:
    """An app with other code is submitted: no site runs it, and the run does not begin."""
    folder = clinics(tmp_path)
    said: list[str] = []
    with nothing_left(folder), local(folder, said.append) as running:
        other = DeploymentFolder(tmp_path / "other")
        other.path.mkdir()
        for name in ("pyproject.toml", "app.py", "federation.toml", "data.py"):
            (other.path / name).write_text((folder.path / name).read_text())
        stolen = tmp_path / "stolen"
        (other.path / "app.py").write_text(
            f"open({str(stolen)!r}, 'a').close()\n" + (folder.path / "app.py").read_text()
        )
        (other.path / "keys").symlink_to(folder.path / "keys")
        (other.path / "state").symlink_to(folder.path / "state")
        (other.path / "runs").symlink_to(folder.path / "runs")
        ticket = submitted(other, running.port, said.append)
        for event in progress(ticket, folder.run("federation")):
            if event["state"] == "failed":
                break
        assert "The app" in event["reason"] or "not the one this site was given" in event["reason"], event
        sites = [*(folder.state / "logs").glob("bern.log"), *(folder.state / "logs").glob("oslo.log")]
        assert all("is not the one this site was given" in log.read_text() for log in sites)
