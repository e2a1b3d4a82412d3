"""Settings of the process that decide the bits of a result: pinned while training runs, and restored.

They are pinned for a session, and again after every client: one that changes them, and does not put them back, must change
nobody else's bits. Reading all of them takes a few microseconds.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.backends import cuda as attention  # on the CPU too, its flags choose how attention is computed
from torch.nn.modules import module as modules
from torch.overrides import _pop_mode as _pop_function_mode
from torch.utils._python_dispatch import _pop_mode as _pop_dispatch_mode

ENVIRONMENT = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "MKL_CBWR", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""Variables that also decide bits, and are read before we run: recorded with every run."""

AS_IT_WAS = object()
"""Stands for the value that a setting has when a session begins."""

_SMALLEST = 5e-324


@dataclass(frozen=True, eq=False)
class PinnedSetting:
    """How a setting is read and written, and the value that it has while training runs."""

    name: str
    read: Callable[[], Any]
    write: Callable[[Any], object]
    value: Any = AS_IT_WAS

    def now(self) -> Any:
        """Read it; what cannot be read was brought into disorder, and is no value that a setting has."""
        try:
            return self.read()
        except (RuntimeError, OSError):
            return _UNREADABLE


_UNREADABLE = object()


def _attribute(owner: Any, name: str, value: Any = AS_IT_WAS) -> PinnedSetting:
    where = f"{owner.__name__ if hasattr(owner, '__name__') else type(owner).__name__}.{name}"
    return PinnedSetting(where, partial(getattr, owner, name), partial(setattr, owner, name), value)


def _default_device() -> torch.device | None:
    """Return the default device that was set; None, unlike torch.get_default_device, where none was."""
    context = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    return None if context is None else context.device


def _infer(value: bool) -> None:
    """Leave or enter inference mode for good. Its guard ends the mode when it is freed, and so is never freed."""
    guard = torch._C._InferenceMode(value)
    guard.__enter__()  # type: ignore[no-untyped-call]
    _GUARDS.append(guard)


_GUARDS: list[Any] = []


def _cut_to(length: Callable[[], int], pop: Callable[[], object], wanted: int) -> None:
    while length() > wanted:
        pop()


def _stack(name: str, length: Callable[[], int], pop: Callable[[], object]) -> PinnedSetting:
    return PinnedSetting(name, length, partial(_cut_to, length, pop))


def _nesting() -> int:
    """Count the autocasts that were entered and not left; only when the last is left, torch forgets the weights it cast."""
    torch.autocast_increment_nesting()
    return torch.autocast_decrement_nesting()


_HOOKS = tuple(
    table for name, table in vars(modules).items() if name.startswith("_global_") and isinstance(table, dict)
)
"""Where torch holds the hooks of all modules."""


def _hooks() -> list[dict[int, Any]]:
    return [dict(table) for table in _HOOKS]


def _hang(hooks: list[dict[int, Any]]) -> None:
    for table, wanted in zip(_HOOKS, hooks, strict=True):
        table.clear()
        table.update(wanted)


def _packing() -> tuple[Any, ...] | None:
    """Return the innermost functions that pack and unpack what autograd keeps for the way back, if there are any."""
    found: tuple[Any, ...] | None = torch._C._autograd._top_saved_tensors_default_hooks(True)
    return found


def _pack_by(hooks: tuple[Any, ...] | None) -> None:
    while _packing() not in (hooks, None):
        torch._C._autograd._pop_saved_tensors_default_hooks()


SETTINGS = (
    PinnedSetting("threads", torch.get_num_threads, torch.set_num_threads, 1),
    PinnedSetting("default dtype", torch.get_default_dtype, torch.set_default_dtype, torch.float32),
    PinnedSetting("default device", _default_device, torch.set_default_device, None),
    PinnedSetting(
        "matmul precision", torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "highest"
    ),
    _attribute(torch.backends.mkldnn, "enabled", True),
    *(  # what single operators inherit comes first
        _attribute(owner, "fp32_precision")
        for owner in (torch.backends, torch.backends.mkldnn)
        if hasattr(owner, "fp32_precision")
    ),
    *(
        _attribute(getattr(torch.backends.mkldnn, operator), "fp32_precision")
        for operator in ("conv", "rnn")
        if hasattr(torch.backends.mkldnn, operator)
    ),
    *(
        PinnedSetting(
            f"{way} attention", getattr(attention, f"{way}_sdp_enabled"), getattr(attention, f"enable_{way}_sdp")
        )
        for way in ("flash", "math", "mem_efficient", "cudnn")
        if hasattr(attention, f"{way}_sdp_enabled")
    ),
    PinnedSetting(
        "fast path of attention", torch.backends.mha.get_fastpath_enabled, torch.backends.mha.set_fastpath_enabled
    ),
    _attribute(torch.backends.cudnn, "allow_tf32", False),
    _attribute(torch.backends.cudnn, "deterministic", True),
    _attribute(torch.backends.cudnn, "benchmark", False),
    PinnedSetting("inference mode", torch.is_inference_mode_enabled, _infer, False),
    PinnedSetting("gradients", torch.is_grad_enabled, torch.set_grad_enabled, True),
    PinnedSetting(
        "autocast", partial(torch.is_autocast_enabled, "cpu"), partial(torch.set_autocast_enabled, "cpu"), False
    ),
    PinnedSetting(
        "type of autocast", partial(torch.get_autocast_dtype, "cpu"), partial(torch.set_autocast_dtype, "cpu")
    ),
    PinnedSetting("cache of autocast", torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled),
    _stack("nested autocasts", _nesting, torch.autocast_decrement_nesting),
    PinnedSetting("hooks of all modules", _hooks, _hang),
    PinnedSetting("hooks of saved tensors", _packing, _pack_by),
    _attribute(modules, "_global_is_full_backward_hook"),
    PinnedSetting("deterministic", torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
    PinnedSetting("anomaly detection", torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
    PinnedSetting("flushing of denormal numbers", lambda: _SMALLEST * 1.0 == 0.0, torch.set_flush_denormal),
    _stack("function modes", torch._C._len_torch_function_stack, _pop_function_mode),
    _stack("dispatch modes", torch._C._len_torch_dispatch_stack, _pop_dispatch_mode),
    PinnedSetting("working directory", os.getcwd, os.chdir),
)
"""Everything that is pinned. The default device is a function mode: it comes before their number."""

_PINNED: dict[PinnedSetting, Any] = {}


@contextmanager
def pinned() -> Iterator[None]:
    """Compute with one thread, in float32, at full precision, with gradients; restore what was set before."""
    before = {setting: setting.now() for setting in SETTINGS}
    wanted = {setting: before[setting] if setting.value is AS_IT_WAS else setting.value for setting in SETTINGS}
    outer = dict(_PINNED)
    torch.set_num_threads(1)  # also where it reads 1 already: it settles how many threads MKL has
    _set(wanted)
    _PINNED.update({setting: setting.now() for setting in SETTINGS})
    try:
        yield
    finally:
        _PINNED.clear()
        _PINNED.update(outer)
        _set(before)


def pin_again() -> list[str]:
    """Put back what a client has changed of the settings that are pinned; return those that could not be put back."""
    torch.clear_autocast_cache()  # copies of weights that a client may have cast, and whose values change for the next
    changed = [setting for setting, value in _PINNED.items() if setting.now() != value]
    if not changed:
        return []
    _set(_PINNED)
    return [setting.name for setting, value in _PINNED.items() if setting.now() != value]


def _set(values: dict[PinnedSetting, Any]) -> None:
    for setting, value in values.items():
        if setting.now() != value:
            with suppress(RuntimeError, OSError):
                setting.write(value)


def variables() -> dict[str, str]:
    """Return the environment variables that decide bits, where they are set."""
    return {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
