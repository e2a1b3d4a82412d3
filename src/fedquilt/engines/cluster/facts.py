"""What of a machine decides the last bits of a result, and whether two machines can give the same."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Any

import torch

from fedquilt.compute.pinned import SETTINGS, pinned, variables

NOT_COMPARED = ("working directory", "hooks of all modules")
"""Settings that are pinned and decide no bits."""


@dataclass(frozen=True)
class Facts:
    """Versions, the instructions that PyTorch uses, and the settings that are pinned, as they are while clients train."""

    fedquilt: str
    torch: str
    numpy: str
    python: str
    capability: str
    variables: Mapping[str, str]
    settings: Mapping[str, str]

    @classmethod
    def of_this_machine(cls) -> Facts:
        """Look at this process.

        >>> Facts.of_this_machine().differences(Facts.of_this_machine())
        {}
        """
        with pinned():
            settings = {each.name: str(each.now()) for each in SETTINGS if each.name not in NOT_COMPARED}
        decisive = {name: value for name, value in variables().items() if "THREADS" not in name}
        return cls(
            fedquilt=metadata.version("fedquilt"),
            torch=torch.__version__,
            numpy=metadata.version("numpy"),
            python=platform.python_version(),
            capability=torch.backends.cpu.get_cpu_capability(),
            variables=decisive,
            settings=settings,
        )

    def differences(self, other: Facts) -> dict[str, tuple[Any, Any]]:
        """Return what differs, by name, as it is here and there."""
        mine, theirs = _flat(self), _flat(other)
        names = sorted(mine.keys() | theirs.keys())
        return {name: (mine.get(name), theirs.get(name)) for name in names if mine.get(name) != theirs.get(name)}


def _flat(facts: Facts) -> dict[str, str]:
    plain = {name: value for name, value in asdict(facts).items() if isinstance(value, str)}
    return plain | dict(facts.variables) | dict(facts.settings)


def facts_of_node() -> Facts:
    """Return this machine's facts: what a cluster's nodes are asked."""
    return Facts.of_this_machine()
