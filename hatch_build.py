"""Compiles fedquilt's kernels when it is installed; without a C++ compiler, it is installed without them."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Kernels(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the kernels to a wheel, which is then one for this system."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile them in the source folder, from where an editable installation takes them."""
        sys.path.insert(0, str(Path(self.root) / "src"))
        try:
            from fedquilt.base.errors import FedquiltError
            from fedquilt.compute.kernels.compiler import install

            made = install()
        except (FedquiltError, OSError) as reason:
            self.app.display_warning(f"kernels are compiled on first use instead: {reason}")
            return
        finally:
            sys.path.pop(0)
        if made:
            system = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["artifacts"] += [f"/{path.relative_to(self.root)}" for path in made]
            build_data |= {"pure_python": False, "tag": f"py3-none-{system}"}
