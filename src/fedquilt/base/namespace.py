"""Packages whose public names are derived, and imported when they are first used.

A namespace has the names of some registries and a few others, each said once: where it is defined. `import fedquilt` is
quick, since nothing is imported with it. Type checkers and editors read the stub beside the package, which
`python tools/stubs.py` writes from the same names.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

from fedquilt.base import collection
from fedquilt.base.registry import Registry


class Namespace(ModuleType):
    """A package, or a module, whose public names are imported when they are first used.

    >>> import fedquilt.methods
    >>> "fed_avg" in dir(fedquilt.methods), "Algorithm" in dir(fedquilt.methods), fedquilt.methods.fed_avg().name
    (True, False, 'fed_avg')
    """

    _registries: tuple[Registry, ...]
    _defined: dict[str, str]
    _within: tuple[str, ...]

    def __getattr__(self, name: str) -> Any:
        """Import a public name; Python asks for those that the module does not have yet."""
        if name == "__all__":
            return self.names()
        if name in self._within:
            return import_module(f"{self.__name__}.{name}")
        home = None if name.startswith("_") else self.home(name)
        if home is None:
            raise AttributeError(f"module '{self.__name__}' has no attribute '{name}'")
        with collection.paused():
            found = getattr(import_module(home), name)
        vars(self)[name] = found
        return found

    def __setattr__(self, name: str, value: object) -> None:
        """Keep a public name where Python puts the file or folder of the same name, as it does once that is imported."""
        if isinstance(value, ModuleType) and (name in self._defined or self._is_home(value, name)):
            return  # the name is found when it is first used
        super().__setattr__(name, value)

    def _is_home(self, module: ModuleType, name: str) -> bool:
        """Say whether a file, or a folder of a namespace that is not the root, defines the public name that it has."""
        folder = hasattr(module, "__path__") and "." in self.__name__
        return (folder or name in vars(module)) and f"{self.home(name)}.".startswith(f"{module.__name__}.")

    def __dir__(self) -> list[str]:
        version = ["__version__"] if "__version__" in vars(self) else []
        return sorted([*self.names(), *self._within, *version])

    def names(self) -> list[str]:
        """List the public names: constants and classes first, then functions."""
        every = {*self._defined, *(name for known in self._registries for name in known)}
        return sorted(every, key=lambda name: (not name[0].isupper(), name))

    def home(self, name: str) -> str | None:
        """Return the module that defines a name, or None."""
        if name in self._defined:
            return self._defined[name]
        return next((known.home(name) for known in self._registries if name in known), None)


def namespace(
    name: str,
    *registries: Registry,
    defined: dict[str, tuple[str, ...]] | None = None,
    within: tuple[str, ...] = (),
) -> None:
    """Make a module a namespace.

    Its names are those of the registries and those `defined` in modules; `within` are the namespaces in it.
    """
    module = sys.modules[name]
    homes = {each: home for home, names in (defined or {}).items() for each in names}
    vars(module).update(_registries=registries, _defined=homes, _within=within)
    module.__class__ = Namespace
