"""What `fedquilt deploy init` writes: a small Flower app, a spec, how sites load their data, keys, and a README."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import Literal

from fedquilt.base.errors import SpecError
from fedquilt.experiment.deployment.folder import DeploymentFolder
from fedquilt.experiment.deployment.keys import make_certificates, make_site_key
from fedquilt.experiment.spec import FEDERATION

Source = Literal["digits", "csv", "parquet", "images", "code"]
"""Where sites have their data: digits that come with scikit-learn, for trying out, files, or code of their own."""

NAMES = ("bern", "oslo", "rome", "lima", "kyiv", "cork", "nice", "bonn", "graz", "york", "turin", "basel")


def site_names(count: int) -> list[str]:
    """Return names for sites to try out with.

    >>> site_names(2)
    ['bern', 'oslo']
    """
    return [NAMES[number] if number < len(NAMES) else f"site-{number + 1}" for number in range(count)]


def write_folder(
    folder: DeploymentFolder, sites: Sequence[str], source: Source = "digits", hosts: Sequence[str] = ()
) -> None:
    """Write the folder of a new federation, with keys for all its sites: for trying out, in one place."""
    if folder.path.exists() and any(folder.path.iterdir()):
        raise SpecError(f"{folder.path}: is not empty; choose another folder")
    folder.path.mkdir(parents=True, exist_ok=True)
    make_certificates(folder, hosts)
    roster = "\n".join(roster_entry(site, make_site_key(folder, site)) for site in sites)
    model = {"digits": "mnist_2nn", "images": "mobilenet_v2"}.get(source, "softmax_regression")
    texts = {
        "pyproject.toml": _text("pyproject.toml"),
        "app.py": _text("app.py"),
        "data.py": _text(f"data_{source}.py").replace("SITE_NAMES", ", ".join(f'"{site}"' for site in sites)),
        FEDERATION: _text("federation.toml").replace("MODEL", model) + roster,
        "README.md": _text("README.md").replace("FIRST", sites[0]).replace("SITES", ", ".join(sites)),
        ".gitignore": "keys/\nstate/\nruns/\ndata/\n__pycache__/\n",
    }
    for name, text in texts.items():
        (folder.path / name).write_text(text, encoding="utf-8")


def roster_entry(site: str, key: str) -> str:
    """Write a site as a spec's roster has it."""
    return f'[[site]]\nname = "{site}"\nkey = "{key}"\n'


def _text(name: str) -> str:
    return files("fedquilt.experiment.deployment").joinpath("template", f"{name}.txt").read_text(encoding="utf-8")
