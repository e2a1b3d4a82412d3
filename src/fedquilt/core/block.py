"""Many clients as one program: the one local step, mapped over a block of clients, and compiled if asked.

The step is `local_step` itself, in its functional mode; `torch.func.vmap` runs it for all clients of a block at once,
several steps a call. Clients that have fewer steps stand still while the others go on; padded examples have the weight 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from fedquilt.core.algorithm import Algorithm
from fedquilt.core.client import close_visit, open_visit, sends_difference_alone
from fedquilt.core.context import ClientData, Context
from fedquilt.core.feed import Feed
from fedquilt.core.fit import Fitted, draw_normals, fit, optimiser_of
from fedquilt.core.local import FUNCTIONAL, Batch, Carried, Point, Recipe, local_step, unused_parameters
from fedquilt.core.padded import Padded, Shape
from fedquilt.core.params import ModelState, Tensors
from fedquilt.core.penalty import classifier_layer, watch
from fedquilt.core.pinned import pin_again
from fedquilt.core.rng import generator
from fedquilt.core.transform import State
from fedquilt.core.updates import Answer, BlockUpdate
from fedquilt.core.workbench import Workbench
from fedquilt.errors import FedquiltError, told

if TYPE_CHECKING:
    from fedquilt.core.federation import Federation

Tree = dict[str, Any]
T = TypeVar("T")

STEPS = 10
"""Steps a call, at most: a compiled call's overhead is shared by them, and its compile time grows with them."""


@dataclass(frozen=True, eq=False)
class FittedBlock:
    """What `Fitted` is for one client, for a block: a row each."""

    after: ModelState
    optimiser: State
    losses: list[float]
    steps: list[int]
    examples: list[int]

    def __iter__(self) -> Iterator[Fitted]:
        """Yield what each client ended with."""
        tensors = zip(self.after.vector, self.after.buffers, self.after.counters, strict=True)
        columns = zip(tensors, self.losses, self.steps, self.examples, strict=True)
        for client, (values, loss, steps, examples) in enumerate(columns):
            own = tree_map(lambda leaf, client=client: leaf[client], self.optimiser) if self.optimiser else {}
            yield Fitted(ModelState(*values), own, loss, steps, examples)


@dataclass(frozen=True, eq=False)
class Program:
    """Trains blocks of clients. `block` is how many at once, `compiled` whether the program is compiled."""

    bench: Workbench
    algorithm: Algorithm
    largest: int
    block: int
    compiled: bool
    _shapes: dict[int, Shape] = field(default_factory=dict, repr=False)
    _run: Callable[[Tree, Tree, Tree], tuple[Tree, Tensor]] = field(init=False, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what was mapped or compiled, which a spawned process makes anew."""
        return {name: value for name, value in self.__dict__.items() if name != "_run"}

    def fit(
        self, contexts: Sequence[Context], datas: Sequence[ClientData], givens: Sequence[dict[str, Tensors]]
    ) -> FittedBlock:
        """Train a block of clients that start from the same model."""
        self.bench.module.train()  # an evaluation may have come before
        algorithm, layout, round_ = self.algorithm, self.bench.layout, contexts[0].round
        feeds = [Feed.of(algorithm, context, data) for context, data in zip(contexts, datas, strict=True)]
        shape = self._shape(round_)
        padded = Padded.of(feeds, shape)
        missing = self.block - len(contexts) if self.compiled else 0
        begin, place = contexts[0].start, self.bench.place
        start = layout.parameters_of(begin.vector)
        now: Tree = {
            "params": {name: _repeated(p, len(contexts)) for name, p in start.items()},
            "buffers": {name: _repeated(b, len(contexts)) for name, b in layout.buffers_of(begin).items()},
            "optimiser": self._optimisers(contexts, start),
        }
        rates = [torch.tensor(rate(round_), dtype=torch.float32) for rate in algorithm.local.rates]
        shared: Tree = {"start": start, "rates": rates}
        given = {"given": _stacked(givens)} if givens[0] else {}
        noises = [generator(c.seed, "local noise", *c.key) for c in contexts] if algorithm.local.normals else []
        ones = torch.ones(padded.rows.shape[1:])
        now, shared, given = place.put((_filled(now, missing), shared, _filled(given, missing)))
        losses = []
        for ready, taken in zip(padded.ready(), padded.active, strict=True):
            fed: Tree = dict(ready)
            active = torch.from_numpy(taken)
            if self.compiled:
                fed = {"weights": ones, "there": ones} | fed
            if self.compiled or not taken.all():
                fed["active"] = active
            if noises:
                fed["normals"] = self._normals(noises, active, start)
            fed = place.put(_filled(fed, missing)) | given
            if "_run" not in self.__dict__:
                self.__dict__["_run"] = self._mapped(now, fed, shared)
            now, loss = self._run(now, fed, shared)
            losses.append(loss[: len(contexts)])
        means = padded.mean_losses(place.fetch(torch.cat(losses, dim=1)))
        return self._fitted(feeds, place.fetch(tree_map(lambda leaf: leaf[: len(contexts)], now)), means)

    def _fitted(self, feeds: Sequence[Feed], now: Tree, means: list[float]) -> FittedBlock:
        layout, count = self.bench.layout, len(feeds)
        vectors = torch.cat([now["params"][e.name].reshape(count, -1) for e in layout.parameters], dim=1)
        empty, whole = torch.zeros(count, 0), torch.zeros(count, 0, dtype=torch.int64)
        buffers = [now["buffers"][e.name].reshape(count, -1).float() for e in layout.buffers]
        counters = [now["buffers"][e.name].reshape(count, -1).long() for e in layout.counters]
        after = ModelState(vectors, torch.cat([empty, *buffers], dim=1), torch.cat([whole, *counters], dim=1))
        steps = [len(feed.batches.cuts) - 1 for feed in feeds]
        return FittedBlock(after, now["optimiser"], means, steps, [len(feed.batches.order) for feed in feeds])

    def _optimisers(self, contexts: Sequence[Context], start: Tensors) -> Tree:
        if self.algorithm.keep_local_state:
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
            own = [
                draw_normals(rng, count, params) if taken else [tree_map(torch.zeros_like, params)] * count
                for taken in steps
            ]
            drawn.append(tree_map(lambda *leaves: torch.stack(leaves), *own))
        return tree_map(lambda *leaves: torch.stack(leaves), *drawn)  # type: ignore[no-any-return]

    def _mapped(self, now: Tree, fed: Tree, shared: Tree) -> Callable[[Tree, Tree, Tree], tuple[Tree, Tensor]]:
        """Make the function that takes some steps with all clients of a block; these are its first arguments."""
        module, algorithm = self.bench.module, self.algorithm
        # The model is watched for as long as the program lives.
        watching = tuple((each, watch(module, classifier_layer(module, each.layer))) for each in algorithm.penalties)
        recipe = Recipe(module, algorithm.loss, algorithm.local, FUNCTIONAL, watching, self.bench.place.autocast)
        one: Tree = tree_map(lambda leaf: leaf[0], {**now, "fed": fed})
        step = _step_of(one["fed"], shared, 0)
        recipe = replace(recipe, unused=unused_parameters(recipe, one["params"], one["buffers"], *step))
        mapped = torch.func.vmap(partial(_steps, recipe), in_dims=(0, 0, None))
        return torch.compile(mapped, fullgraph=True, dynamic=False) if self.compiled else mapped


def _steps(recipe: Recipe, now: Tree, fed: Tree, shared: Tree) -> tuple[Tree, Tensor]:
    """Take some steps with one client."""
    losses = []
    for step in range(len(fed["x"])):
        carried = Carried(now["optimiser"], now["buffers"])
        params, after, loss = local_step(recipe, now["params"], carried, *_step_of(fed, shared, step))
        then: Tree = {"params": params, "buffers": after.buffers, "optimiser": after.optimiser}
        if "active" in fed:
            taken = fed["active"][step]
            then = tree_map(lambda new, old, taken=taken: torch.where(taken, new, old), then, now)
        now = then
        losses.append(loss)
    return now, torch.stack(losses)


def _step_of(fed: Tree, shared: Tree, step: int) -> tuple[Batch, Point]:
    """Return what one of a client's steps is fed with."""
    weights, there = (fed[name][step] if name in fed else None for name in ("weights", "there"))
    normals = tree_map(lambda leaf: leaf[step], fed["normals"]) if "normals" in fed else ()
    batch = Batch(fed["x"][step], fed["y"][step], weights, there)
    return batch, Point(shared["start"], shared["rates"], normals, fed.get("given"))


def block_update(
    program: Program, algorithm: Algorithm, contexts: Sequence[Context], datas: Sequence[ClientData]
) -> Sequence[Answer]:
    """Do what `client_update` does, for a block of clients at once."""
    if not sends_difference_alone(algorithm, contexts[0]):
        opened = [_pinned(open_visit, algorithm, *own) for own in zip(contexts, datas, strict=True)]
        each = program.fit(contexts, datas, [visit.given for visit in opened])
        return [_pinned(close_visit, algorithm, *own) for own in zip(contexts, datas, opened, each, strict=True)]
    fitted = program.fit(contexts, datas, [{}])
    after, start = fitted.after, contexts[0].start
    block = BlockUpdate(
        clients=[context.client for context in contexts],
        slots=[context.slot for context in contexts],
        values=replace(after, vector=after.vector.sub_(start.vector)),
        weights=[float(algorithm.weigh(len(data))) for data in datas],
        losses=fitted.losses,
        steps=fitted.steps,
        examples=fitted.examples,
    )
    return [block]


def _pinned(visit: Callable[..., T], *about: Any) -> T:
    """Call what is one client's own, and put back what it changed before it is the next one's turn."""
    done = visit(*about)
    pin_again()
    return done


def warm_up(program: Program, federation: Federation) -> None:
    """Run a program once: it is compiled then, or refused with the reason.

    It trains on examples of the server's own, as many as the first clients have: whatever is wrong with a client's, the
    program is not to blame.
    """
    sizes, split = federation.population.sizes, federation.stand_in
    chosen = np.flatnonzero(sizes)[: program.block].tolist()
    state = federation.start().groups[0].state
    contexts = [federation.context(state, 1, client, slot, None) for slot, client in enumerate(chosen)]
    datas = [ClientData(federation.data, split, np.arange(sizes[client]) % len(split)) for client in chosen]
    try:
        givens = _givens(program.algorithm, contexts, datas)
        program.fit(contexts, datas, givens)
    except Exception as error:
        if not _trains_singly(program.algorithm, contexts, datas):
            return  # It is not the program: clients will say in the first round what is wrong.
        how = "compiled" if program.compiled else "mapped over clients"
        raise FedquiltError(
            f'this model and method cannot be {how}: {told(error)}; use compute = "eager" with processes or inline'
        ) from error


def _givens(
    algorithm: Algorithm, contexts: Sequence[Context], datas: Sequence[ClientData]
) -> Sequence[dict[str, Tensors]]:
    return [open_visit(algorithm, *own).given for own in zip(contexts, datas, strict=True)]


def _trains_singly(algorithm: Algorithm, contexts: Sequence[Context], datas: Sequence[ClientData]) -> bool:
    try:
        for context, data, given in zip(contexts, datas, _givens(algorithm, contexts, datas), strict=True):
            fit(algorithm, context, data, context.start, given)
    except Exception:
        return False
    return True


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
    if algorithm.until is not None:
        return f"{algorithm.name} stops each client when it has converged"
    return None


def _repeated(tensor: Tensor, count: int) -> Tensor:
    return tensor.expand(count, *tensor.shape).clone()


def _stacked(trees: Sequence[Any]) -> Any:
    return tree_map(lambda *leaves: torch.stack(leaves), *trees)


def _filled(tree: Tree, missing: int) -> Tree:
    """Fill a block up with copies of its first client, which nobody looks at."""
    if not missing:
        return tree
    return tree_map(lambda leaf: torch.cat([leaf, leaf[:1].expand(missing, *leaf.shape[1:])]), tree)  # type: ignore[no-any-return]
