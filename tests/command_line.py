"""The command line, called from tests: `command` of conftest.py does it, in a folder that holds spec.toml."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

SPEC = """
[run]
rounds = 2
[data]
name = "digits"
[partition]
name = "dirichlet"
clients = 10
alpha = 0.5
[model]
name = "softmax_regression"
inputs = 64
[method]
name = "fed_avg_m"
fraction = 0.3
[engine]
name = "inline"
"""


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str


Command = Callable[..., Answer]
