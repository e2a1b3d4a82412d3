"""Stands in a site's path before Flower's program that runs ClientApps: it runs the app that the site was given alone.

Whoever can submit apps to the SuperLink could otherwise run any code at every site. Flower's own check, by
`--trusted-entities`, needs signatures that only its own hub can give. The app is packed from the site's own folder, as
Flower packs it, and the digest is compared with that of the app that came, before anything of it is unpacked.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any

from fedquilt.experiment.deployment.folder import DeploymentFolder

REFUSED = 77
"""The exit code of a program that is not run at a site."""


def digest_of_app(folder: Path) -> str:
    """Return the digest of the app in a folder, as Flower packs it."""
    from flwr.cli.build import build_fab_from_disk

    return hashlib.sha256(build_fab_from_disk(folder)).hexdigest()


def main() -> None:
    """Run one of Flower's programs for apps, if a site runs it at all."""
    program, *words = sys.argv[1:]
    if program != "flwr-clientapp":
        print(f"refused: a site runs no {program}", file=sys.stderr)
        sys.exit(REFUSED)
    from flwr.supernode.cli import flwr_clientapp
    from flwr.supernode.runtime import run_clientapp

    functions = vars(run_clientapp)  # Flower has no other place to look at an app before it is unpacked
    install, given = functions["install_from_fab"], digest_of_app(DeploymentFolder.here().path)

    def install_if_given(content: bytes, *args: Any, **kwargs: Any) -> Any:
        found = hashlib.sha256(content).hexdigest()
        if found != given:
            raise PermissionError(f"the app {found[:12]}… is not the one this site was given, {given[:12]}…: not run")
        return install(content, *args, **kwargs)

    functions["install_from_fab"] = install_if_given
    sys.argv = [program, *words]
    flwr_clientapp()


if __name__ == "__main__":
    main()
