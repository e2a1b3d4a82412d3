"""The folder of a federation: what lies where, at the server and at every site."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from fedquilt.base.errors import RunError, SpecError
from fedquilt.experiment.changes import change
from fedquilt.experiment.spec import FEDERATION, Spec, check_spec, read_tables

VARIABLE = "FEDQUILT_FEDERATION"
"""The environment variable by which a ServerApp or ClientApp finds the folder."""

SITE = "FEDQUILT_SITE"
"""The environment variable by which a ClientApp knows its site."""

SHARES = "FEDQUILT_SHARE_CLASS_COUNTS"
"""Set where a site has agreed to tell the server how many examples of each class it has."""

RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,100}")
"""Names of run folders that a ServerApp accepts: they stay within `runs/`."""


@dataclass(frozen=True)
class DeploymentFolder:
    """The folder of a federation.

    >>> DeploymentFolder(Path("clinics")).key("bern").as_posix()
    'clinics/keys/bern.key'
    """

    path: Path

    @classmethod
    def here(cls) -> DeploymentFolder:
        """Return the folder that a process of Flower's was started for."""
        if VARIABLE not in os.environ:
            raise RunError(
                f"{VARIABLE} is not set: start the server with `fedquilt deploy server FOLDER` and sites with "
                "`fedquilt deploy site FOLDER NAME`"
            )
        return cls(Path(os.environ[VARIABLE]))

    @property
    def spec(self) -> Path:
        """The spec, with the roster of sites."""
        return self.path / FEDERATION

    @property
    def keys(self) -> Path:
        """Keys and certificates."""
        return self.path / "keys"

    @property
    def authority(self) -> Path:
        """The certificate by which sites know the server."""
        return self.keys / "ca.pem"

    @property
    def certificate(self) -> Path:
        """The server's certificate."""
        return self.keys / "server.pem"

    @property
    def certificate_key(self) -> Path:
        """The key of the server's certificate."""
        return self.keys / "server.key"

    def key(self, site: str) -> Path:
        """The private key of a site."""
        return self.keys / f"{site}.key"

    def public_key(self, site: str) -> Path:
        """The public key of a site."""
        return self.keys / f"{site}.pub"

    @property
    def state(self) -> Path:
        """What Flower writes, and what clients keep from round to round."""
        return self.path / "state"

    def site_state(self, site: str) -> Path:
        """What is kept at a site."""
        return self.state / f"site-{site}"

    @property
    def runs(self) -> Path:
        """The run folders."""
        return self.path / "runs"

    def run(self, name: str) -> Path:
        """Return a run folder; a name that leads elsewhere is refused.

        >>> DeploymentFolder(Path("clinics")).run("../../etc")
        Traceback (most recent call last):
        fedquilt.base.errors.SpecError: '../../etc' is not a valid name of a run: letters, digits, dots, - and _ are allowed
        """
        if not RUN.fullmatch(name):
            raise SpecError(f"'{name}' is not a valid name of a run: letters, digits, dots, - and _ are allowed")
        return self.runs / name

    def load(self, sets: tuple[str, ...] = ()) -> Spec:
        """Read the spec of real sites."""
        if not self.spec.exists():
            raise SpecError(f"{self.spec}: no such file; `fedquilt deploy init {self.path}` writes one")
        tables = change(read_tables(self.spec), sets, ())
        tables["engine"] = {"name": "flower"} | tables.get("engine", {})
        if tables["engine"]["name"] != "flower":
            raise SpecError(f'{self.spec}: [engine] name: real sites are run by "flower"; leave [engine] out')
        spec = check_spec(tables, str(self.spec), self.path.resolve())
        if not spec.sites:
            raise SpecError(f"{self.spec}: [[site]]: there are none; `fedquilt deploy keys` prints one for each key")
        return spec
