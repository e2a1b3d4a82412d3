"""Makes a server's view of a run without any client's examples, and a site's view without anybody else's.

The order of events where nobody has all the data:

1. the server is made, from clients' sizes (`make_server`), and sends its `agreement` to the sites;
2. every site is made, from its clients' examples and that agreement (`make_site`);
3. where an exchange makes its first broadcast from what all clients upload, sites send what `site.first_uploads()` returns
   or, if it asks for class counts, `site.class_counts()`; the server goes on as `server.with_first_uploads(…)`.

Bits are those of the simulation if every site has its examples in the order in which the simulation has them.
What only a process with all clients' examples can do is refused here: training on pooled data, the loss on the whole
training set, and the validation split. A server that trains brings examples of its own; none are taken from clients.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from torch import nn

from fedquilt.algorithm.algorithm import Algorithm, check_consistent
from fedquilt.algorithm.metric import Metric
from fedquilt.algorithm.parts.selection import require_enough_clients
from fedquilt.base.errors import FedquiltError, naming_part
from fedquilt.base.types import Indices
from fedquilt.compute.pinned import pinned
from fedquilt.data.data import Data, require_sound
from fedquilt.partition.partition import Partition
from fedquilt.partition.population import Population
from fedquilt.round.agreement import Agreement
from fedquilt.round.assemble import prepared, require_labels_to_flip
from fedquilt.round.evaluation import no_rows
from fedquilt.round.first_broadcast import waits_for_clients
from fedquilt.round.per_client import count_held_out, hold_out
from fedquilt.round.server import Server
from fedquilt.round.site import ClientTests, Site
from fedquilt.simulate.simulation import NOTHING as NO_SIMULATION
from fedquilt.simulate.simulation import Simulation


def make_server(
    module: nn.Module,
    data: Data,
    sizes: Sequence[int] | Indices,
    algorithm: Algorithm,
    seed: int,
    names: Sequence[str] | None = None,
    test_sizes: Sequence[int] | Indices | None = None,
    metrics: Sequence[Metric] | None = None,
    simulation: Simulation = NO_SIMULATION,
    client_seconds: float | None = None,
) -> Server:
    """Make the server's view of a run from the number of examples that each client has.

    - `data` has the test set and, to train on, what the server itself trains on: usually nothing.
    - `sizes` are all examples of each client; those that the method holds out for the per-client test are subtracted here.
      Where clients have test examples apart from them, `test_sizes` says how many, and nothing is held out.
    - `names` are what messages call the clients.

    Whether the model runs with channels last, and on single examples, is found out on the test set. It must look like
    clients' examples: the simulation, which has those too, would otherwise try the model on them.

    >>> import torch
    >>> from fedquilt import fed_avg
    >>> from fedquilt.data.data import Split
    >>> test = Split(torch.zeros(4, 2), torch.tensor([0, 1, 0, 1]))
    >>> server = make_server(nn.Linear(2, 2), Data("mine", test.only(no_rows()), test, 2), [20, 5], fed_avg(), seed=1)
    >>> server.population.sizes.tolist(), server.agreement.largest
    ([20, 5], 20)
    """
    check_consistent(algorithm)
    _require_no_pool(algorithm)
    with naming_part("data"):
        require_sound(data, parts=("train", "test") if len(data.train) else ("test",))
    require_labels_to_flip(simulation, data)
    if algorithm.after.algorithm is not None and not len(data.train):
        raise FedquiltError(
            f"{algorithm.name} trains at the server, which has no examples to train on: put some into data"
        )
    population, tests = _counted_clients(sizes, names, test_sizes, algorithm)
    with naming_part(algorithm.name):
        require_enough_clients(algorithm.select, len(population))
    ready = prepared(module, data, algorithm, seed, metrics, population.sizes)
    server = Server(
        **ready._asdict(),
        seed=seed,
        data=data,
        population=population,
        test_sizes=tests,
        split_sizes={"test": len(data.test)},
        known_first=None,
        simulation=simulation,
        client_seconds=client_seconds,
    )
    with pinned():
        return server if waits_for_clients(algorithm) else server.with_first_uploads({})


def make_site(
    module: nn.Module,
    data: Data,
    clients: Mapping[int, Sequence[int] | Indices],
    algorithm: Algorithm,
    seed: int,
    agreement: Agreement,
    tests: Mapping[int, Sequence[int] | Indices] | None = None,
    metrics: Sequence[Metric] | None = None,
    simulation: Simulation = NO_SIMULATION,
    client_seconds: float | None = None,
) -> Site:
    """Make a site's view of a run from the examples of its clients alone.

    - `clients` are the positions in `data.train` of the examples of each client hosted here, by the client's number.
    - `agreement` is the server's (`Server.agreement`); module, algorithm, seed and simulation must be those of the server.
    - `tests` are positions in `data.test`, where clients have test examples apart from those that they train on.
      `data.test` may be empty otherwise: what the method holds out for the per-client test is taken from `clients`.

    >>> import torch
    >>> from fedquilt import fed_avg
    >>> from fedquilt.data.data import Split
    >>> train = Split(torch.zeros(5, 2), torch.tensor([0, 1, 0, 1, 0]))
    >>> agreed = Agreement(clients=2, largest=20, channels_last=False, two_examples=False)
    >>> data = Data("mine", train, train.only(no_rows()), 2)
    >>> make_site(nn.Linear(2, 2), data, {1: range(5)}, fed_avg(), seed=1, agreement=agreed).partition.sizes.tolist()
    [0, 5]
    """
    check_consistent(algorithm)
    _require_no_pool(algorithm)
    with naming_part("data"):
        require_sound(data, parts=("train", "test") if len(data.test) else ("train",))
    require_labels_to_flip(simulation, data)
    held, share = _held(clients, agreement.clients, len(data.train), "train on"), algorithm.per_client.share
    per_client: ClientTests | None = None
    if tests is not None:
        per_client = ClientTests(_held(tests, agreement.clients, len(data.test), "test on"), data.test)
    elif share is not None:
        tested = held
        if share:
            held, tested = hold_out(held, share, seed)
        per_client = ClientTests(tested, data.train)
    if held.sizes.max() > agreement.largest:
        raise FedquiltError(
            f"client {int(held.sizes.argmax())} has {int(held.sizes.max())} examples to train on, but the server "
            f"was told that no client has more than {agreement.largest}"
        )
    ready = prepared(module, data, algorithm, seed, metrics, agreement)
    return Site(
        **ready._asdict(),
        seed=seed,
        data=data,
        partition=held,
        tests=per_client,
        validation_rows=no_rows(),
        simulation=simulation,
        client_seconds=client_seconds,
    )


def _require_no_pool(algorithm: Algorithm) -> None:
    if algorithm.course.pooled:
        raise FedquiltError(f"{algorithm.name} trains on all clients' examples together: it needs them in one place")


def _counted_clients(
    sizes: Sequence[int] | Indices,
    names: Sequence[str] | None,
    test_sizes: Sequence[int] | Indices | None,
    algorithm: Algorithm,
) -> tuple[Population, Indices | None]:
    """Return what clients have to train on, and how much they have to be tested on."""
    counts, share = np.asarray(sizes, dtype=np.int64), algorithm.per_client.share
    if counts.ndim != 1 or not len(counts) or counts.min() < 0 or not counts.max():
        raise FedquiltError("sizes: one number from 0 per client is needed, and one client at least with examples")
    for what, listed in (("names", names), ("test_sizes", test_sizes)):
        if listed is not None and len(listed) != len(counts):
            raise FedquiltError(f"{what}: there are {len(listed)} for {len(counts)} clients")
    tests = None if test_sizes is None else np.asarray(test_sizes, dtype=np.int64)
    if tests is None and share is not None:
        tests = (
            np.asarray([count_held_out(size, share) for size in counts.tolist()], dtype=np.int64) if share else counts
        )
        counts = counts - tests if share else counts
    return Population(counts, None if names is None else tuple(names)), tests


def _held(clients: Mapping[int, Sequence[int] | Indices], count: int, rows: int, purpose: str) -> Partition:
    """Return who holds what here, with clients numbered as in the whole run."""
    held: list[Indices] = [no_rows()] * count
    for client, positions in clients.items():
        if not 0 <= client < count:
            raise FedquiltError(f"clients: there is no client {client}: the run has {count}, from 0 to {count - 1}")
        held[client] = np.asarray(positions, dtype=np.int64)
        if len(held[client]) and not 0 <= held[client].min() <= held[client].max() < rows:
            raise FedquiltError(
                f"client {client}: names an example to {purpose} that is not among the {rows} of this site"
            )
    return Partition.of(held)
