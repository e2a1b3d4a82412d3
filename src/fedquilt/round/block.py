"""Many clients as one program: the one local step, mapped over a block of clients, and compiled if asked.

The step is `local_step` itself, in its functional mode; `torch.func.vmap` runs it for all clients of a block at once,
several steps per call. Clients that have fewer steps stand still while the others continue; padded examples have
the weight 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from fedquilt.algorithm.algorithm import Algorithm
from fedquilt.algorithm.context import ClientBlock, Context
from fedquilt.algorithm.penalty import classifier_layer, watch
from fedquilt.algorithm.transform import At
from fedquilt.algorithm.updates import Answer, BlockUpdate
from fedquilt.base.rng import generator
from fedquilt.compute.layout import ModelState, State, Tensors
from fedquilt.compute.pinned import pin_again
from fedquilt.compute.replica import Replica
from fedquilt.round.client import close_visit, open_visit, sends_difference_alone
from fedquilt.round.loader import BatchLoader
from fedquilt.round.local_step import FUNCTIONAL, Batch, Carried, Recipe, local_step, unused_parameters
from fedquilt.round.padded import Padded, Shape
from fedquilt.round.training import LocalResult, draw_normals, optimiser_of

T = TypeVar("T")

STEPS = 10
"""Steps per call, at most: a compiled call's overhead is shared by them, and its compile time grows with them."""


class Training(NamedTuple):
    """Where the training of a block's clients stands: a row each."""

    params: Tensors
    carried: Carried


class StepInputs(NamedTuple):
    """The inputs of some steps of a block's clients: batches, which steps are taken (None: all), and noise.

    `given` is what exchanges gave for the round.
    """

    batch: Batch
    active: Tensor | None
    normals: Sequence[Tensors]
    given: dict[str, Tensors]


class Shared(NamedTuple):
    """What the clients of a block have in common: the round's start, and its rates."""

    start: Tensors
    rates: Sequence[Tensor]


RunSteps = Callable[[Training, StepInputs, Shared], tuple[Training, Tensor]]


@dataclass(frozen=True, eq=False)
class BlockResult:
    """What `LocalResult` is for one client, for a block: a row each."""

    after: ModelState
    optimiser: State
    losses: list[float]
    steps: list[int]
    examples: list[int]

    def __iter__(self) -> Iterator[LocalResult]:
        """Yield what each client ended with."""
        tensors = zip(self.after.vector, self.after.buffers, self.after.counters, strict=True)
        columns = zip(tensors, self.losses, self.steps, self.examples, strict=True)
        for client, (values, loss, steps, examples) in enumerate(columns):
            of_client = tree_map(lambda leaf, client=client: leaf[client], self.optimiser) if self.optimiser else {}
            yield LocalResult(ModelState(*values), of_client, loss, steps, examples)


@dataclass(frozen=True, eq=False)
class Program:
    """Trains blocks of clients. `block` is how many at once, `compiled` whether the program is compiled."""

    replica: Replica
    algorithm: Algorithm
    largest: int
    block: int
    compiled: bool
    _shapes: dict[int, Shape] = field(default_factory=dict, repr=False)
    _run: RunSteps = field(init=False, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what was mapped or compiled, which a spawned process makes anew."""
        return {name: value for name, value in self.__dict__.items() if name != "_run"}

    def train_locally(self, block: ClientBlock, givens: Sequence[dict[str, Tensors]]) -> BlockResult:
        """Train a block of clients that start from the same model."""
        contexts = block.contexts
        self.replica.module.train()  # an evaluation may have come before
        algorithm, layout, round_ = self.algorithm, self.replica.layout, contexts[0].round
        loaders = BatchLoader.of_all(algorithm, block)
        shape = self._shape(round_)
        padded = Padded.of(loaders, shape)
        missing = self.block - len(contexts) if self.compiled else 0
        begin, placement = contexts[0].start, self.replica.placement
        start = layout.parameters_of(begin.vector)
        buffers = {name: _repeated(b, len(contexts)) for name, b in layout.buffers_of(begin).items()}
        now = Training(
            {name: _repeated(p, len(contexts)) for name, p in start.items()},
            Carried(self._optimisers(contexts, start), buffers),
        )
        rates = [torch.tensor(rate(round_), dtype=torch.float32) for rate in algorithm.local.rates]
        shared = Shared(start, rates)
        given: dict[str, Tensors] = _stacked(givens) if givens[0] else {}
        noises = [generator(c.seed, "local noise", *c.key) for c in contexts] if algorithm.local.normals else []
        ones = torch.ones(padded.rows.shape[1:])
        now, shared, given = placement.put((_filled(now, missing), shared, _filled(given, missing)))
        losses = []
        for ready, taken in zip(padded.ready(), padded.active, strict=True):
            active = torch.from_numpy(taken)
            # One compiled program serves all batches, those without padding too.
            inputs = StepInputs(
                ready._replace(weights=ones, mask=ones) if self.compiled and ready.weights is None else ready,
                active if self.compiled or not taken.all() else None,
                self._normals(noises, active, start) if noises else (),
                {},
            )
            inputs = placement.put(_filled(inputs, missing))._replace(given=given)
            if "_run" not in self.__dict__:
                self.__dict__["_run"] = self._mapped(now, inputs, shared)
            now, loss = self._run(now, inputs, shared)
            losses.append(loss[: len(contexts)])
        means = padded.mean_losses(placement.fetch(torch.cat(losses, dim=1)))
        return self._results(loaders, placement.fetch(tree_map(lambda leaf: leaf[: len(contexts)], now)), means)

    def _results(self, loaders: Sequence[BatchLoader], now: Training, means: list[float]) -> BlockResult:
        layout, count = self.replica.layout, len(loaders)
        vectors = torch.cat([now.params[e.name].reshape(count, -1) for e in layout.parameters], dim=1)
        carried = now.carried
        empty, whole = torch.zeros(count, 0), torch.zeros(count, 0, dtype=torch.int64)
        buffers = [carried.buffers[e.name].reshape(count, -1).float() for e in layout.buffers]
        counters = [carried.buffers[e.name].reshape(count, -1).long() for e in layout.counters]
        after = ModelState(vectors, torch.cat([empty, *buffers], dim=1), torch.cat([whole, *counters], dim=1))
        steps = [len(loader.batches.cuts) - 1 for loader in loaders]
        return BlockResult(after, carried.optimiser, means, steps, [len(loader.batches.order) for loader in loaders])

    def _optimisers(self, contexts: Sequence[Context], start: Tensors) -> State:
        if self.algorithm.local.keep:
            return _stacked([optimiser_of(self.algorithm, context, start) for context in contexts])  # type: ignore[no-any-return]
        fresh = self.algorithm.local.init(start)
        return tree_map(lambda leaf: _repeated(leaf, len(contexts)), fresh)  # type: ignore[no-any-return]

    def _shape(self, round_: int) -> Shape:
        if round_ not in self._shapes:
            self._shapes.clear()
            self._shapes[round_] = Shape.of(self.algorithm, self.largest, round_, STEPS)
        return self._shapes[round_]

    def _normals(self, noises: Sequence[Any], active: Tensor, params: Tensors) -> list[Tensors]:
        """Draw the noise of some steps, each client from its own generator; nothing is drawn for steps not taken."""
        count = self.algorithm.local.normals
        drawn = []
        for rng, steps in zip(noises, active.tolist(), strict=True):
            of_client = [
                draw_normals(rng, count, params) if taken else [tree_map(torch.zeros_like, params)] * count
                for taken in steps
            ]
            drawn.append(tree_map(lambda *leaves: torch.stack(leaves), *of_client))
        return tree_map(lambda *leaves: torch.stack(leaves), *drawn)  # type: ignore[no-any-return]

    def _mapped(self, now: Training, inputs: StepInputs, shared: Shared) -> RunSteps:
        """Make the function that takes some steps with all clients of a block; these are its first arguments."""
        module, algorithm = self.replica.module, self.algorithm
        # The model is watched for as long as the program lives; this hook must not be put back with what clients change.
        self.replica.put_back()
        watching = tuple((each, watch(module, classifier_layer(module, each.layer))) for each in algorithm.penalties)
        self.replica.remember(again=True)
        recipe = Recipe(module, algorithm.loss, algorithm.local, FUNCTIONAL, watching, self.replica.placement.autocast)
        first, its = _of_each(lambda leaf: leaf[0], (now, inputs))
        recipe = replace(
            recipe, unused=unused_parameters(recipe, first.carried.buffers, *_step_of(first, its, shared, 0))
        )
        steps = partial(_steps, recipe)
        if self.compiled:  # nothing is None then
            return torch.compile(torch.func.vmap(steps, in_dims=(0, 0, None)), fullgraph=True, dynamic=False)
        return partial(_run_mapped, steps)


class BlockProgram(Protocol):
    """Whatever trains blocks of clients."""

    @property
    def algorithm(self) -> Algorithm: ...  # noqa: D102

    @property
    def block(self) -> int: ...  # noqa: D102

    @property
    def compiled(self) -> bool: ...  # noqa: D102

    def train_locally(self, block: ClientBlock, givens: Sequence[dict[str, Tensors]]) -> BlockResult: ...  # noqa: D102


def _run_mapped(steps: RunSteps, now: Training, inputs: StepInputs, shared: Shared) -> tuple[Training, Tensor]:
    """Take some steps with all clients of a block, of whom none is given what is None."""
    input_dims = tree_map(lambda leaf: None if leaf is None else 0, inputs)
    return torch.func.vmap(steps, in_dims=(0, input_dims, None))(now, inputs, shared)


def _steps(recipe: Recipe, now: Training, inputs: StepInputs, shared: Shared) -> tuple[Training, Tensor]:
    """Take some steps with one client."""
    losses = []
    for step in range(len(inputs.batch.x)):
        params, carried, loss = local_step(recipe, now.carried, *_step_of(now, inputs, shared, step))
        then = Training(params, carried)
        if inputs.active is not None:
            taken = inputs.active[step]
            then = tree_map(lambda new, old, taken=taken: torch.where(taken, new, old), then, now)
        now = then
        losses.append(loss)
    return now, torch.stack(losses)


def _step_of(now: Training, inputs: StepInputs, shared: Shared, step: int) -> tuple[Batch, At]:
    """Return the inputs of one of a client's steps."""
    batch = Batch(*(None if values is None else values[step] for values in inputs.batch))  # type: ignore[arg-type]
    normals = tree_map(lambda leaf: leaf[step], inputs.normals)
    return batch, At(now.params, shared.start, shared.rates, normals, given=inputs.given)


def block_update(
    program: BlockProgram,
    algorithm: Algorithm,
    block: ClientBlock,
    gone: Mapping[int, int] = MappingProxyType({}),
) -> Sequence[Answer]:
    """Do what `client_update` does, for a block of clients at once.

    `gone` are rows of the block whose clients were left out, and how many examples these have. Stand-ins are trained there,
    on as many examples of another client, because the shape of a block decides the last bits of everybody in it.
    """
    if gone or not sends_difference_alone(algorithm, block):
        contexts, datas = block.contexts, block.datas
        opened = [_pinned(open_visit, algorithm, *each) for each in zip(contexts, datas, strict=True)]
        present = list(zip(contexts, datas, opened, strict=True))
        rows = list(present)
        for row, size in sorted(gone.items()):
            rows.insert(row, (contexts[0], replace(datas[0], rows=np.resize(datas[0].rows, size)), opened[0]))
        in_rows, of_rows, visits = zip(*rows, strict=True)
        trained = program.train_locally(ClientBlock.of(in_rows, of_rows), [visit.given for visit in visits])
        ends = [result for row, result in enumerate(trained) if row not in gone]
        return [_pinned(close_visit, algorithm, *visit, end) for visit, end in zip(present, ends, strict=True)]
    trained = program.train_locally(block, [{}])
    after, start = trained.after, block.first.start
    weight_of = {size: float(algorithm.weigh(size)) for size in set(block.sizes)}
    update = BlockUpdate(
        clients=block.clients,
        slots=block.slots,
        values=replace(after, vector=after.vector.sub_(start.vector)),
        weights=[weight_of[size] for size in block.sizes],
        losses=trained.losses,
        steps=trained.steps,
        examples=trained.examples,
    )
    return [update]


def _pinned(visit: Callable[..., T], algorithm: Algorithm, context: Context, *about: Any) -> T:
    """Call what is one client's own, and put back what it changed before it is the next one's turn."""
    done = visit(algorithm, context, *about)
    pin_again()
    context.replica.put_back()
    return done


def unmappable(module: nn.Module, algorithm: Algorithm) -> str | None:
    """Say why a model or method cannot be trained in blocks, if it cannot.

    >>> from fedquilt.methods import fed_avg
    >>> unmappable(nn.LSTM(2, 2), fed_avg())
    'LSTM cannot be mapped over clients'
    """
    for part in module.modules():
        kind = type(part).__name__
        if isinstance(part, nn.RNNBase | nn.RNNCellBase):
            return f"{kind} cannot be mapped over clients"
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            return f"{kind} takes statistics of a batch, which padding would falsify"
        if isinstance(part, nn.modules.batchnorm._NormBase) and part.track_running_stats:
            return f"{kind} keeps running statistics, which padding would falsify"
        if isinstance(part, nn.modules.dropout._DropoutNd) and part.p > 0:
            return f"{kind} draws from torch's own generator, which clients of a block would share"
    if algorithm.course.until is not None:
        return f"{algorithm.name} stops each client when it has converged"
    return None


def _repeated(tensor: Tensor, count: int) -> Tensor:
    return tensor.expand(count, *tensor.shape).clone()


def _stacked(trees: Sequence[Any]) -> Any:
    return tree_map(lambda *leaves: torch.stack(leaves), *trees)


def _of_each(change: Callable[[Tensor], Tensor], tree: T) -> T:
    """Change the tensors of a tree; what is None stays so."""
    return tree_map(lambda leaf: None if leaf is None else change(leaf), tree)  # type: ignore[no-any-return]


def _filled(tree: T, missing: int) -> T:
    """Fill a block up with copies of its first client, which nobody looks at."""
    if not missing:
        return tree
    return _of_each(lambda leaf: torch.cat([leaf, leaf[:1].expand(missing, *leaf.shape[1:])]), tree)
