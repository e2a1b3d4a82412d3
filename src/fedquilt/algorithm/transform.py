"""A small thing with `init` and `update` that turns one direction into another, and chains.

The same transforms stand in an algorithm's `local`, `upload` and `server` parts: they work on named tensors, and a flat
vector is the case of one name. What leaves the end of a chain is added to the parameters.

A value that changes between rounds is a schedule: it reaches `update` as a tensor in `at.rates`, so that compiled code is
compiled once. Random values are drawn beforehand and reach it in `at.normals`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from torch import Tensor

from fedquilt.base.schedule import Schedule, Stages
from fedquilt.compute.layout import State, Tensors


@dataclass(frozen=True)
class At:
    """Where a step is taken: the parameters now, those at the round's start, this round's rates, this step's noise.

    `given` is what exchanges provide, by their names: at a client what `begin` returned, at the server what was gathered.
    `in_place` allows the parameters to be overwritten by the step. `unused` are the parameters that the loss does not
    depend on: they have no gradient (their direction is 0), and what is added to gradients, such as weight decay, is not
    added to theirs.
    """

    params: Tensors
    start: Tensors
    rates: Sequence[Tensor] = ()
    normals: Sequence[Tensors] = ()
    in_place: bool = False
    given: Mapping[str, Tensors] = field(default_factory=dict)
    unused: Collection[str] = ()


Update = Callable[[Tensors, State, At], tuple[Tensors, State]]


@dataclass(frozen=True)
class Transform:
    """`init(params) -> state` and `update(direction, state, at) -> (direction, state)`.

    `apply(direction, state, at) -> (parameters, state)` takes the step: the parameters plus what `update` returns, unless
    a transform knows how to do both in one pass over memory. Neither may write into the direction: gradients of different
    parameters can share memory.

    `rates` are the schedules whose values `update` finds in `at.rates`; `normals` is how many draws of standard normal
    noise, each shaped like the parameters, it finds in `at.normals`. `momentum` is said where there is some: methods that
    normalise by the number of steps need it. With `keep`, a client's state lives on to its next round.
    """

    init: Callable[[Tensors], State]
    update: Update
    rates: tuple[Schedule | Stages, ...] = ()
    normals: int = 0
    fused: Update | None = None
    momentum: float = 0.0
    keep: bool = False

    def apply(self, direction: Tensors, state: State, at: At) -> tuple[Tensors, State]:
        """Take the step: return the parameters after it."""
        if self.fused is not None:
            return self.fused(direction, state, at)
        step, state = self.update(direction, state, at)
        if at.in_place:
            return {name: p.add_(step[name]) for name, p in at.params.items()}, state
        return {name: p + step[name] for name, p in at.params.items()}, state


def stateless(params: Tensors) -> State:
    """Return the state of a transform that keeps none."""
    return {}


def chain(*transforms: Transform) -> Transform:
    """Apply transforms one after the other; with none, the direction passes unchanged.

    >>> import torch
    >>> from fedquilt.algorithm.parts.descent import add_weight_decay, descend
    >>> both = chain(add_weight_decay(0.5), descend(0.1))
    >>> w = {"w": torch.tensor([2.0])}
    >>> step, _ = both.update({"w": torch.tensor([1.0])}, both.init(w), At(w, w, [torch.tensor(0.1)]))
    >>> step["w"]  # -0.1 · (1 + 0.5 · 2)
    tensor([-0.2000])
    """
    if len(transforms) == 1:
        return transforms[0]
    return Transform(
        init=partial(_chain_init, transforms),
        update=partial(_chain_update, transforms),
        rates=tuple(rate for transform in transforms for rate in transform.rates),
        normals=sum(transform.normals for transform in transforms),
        fused=partial(_chain_apply, transforms) if transforms else None,
        momentum=max((transform.momentum for transform in transforms), default=0.0),
        keep=any(transform.keep for transform in transforms),
    )


def changes_nothing(transform: Transform) -> bool:
    """Say whether a transform is an empty chain.

    >>> changes_nothing(chain()), changes_nothing(chain(chain(), chain()))
    (True, False)
    """
    update = transform.update
    return isinstance(update, partial) and update.func is _chain_update and update.args == ((),)


def links(transform: Transform) -> tuple[Transform, ...]:
    """Return what a chain consists of, chains within it too; any other transform is its own only link.

    >>> one, two = chain(), Transform(stateless, print)
    >>> links(chain(chain(two, one), two)) == (two, two)
    True
    """
    update = transform.update
    if isinstance(update, partial) and update.func is _chain_update:
        return tuple(link for part in update.args[0] for link in links(part))
    return (transform,)


def _chain_init(transforms: tuple[Transform, ...], params: Tensors) -> State:
    states = {str(index): transform.init(params) for index, transform in enumerate(transforms)}
    return {index: state for index, state in states.items() if state}


def _chain_update(transforms: tuple[Transform, ...], direction: Tensors, state: State, at: At) -> tuple[Tensors, State]:
    return _walk(transforms, [transform.update for transform in transforms], direction, state, at)


def _chain_apply(transforms: tuple[Transform, ...], direction: Tensors, state: State, at: At) -> tuple[Tensors, State]:
    calls = [*(transform.update for transform in transforms[:-1]), transforms[-1].apply]
    return _walk(transforms, calls, direction, state, at)


def _walk(
    transforms: tuple[Transform, ...], calls: Sequence[Update], direction: Tensors, state: State, at: At
) -> tuple[Tensors, State]:
    after: State = {}
    rate = normal = 0
    for index, (transform, call) in enumerate(zip(transforms, calls, strict=True)):
        part = replace(
            at,
            rates=at.rates[rate : rate + len(transform.rates)],
            normals=at.normals[normal : normal + transform.normals],
        )
        rate, normal = rate + len(transform.rates), normal + transform.normals
        before = state.get(str(index), {})
        assert isinstance(before, dict)
        direction, state_after = call(direction, before, part)
        if state_after:
            after[str(index)] = state_after
    return direction, after


def effective_steps(steps: int, momentum: float = 0.0) -> float:
    """Return how many plain steps local training amounts to: ‖a‖₁ of Wang 2020 (FedNova).

    With momentum ρ a gradient acts in every later step too: ‖a‖₁ = (τ − ρ(1 − ρ^τ) / (1 − ρ)) / (1 − ρ).

    >>> effective_steps(5), effective_steps(2, momentum=0.5)  # 1 + 0.5 from the first gradient, 1 from the second
    (5.0, 2.5)
    """
    if not momentum:
        return float(steps)
    return (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)
