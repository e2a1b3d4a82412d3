"""A federation without a place where all data are, on Flower's Grid in memory."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial

import numpy as np
from memory_grid import MemoryGrid, OnTheWay, at_once, roster_of_size, served
from torch import nn

import fedquilt
from fedquilt.algorithm.algorithm import Algorithm
from fedquilt.algorithm.state import RunState
from fedquilt.data.data import Data
from fedquilt.engines.flower.client_state import MemoryShelf, require_state_at_sites
from fedquilt.engines.flower.engine import FlowerEngine
from fedquilt.engines.flower.greeting import collect_first
from fedquilt.engines.flower.site import Host
from fedquilt.partition.partition import Partition
from fedquilt.round.agreement import Agreement
from fedquilt.round.apart import make_server, make_site
from fedquilt.round.evaluation import no_rows
from fedquilt.round.first_broadcast import waits_for_clients
from fedquilt.round.loop import rounds
from fedquilt.round.measures import Record
from fedquilt.round.server import Server
from fedquilt.round.server_data import take_share
from fedquilt.round.site import Site

BASE = fedquilt.fed_avg(fraction=0.67, batch=8)


class Deployed:
    """A federation without a place where all data are: a server, and a site for every client."""

    def __init__(
        self,
        module: nn.Module,
        data: Data,
        held: Partition,
        method: Algorithm,
        seconds: float = 20.0,
        engine: FlowerEngine | None = None,
    ) -> None:
        flower = fedquilt.flower(poll=0.001)
        assert isinstance(flower, FlowerEngine)
        self.engine = replace(engine or flower, look=0.0)
        self.module, self.data, self.method = module, data, method
        self.rows, of_server = rows_apart(data, held, method)
        self.roster = roster_of_size(len(held))
        self.server: Server = make_server(
            module,
            replace(data, train=data.train.only(of_server)),
            [len(each) for each in self.rows],
            method,
            1,
            [member.name for member in self.roster],
            simulation=self.engine.simulation,
            client_seconds=seconds,
        )
        require_state_at_sites(method)
        self.shelves = [MemoryShelf() for _ in self.rows]
        self.site = cache(self._site)
        self.grid = MemoryGrid(
            self.roster,
            {
                client: served(Host(lambda settings: {}, partial(self.site, client), shelf, shares_class_counts=True))
                for client, shelf in enumerate(self.shelves)
            },
        )

    def _site(self, client: int, agreement: Agreement) -> Site:
        own = replace(self.data, train=self.data.train.only(self.rows[client]), test=self.data.test.only(no_rows()))
        return make_site(self.module, own, {client: range(len(own.train))}, self.method, 1, agreement)

    def run(self, last: int, on_the_way: OnTheWay = at_once) -> tuple[RunState, list[Record]]:
        self.grid.on_the_way = on_the_way
        if waits_for_clients(self.method):
            asked = any(exchange.needs_classes for exchange in self.method.exchanges)
            self.server = collect_first(self.grid, self.roster, self.server, asked, 5.0, poll=0.001)
        engine = self.engine.at(self.grid, self.roster)
        with engine.open(self.server) as session:
            done = list(rounds(self.server, session, self.server.start(), last))
        return done[-1][0], [record for _, record in done]


def rows_apart(data: Data, held: Partition, method: Algorithm) -> tuple[list[np.ndarray], np.ndarray]:
    """Return what every client has before anything is held out, and what is the server's own, as the simulation has it."""
    kept, server = take_share(held, data.train.y.numpy(), method.after.share, 1)
    return [kept.client(client) for client in range(len(kept))], server
