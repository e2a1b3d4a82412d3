"""Runs a block's program once before the first round: it is compiled then, or refused with the reason."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedquilt.algorithm.algorithm import Algorithm
from fedquilt.algorithm.context import ClientBlock, ClientData, Context
from fedquilt.algorithm.state import ServerState
from fedquilt.base.errors import FedquiltError, reason_of
from fedquilt.compute.layout import Tensors
from fedquilt.round.block import BlockProgram
from fedquilt.round.client import open_visit
from fedquilt.round.rehearsal import Rehearsal
from fedquilt.round.site import Site
from fedquilt.round.training import train_locally


def warm_up(program: BlockProgram, site: Site, state: ServerState) -> None:
    """Run a program once, from a server's first state: it is compiled then, or refused with the reason.

    It trains on examples of the server's own, where the site has any, as many as the first clients have: whatever is wrong
    with a client's, the program is not to blame.
    """
    sizes, split = site.partition.sizes, Rehearsal.of(site).stand_in
    chosen = np.flatnonzero(sizes)[: program.block].tolist()
    contexts = [site.context(state, 1, client, slot, None) for slot, client in enumerate(chosen)]
    datas = [ClientData(site.data, split, np.arange(sizes[client]) % len(split)) for client in chosen]
    try:
        givens = _givens(program.algorithm, contexts, datas)
        program.train_locally(ClientBlock.of(contexts, datas), givens)
    except Exception as error:
        if not _trains_singly(program.algorithm, contexts, datas):
            return  # It is not the program: clients will say in the first round what is wrong.
        how = "compiled" if program.compiled else "mapped over clients"
        raise FedquiltError(
            f'this model and method cannot be {how}: {reason_of(error)}; use compute = "eager" with processes or inline'
        ) from error


def _givens(
    algorithm: Algorithm, contexts: Sequence[Context], datas: Sequence[ClientData]
) -> Sequence[dict[str, Tensors]]:
    return [open_visit(algorithm, *each).given for each in zip(contexts, datas, strict=True)]


def _trains_singly(algorithm: Algorithm, contexts: Sequence[Context], datas: Sequence[ClientData]) -> bool:
    try:
        for context, data, given in zip(contexts, datas, _givens(algorithm, contexts, datas), strict=True):
            train_locally(algorithm, context, data, context.start, given)
    except Exception:
        return False
    return True
