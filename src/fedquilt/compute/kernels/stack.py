"""Stacks of linear layers by `stack.cpp`: all local steps of some clients in one call, without a gradient being written.

PyTorch spends most of a small model's step between operations. Here a step of softmax regression takes a microsecond, and
one of the MNIST 2NN a fifth of the time.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

from fedquilt.base.types import Indices
from fedquilt.compute.kernels.build import library, pointers, sizes

KERNEL = "stack"
ACTIVATIONS = ("none", "relu", "cosine")


@dataclass(frozen=True)
class StackLayer:
    """A linear layer and what follows it: the names of its parameters, its size, and f in f(Wx + b).

    "cosine" is `scale`·cos.
    """

    weight: str
    bias: str | None
    inputs: int
    outputs: int
    activation: Literal["none", "relu", "cosine"] = "none"
    scale: float = 1.0


@dataclass(frozen=True)
class Stack:
    """Linear layers, the last of which gives the scores of classes; `flattens` says whether examples may have any shape."""

    layers: tuple[StackLayer, ...]
    flattens: bool = True


@dataclass(frozen=True)
class Descent:
    """Gradient descent in numbers: v ← βv + g + decay·w + pull·(w − start) + given; w ← w − lr·v."""

    lr: float
    momentum: float = 0.0
    decay: float = 0.0
    pull: float = 0.0


@dataclass(frozen=True, eq=False)
class LastLayerPenalties:
    """What is added to the mean loss: alpha·‖W‖_* of the last layer, beta·‖F‖_F of its inputs F, gamma·(their distance).

    The distance, `squared` or not, is that of the inputs' mean from `drawn`, (clients, inputs). With `examples`, how many
    each client has, beta is multiplied by the root of those over a batch's.
    """

    alpha: float = 0.0
    beta: float = 0.0
    gamma: float = 0.0
    squared: bool = False
    examples: Tensor | None = None
    drawn: Tensor | None = None

    def of(self, clients: slice) -> LastLayerPenalties:
        """Return those of some clients."""
        examples, drawn = (None if each is None else each[clients] for each in (self.examples, self.drawn))
        return replace(self, examples=examples, drawn=drawn)


@dataclass(frozen=True, eq=False)
class Examples:
    """What clients train on: examples, their classes and weights (None: all 1), and which of them every batch has.

    `order` are the rows of all batches of all clients; `ends` are where each batch ends among those of its client, and
    `steps` how many batches each client has.
    """

    x: Tensor
    y: Tensor
    weights: Tensor | None
    order: Indices
    ends: Indices
    steps: Indices

    @cached_property
    def sizes(self) -> Indices:
        """How many examples each batch has."""
        starts = np.concatenate([[0], self.ends[:-1]])
        starts[self.firsts] = 0
        sizes: Indices = self.ends - starts
        return sizes

    @property
    def firsts(self) -> Indices:
        """The number of each client's first batch, among those of all."""
        return np.cumsum(self.steps) - self.steps


def stack_of(module: nn.Module) -> Stack | None:
    """Return the layers of a model that is a stack of linear ones, or None.

    A model of your own is one if its method `as_stack` says so.

    >>> stack_of(nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))).layers[0]
    StackLayer(weight='1.weight', bias='1.bias', inputs=4, outputs=3, activation='relu', scale=1.0)
    >>> stack_of(nn.Sequential(nn.Linear(4, 3), nn.Tanh())) is None
    True
    """
    found = _declared(module) if "as_stack" in vars(type(module)) else _read(module)
    if found is None or any(True for _ in module.buffers()):
        return None
    if _has_any_global_hook() or any(changed(part) for part in module.modules()):  # type: ignore[no-untyped-call]
        return None
    named = {name for layer in found.layers for name in (layer.weight, layer.bias) if name is not None}
    trained = {name for name, p in module.named_parameters(remove_duplicate=False) if p.requires_grad}
    return found if named == trained and len(named) == len(list(module.parameters())) else None


def _declared(module: nn.Module) -> Stack | None:
    return module.as_stack()  # type: ignore[operator,no-any-return]


def _read(module: nn.Module) -> Stack | None:
    """Read the layers off a linear layer, or off a sequence of layers."""
    layers: list[StackLayer] = []
    flattens = False
    for name, part in _leaves(module, ""):
        if type(part) is nn.Linear:
            bias = None if part.bias is None else f"{name}bias"
            layers.append(StackLayer(f"{name}weight", bias, part.in_features, part.out_features))
        elif type(part) is nn.ReLU and layers and layers[-1].activation == "none":
            layers[-1] = replace(layers[-1], activation="relu")
        elif type(part) is nn.Flatten and not layers and (part.start_dim, part.end_dim) == (1, -1):
            flattens = True
        elif type(part) is not nn.Identity:
            return None
    fits = all(below.outputs == above.inputs for below, above in pairwise(layers))
    return Stack(tuple(layers), flattens) if layers and fits and layers[-1].activation == "none" else None


def _leaves(module: nn.Module, prefix: str) -> list[tuple[str, nn.Module]]:
    if type(module) is not nn.Sequential:
        return [(prefix, module)]
    return [leaf for name, part in module.named_children() for leaf in _leaves(part, f"{prefix}{name}.")]


def changed(part: nn.Module) -> bool:
    """Say whether a layer computes something else than its class says: it has hooks, or a `forward` of its own."""
    hooks = (part._forward_hooks, part._forward_pre_hooks, part._backward_hooks, part._backward_pre_hooks)
    return "forward" in vars(part) or any(len(each) for each in hooks)


def train_stack(
    stack: Stack,
    offsets: dict[str, int],
    vectors: Tensor,
    velocities: Tensor | None,
    start: Tensor,
    given: Tensor | None,
    examples: Examples,
    descent: Descent,
    normalise: bool,
    penalties: LastLayerPenalties | None = None,
) -> npt.NDArray[np.float64]:
    """Train clients' models, the rows of `vectors`, in place; return the mean loss of each client's examples.

    `offsets` are where parameters begin in a vector. `velocities`, needed for momentum, and `given` are as large as
    `vectors`. The loss that is returned leaves penalties out.

    >>> from fedquilt.compute.kernels.build import trouble
    >>> stack, x = stack_of(nn.Linear(2, 2)), torch.tensor([[1.0, -1.0]])
    >>> one = Examples(x, torch.tensor([0]), None, np.array([0]), np.array([1]), np.array([1]))
    >>> if trouble(KERNEL) is None:
    ...     vectors = torch.zeros(1, 6)
    ...     assert np.allclose(
    ...         train_stack(stack, {"weight": 0, "bias": 4}, vectors, None, vectors[0], None, one, Descent(0.1), True),
    ...         np.log(2),
    ...     )
    ...     assert torch.allclose(vectors[0, :2], torch.tensor([0.05, -0.05]))
    """
    _require(stack, examples)
    about = torch.tensor(
        [
            (
                *(each.inputs, each.outputs, offsets[each.weight]),
                -1 if each.bias is None else offsets[each.bias],
                ACTIVATIONS.index(each.activation),
            )
            for each in stack.layers
        ]
    )
    scales = torch.tensor([each.scale for each in stack.layers])
    clients, size = vectors.shape
    losses = np.zeros(clients)
    penalties = penalties or LastLayerPenalties()
    _require_rows(clients, stack.layers[-1].inputs, penalties)
    arrays = [np.ascontiguousarray(each) for each in (examples.order, examples.ends, examples.steps)]
    failed = library(KERNEL).stack_train(
        *pointers(about, scales),
        *sizes(len(stack.layers)),
        *pointers(vectors),
        *sizes(clients, size),
        *pointers(velocities, start, given, examples.x, examples.y, examples.weights),
        *(ctypes.c_void_p(each.ctypes.data) for each in arrays),
        ctypes.c_void_p(losses.ctypes.data),
        *sizes(int(examples.sizes.max())),
        *(ctypes.c_float(value) for value in (descent.lr, descent.momentum, descent.decay, descent.pull)),
        *sizes(normalise),
        *(ctypes.c_float(value) for value in (penalties.alpha, penalties.beta, penalties.gamma)),
        *sizes(penalties.squared),
        *pointers(penalties.examples, penalties.drawn),
    )
    if failed:
        raise MemoryError("there is not enough memory for a batch")
    return losses


def _require(stack: Stack, examples: Examples) -> None:
    """Refuse what the kernel would read or write elsewhere: it does not look."""
    x, y, first, last = examples.x, examples.y, stack.layers[0], stack.layers[-1]
    if x.dim() != 2 or x.shape[1] != first.inputs:
        raise ValueError(
            f"the model takes examples of {first.inputs} numbers, and these have shape {tuple(x.shape[1:])}"
        )
    plain = [(x, torch.float32), (y, torch.int64)]
    plain += [] if examples.weights is None else [(examples.weights, torch.float32)]
    if any(each.dtype != kind or not each.is_contiguous() or len(each) != len(x) for each, kind in plain):
        raise ValueError("examples must be float32, and have one whole number each as their class")
    lowest, highest = (int(value) for value in y.aminmax())
    if lowest < 0 or highest >= last.outputs:
        wrong = lowest if lowest < 0 else highest
        raise ValueError(f"class {wrong} is out of range: the model has scores for {last.outputs} classes")
    order, ends, lasts = examples.order, examples.ends, np.cumsum(examples.steps) - 1
    if order.dtype != np.int64 or order.min() < 0 or order.max() >= len(x):
        raise ValueError("a batch refers to an example that does not exist")
    if ends.dtype != np.int64 or lasts[-1] + 1 != len(ends) or (examples.steps < 1).any():
        raise ValueError("every client must have a batch")
    if (examples.sizes < 1).any() or ends[lasts].sum() != len(order):
        raise ValueError("batches must have at least one example each")


def _require_rows(clients: int, inputs: int, penalties: LastLayerPenalties) -> None:
    """Refuse penalties that have not something for every client."""
    wanted = ((penalties.examples, (clients,)), (penalties.drawn, (clients, inputs)))
    given = [(each, shape) for each, shape in wanted if each is not None]
    if any(each.dtype != torch.float32 or each.shape != shape or not each.is_contiguous() for each, shape in given):
        raise ValueError("penalties need a float32 number or row for every client")
    if penalties.gamma and penalties.drawn is None:
        raise ValueError("a distance needs something that it is measured from")


def rows_of(parts: Sequence[Indices]) -> Indices:
    """Join arrays of whole numbers.

    >>> rows_of([np.array([1]), np.array([2, 3])]).tolist()
    [1, 2, 3]
    """
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
