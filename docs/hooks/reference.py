"""Generates the API reference: a page for every namespace with public names, and an index of all of them.

The sources are read, not imported. Public is what a namespace exports: `fedquilt` itself, and each of its subpackages that
declares `__all__` or has a stub. A name that is exported in several places is documented once, in a subpackage.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

SOURCES = Path(__file__).resolve().parents[2] / "src"
PACKAGE = "fedquilt"


@dataclass(frozen=True)
class Name:
    """A public name: how a user writes it, and where it is defined."""

    public: str
    defined: griffe.Object | griffe.Alias

    @property
    def summary(self) -> str:
        """The first paragraph of its docstring, on one line."""
        docstring = self.defined.docstring
        return " ".join(docstring.value.split("\n\n", 1)[0].split()).replace("|", "\\|") if docstring else ""


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the pages of the reference."""
    package = griffe.load(PACKAGE, search_paths=[SOURCES], resolve_aliases=False)
    pages = dict(namespaces(package))
    for namespace, names in pages.items():
        text = page(package[namespace] if namespace else package, names)
        files.append(File.generated(config, f"reference/{namespace or PACKAGE}.md", content=text))
    files.append(File.generated(config, "reference/index.md", content=index(package, pages)))


def namespaces(package: griffe.Module) -> Iterator[tuple[str, list[Name]]]:
    """Yield every namespace with its public names: the subpackages first, then what only the root exports."""
    at_root = {definition(package, name): name for name in exported(package)}
    elsewhere = set()
    for module in package.modules.values():
        names = []
        for name in sorted(exported(module)):
            path = definition(module, name)
            short = at_root.get(path)
            names.append(Name(f"{PACKAGE}.{short}" if short else f"{module.path}.{name}", at(package, path)))
            elsewhere.add(path)
        if names:
            yield module.name, names
    rest = [(name, path) for path, name in at_root.items() if path not in elsewhere]
    yield "", [Name(f"{PACKAGE}.{name}", at(package, path)) for name, path in sorted(rest)]


def exported(module: griffe.Module) -> list[str]:
    """Return the public names of a module, namespaces within it aside."""
    names = [str(name) for name in module.exports or ()]
    if module.exports is None and module.filepath.with_suffix(".pyi").exists():
        names = [name for name, path in module.imports.items() if path.startswith(f"{PACKAGE}.")]
    return [name for name in names if not name.startswith("_") and not is_namespace(module, name)]


def is_namespace(module: griffe.Module, name: str) -> bool:
    """Return whether a name is a module of the package, and is not shadowed by something that is imported from it."""
    path = module.imports.get(name, f"{module.path}.{name}")
    return path == f"{module.path}.{name}" and name in module.modules


def definition(module: griffe.Module, name: str) -> str:
    """Return the path at which a name is defined, following imports."""
    path = module.imports.get(name)
    if path is None or path == f"{module.path}.{name}":
        return f"{module.path}.{name}"
    home, _, name = path.rpartition(".")
    return definition(module.package[home.removeprefix(PACKAGE).removeprefix(".")], name) if "." in home else path


def at(package: griffe.Module, path: str) -> griffe.Object | griffe.Alias:
    """Return what is defined at a path; it is an error if nothing is."""
    try:
        return package[path.removeprefix(f"{PACKAGE}.")]
    except KeyError:
        raise PluginError(f"{path} is public, but the sources do not define it there") from None


def page(module: griffe.Module, names: list[Name]) -> str:
    """Return the page of a namespace."""
    about = module.docstring.value if module.docstring else ""
    parts = [f"# `{module.path}`", about]
    for name in names:
        parts += [
            f'<a id="{name.public}"></a>',
            f"::: {name.defined.path}\n    options:\n      heading: {name.public}\n      toc_label: {name.defined.name}",
        ]
    return "\n\n".join([*parts, ""])


def index(package: griffe.Module, pages: dict[str, list[Name]]) -> str:
    """Return the table of all public names."""
    parts = [
        "# Python API",
        "Every public name, generated from the sources. `import fedquilt as fq` gives most of them.",
    ]
    for namespace in sorted(pages):
        here = f"{namespace or PACKAGE}.md"
        parts.append(f"## [`{(package[namespace] if namespace else package).path}`]({here})")
        rows = [f"| [`{name.defined.name}`]({here}#{name.public}) | {name.summary} |" for name in pages[namespace]]
        parts.append("\n".join(["| name | what it is |", "|---|---|", *rows]))
    return "\n\n".join([*parts, ""])
