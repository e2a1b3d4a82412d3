"""Flower's own commands, with safe defaults: TLS and node authentication on, nothing is installed or reported."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

import tomli_w

from fedquilt.base.errors import FedquiltError, RunError
from fedquilt.engines.flower.roster import Member
from fedquilt.experiment.deployment.folder import SHARES, SITE, VARIABLE, DeploymentFolder

PORT = 9092
"""Where the SuperLink listens unless another port is given."""

CONNECTION = "fedquilt"
"""What Flower's configuration calls the SuperLink of a folder."""

GUARDED = ("flwr-clientapp", "flwr-agentapp", "flwr-connector", "flwr-model", "flwr-serverapp", "flwr-simulation")
"""Flower's programs that run apps: at a site, the first is guarded, and the others are refused."""


def require_flower() -> None:
    """Refuse to go on where Flower is not installed."""
    try:
        import flwr  # noqa: F401
    except ImportError:
        raise FedquiltError("Flower is not installed; install it with: pip install 'fedquilt[flower]'") from None
    if _program("flower-superlink") is None:
        raise FedquiltError("Flower's commands are not found; install it with: pip install 'fedquilt[flower]'")


def environment(folder: DeploymentFolder, home: Path) -> dict[str, str]:
    """Return the environment of all of Flower's commands: no telemetry, no question for updates, a home of the user's."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    ours = {
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_HOME": str(home.resolve()),
        VARIABLE: str(folder.path.resolve()),
    }
    return {**os.environ, **ours, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"}


def port_of(folder: DeploymentFolder) -> int:
    """Return where the SuperLink of a folder listens, as it was started last."""
    config = folder.state / "flower" / "config.toml"
    if not config.exists():
        return PORT
    address: str = tomllib.loads(config.read_text(encoding="utf-8"))["superlink"][CONNECTION]["address"]
    return int(address.rpartition(":")[2])


def server_environment(folder: DeploymentFolder, port: int) -> dict[str, str]:
    """Return the environment of the server's commands; its home says where the SuperLink is."""
    home = folder.state / "flower"
    made = environment(folder, home)
    about = {"address": f"127.0.0.1:{port}", "root-certificates": str(folder.authority.resolve())}
    tables = {"superlink": {"default": CONNECTION, CONNECTION: about}}
    (home / "config.toml").write_text(tomli_w.dumps(tables), encoding="utf-8")
    return made


def superlink(folder: DeploymentFolder, host: str, port: int) -> list[str]:
    """Return the command of the SuperLink."""
    _require_files(folder.authority, folder.certificate, folder.certificate_key)
    folder.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    return [
        *("flower-superlink", "--host", host, "--port", str(port)),
        *("--ssl-ca-certfile", str(folder.authority.resolve())),
        *("--ssl-certfile", str(folder.certificate.resolve()), "--ssl-keyfile", str(folder.certificate_key.resolve())),
        *("--enable-supernode-auth", "--database", str((folder.state / "superlink.db").resolve())),
        "--disable-runtime-dependency-installation",
    ]


def register(key: Path, site: str) -> list[str]:
    """Return the command by which the SuperLink learns a site's key."""
    return ["flwr", "supernode", "register", str(key), CONNECTION, "--name", site]


def keys_to_register(folder: DeploymentFolder, roster: Sequence[Member]) -> dict[str, Path]:
    """Write the keys of the roster into files, as Flower's command wants them."""
    home = folder.state / "roster"
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    for member in roster:
        (home / f"{member.name}.pub").write_text(f"{member.key}\n", encoding="utf-8")
    return {member.name: home / f"{member.name}.pub" for member in roster}


def forget_other_keys(folder: DeploymentFolder, roster: Sequence[Member]) -> bool:
    """Throw Flower's database away if it knows keys that are no longer in the roster, and say whether it was so.

    Otherwise their nodes would still be let in. Nothing in it is needed: the run folders are what counts.
    """
    home, keys = folder.state / "roster", {member.key for member in roster}
    known = list(home.glob("*.pub"))
    if all(file.read_text(encoding="utf-8").strip() in keys for file in known):
        return False
    for file in [*folder.state.glob("superlink.db*"), *known]:
        file.unlink()
    return True


def supernode(folder: DeploymentFolder, site: str, server: str, port: int) -> list[str]:
    """Return the command of a site's SuperNode."""
    _require_files(folder.authority, folder.key(site))
    return [
        *("flower-supernode", "--superlink", server, "--root-certificates", str(folder.authority.resolve())),
        *("--auth-supernode-private-key", str(folder.key(site).resolve())),
        *("--host", "127.0.0.1", "--port", str(port)),
    ]


def site_environment(folder: DeploymentFolder, site: str, share_class_counts: bool) -> dict[str, str]:
    """Return the environment of a site's SuperNode; in its path, Flower's programs that run apps are guarded."""
    home = folder.site_state(site)
    made = environment(folder, home / "flower")
    guard = home / "bin"
    guard.mkdir(mode=0o700, parents=True, exist_ok=True)
    for program in GUARDED:
        script = guard / program
        script.write_text(
            f'#!/bin/sh\nexec "{sys.executable}" -m fedquilt.experiment.deployment.guard {program} "$@"\n',
            encoding="utf-8",
        )
        script.chmod(stat.S_IRWXU)
    made |= {SITE: site, SHARES: "1" if share_class_counts else "0"}
    return made | {"PATH": f"{guard.resolve()}{os.pathsep}{made['PATH']}"}


def submit(folder: DeploymentFolder, config: Mapping[str, str | int | bool]) -> list[str]:
    """Return the command that submits the app."""
    written = " ".join(f"{key}={_toml(value)}" for key, value in config.items())
    return ["flwr", "run", str(folder.path.resolve()), CONNECTION, "--run-config", written]


def free_port() -> int:
    """Return a port of loopback that nobody listens at.

    >>> free_port() > 1023
    True
    """
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def _toml(value: str | int | bool) -> str:
    return tomli_w.dumps({"x": value}).partition("=")[2].strip()


def _program(name: str) -> str | None:
    return shutil.which(name, path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")


def _require_files(*files: Path) -> None:
    for file in files:
        if not file.exists():
            raise RunError(f"{file}: no such file; `fedquilt deploy keys` makes keys and certificates")
