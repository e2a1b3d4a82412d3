"""The command line: finds the commands, and turns what they end with into messages and exit codes.

A command is a file of this folder that has an `EXAMPLE` and a function of the file's name (`list_` in `list.py`); a file
with an `app` is a group of commands. `UNTOUCHED` says what Ctrl-C has left of a command that had not come to
training, which saves by itself what is done. What needs PyTorch is imported by the commands: help comes at once, and Ctrl-C
during the import is handled as any other.
"""

from __future__ import annotations

import pkgutil
import sys
import warnings
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import fedquilt
from fedquilt.base.errors import DataError, FedquiltError, RunError, SpecError
from fedquilt.base.text import visible
from fedquilt.cli.console import FAILED, INTERRUPTED, WRONG, complain, err, warn


class Commands(TyperGroup):
    """Commands that say what an interruption has left; by themselves, Typer's end without a word."""

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except Exception as error:
            # Which of two libraries an unknown option's error is from depends on Typer's version: hence by what it has.
            option, said = getattr(error, "option_name", None), getattr(error, "message", None)
            if isinstance(option, str) and isinstance(said, str) and ctx.invoked_subcommand in TAKE_SPECS:
                error.message = f"{said}. {key_meant(option, sys.argv)}".removesuffix(". ")  # type: ignore[attr-defined]
            elif isinstance(said, str) and "Did you mean" in said:  # newer versions of Click say it once more
                error.possibilities = None  # type: ignore[attr-defined]
            raise
        except KeyboardInterrupt:
            module = import_module(f"fedquilt.cli.{ctx.invoked_subcommand or 'app'}")
            err.print(getattr(module, "UNTOUCHED", "Interrupted."))
            raise typer.Exit(INTERRUPTED) from None


app = typer.Typer(
    cls=Commands,
    help="Federated learning for data that differs from owner to owner.",
    epilog="Start with: fedquilt new first.toml, then: fedquilt run first.toml",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


TAKE_SPECS = ("run", "sweep", "partition")
"""Commands whose spec can be changed with --set."""


def key_meant(option: str, words: list[str]) -> str:
    """Say how a key of a spec is changed that was given as an option.

    >>> key_meant("--rounds", ["run", "first.toml", "--rounds", "3"])
    'It is a key of the spec: --set run.rounds=3'
    """
    from fedquilt.experiment.spec import home_of

    key = option.lstrip("-").replace("-", "_")
    table = home_of(key)
    if table is None:
        return ""
    given = next((word.partition("=")[2] for word in words if word.startswith(f"{option}=")), None)
    after = words[words.index(option) + 1 :] if option in words else []
    value = given or (after[0] if after and not after[0].startswith("-") else "VALUE")
    return f"It is a key of the spec: --set {table}.{key}={value}"


def _version(asked: bool) -> None:
    if asked:
        print(fedquilt.__version__)
        raise typer.Exit


@app.callback()
def start(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    """Federated learning for data that differs from owner to owner."""


def _mount() -> None:
    """Add the commands of this folder."""
    package = import_module("fedquilt.cli")
    for name in sorted(found.name for found in pkgutil.iter_modules(package.__path__) if found.name != "app"):
        module = import_module(f"fedquilt.cli.{name}")
        if hasattr(module, "EXAMPLE"):
            function = getattr(module, name, None) or getattr(module, f"{name}_")
            app.command(name=name, epilog=f"Example: {module.EXAMPLE}")(function)
        elif hasattr(module, "app"):
            app.add_typer(module.app, name=name)


_mount()


def main() -> None:
    """Run the command line; print errors that a user can act on as one message, without a traceback."""
    warnings.showwarning = warn
    try:
        app()
    except KeyboardInterrupt:
        err.print("Interrupted.")
        sys.exit(INTERRUPTED)
    except Exception as error:
        message = message_of(error)
        if message is None:
            raise
        complain(message)
        named = isinstance(error, OSError) and error.filename
        sys.exit(WRONG if named or isinstance(error, SpecError | RunError | DataError) else FAILED)


def message_of(error: BaseException) -> str | None:
    """Return what the command line says of an error that a user can act on; None of others, which are faults of ours."""
    if isinstance(error, OSError) and error.filename:
        return visible(f"{error.filename}: {error.strerror}")
    return visible(str(error), keep="\n") if isinstance(error, FedquiltError | OSError) else None
