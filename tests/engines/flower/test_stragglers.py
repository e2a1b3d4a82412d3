"""Sites that do not answer, answer too late, go away or come back: rounds are committed with those who answer in time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from torch import nn

pytest.importorskip("flwr")

from deployed import BASE, Deployed
from flwr.app import Error, Message
from memory_grid import MemoryGrid

import fedquilt
from fedquilt.data.data import Data
from fedquilt.engines.flower.engine import FlowerEngine
from fedquilt.experiment.fingerprint import digest
from fedquilt.partition.partition import Partition

DEADLINE = 0.04


def engine(**arguments: Any) -> FlowerEngine:
    made = fedquilt.flower(poll=0.002, **arguments)
    assert isinstance(made, FlowerEngine)
    return made


def test_rounds_commit_with_30_percent_dropped_and_20_percent_late(blobs: Data, smooth: nn.Module) -> None:
    held = Partition.by_sizes(np.arange(240), np.full(12, 20))
    method = fedquilt.fed_avg(cohort=5, batch=20)
    deployed = Deployed(smooth, blobs, held, method, DEADLINE, engine(over_select=1.0, least=2))
    rng, fates = np.random.default_rng(7), dict[tuple[int, int], list[str]]()

    def on_the_way(message: Message, reply: Message) -> Iterable[tuple[float, Message]]:
        client = (9_000 - message.metadata.dst_node_id) // 7
        fate = str(rng.choice(["dropped", "late", "in time"], p=[0.3, 0.2, 0.5]))
        fates.setdefault((int(message.metadata.group_id), client), []).append(fate)
        return {"dropped": [], "late": [(1.5 * DEADLINE, reply)], "in time": [(0.0, reply)]}[fate]

    _, records = deployed.run(200, on_the_way)
    assert [record["round"] for record in records] == list(range(1, 201))
    assert all(record["applied"] for record in records)
    for record in records:
        assert 2 <= len(record["clients"]) <= 5
        assert all("in time" in fates[record["round"], client] for client in record["clients"])
        left_out = {fault["client"]: fault for fault in record["dropped"]}
        assert len(left_out) == 10 - len(record["clients"])
        assert {fault["kind"] for fault in left_out.values()} <= {"too slow"}
    told = [fate for each in fates.values() for fate in each]
    assert 0.25 < told.count("dropped") / len(told) < 0.35
    assert 0.15 < told.count("late") / len(told) < 0.25


def test_too_few_answers_do_not_commit_a_round(blobs: Data, four: Partition, smooth: nn.Module) -> None:
    method = fedquilt.fed_avg(fraction=1.0, batch=20)
    deployed = Deployed(smooth, blobs, four, method, DEADLINE, engine(least=3, attempts=2))
    asked = []

    def only_two_answer(message: Message, reply: Message) -> Iterable[tuple[float, Message]]:
        asked.append((int(message.metadata.group_id), (9_000 - message.metadata.dst_node_id) // 7))
        return [(0.0, reply)] if asked[-1][0] != 2 or asked[-1][1] in (0, 2) else []

    _, records = deployed.run(3, only_two_answer)
    assert [record["applied"] for record in records] == [True, False, True]
    reasons = {fault["client"]: fault["reason"] for fault in records[1]["dropped"]}
    assert reasons.keys() == {0, 1, 2, 3}
    assert "only 2 of at least 3 answers came" in reasons[0]
    assert "longer than" in reasons[1]
    assert sorted(client for round_, client in asked if round_ == 2) == [0, 1, 1, 2, 3, 3], (
        "those who did not answer, again"
    )


def undisturbed(module: nn.Module, data: Data, held: Partition) -> str:
    """Return the digest of two rounds in which nothing happens."""
    deployed = Deployed(module, data, held, BASE)
    return digest(deployed.server, deployed.run(2)[0])


@pytest.mark.parametrize("code", [3, 4, 5, 8])
def test_a_site_that_went_away_does_its_task_again(code: int, blobs: Data, four: Partition, smooth: nn.Module) -> None:
    """As Flower tells it: an error in its place; and then it is back, started anew. The bits are as if nothing had been."""
    expected, deployed = undisturbed(smooth, blobs, four), Deployed(smooth, blobs, four, BASE)
    lost: list[Message] = []

    def once(message: Message, reply: Message) -> Iterable[tuple[float, Message]]:
        if message.metadata.group_id == "2" and not lost:
            lost.append(message)
            return [(0.0, Message(Error(code=code, reason="gone"), reply_to=message))]
        return [(0.0, reply)]

    with pytest.warns(RuntimeWarning, match=r"site site-\d died \(.*\); its work is done again"):
        state, records = deployed.run(2, once)
    assert digest(deployed.server, state) == expected
    assert not any(record["dropped"] for record in records)


def test_a_site_that_is_started_again_is_given_its_task_again(blobs: Data, four: Partition, smooth: nn.Module) -> None:
    expected, deployed = undisturbed(smooth, blobs, four), Deployed(smooth, blobs, four, BASE)
    lost: list[Message] = []

    def once(message: Message, reply: Message) -> Iterable[tuple[float, Message]]:
        if message.metadata.group_id == "2" and not lost:
            lost.append(message)
            client = (9_000 - message.metadata.dst_node_id) // 7
            deployed.grid.started[client] = 1  # killed while it was at work; nothing is told of the message any more
            return []
        return [(0.0, reply)]

    with pytest.warns(RuntimeWarning, match="it was started again"):
        state, _ = deployed.run(2, once)
    assert digest(deployed.server, state) == expected


def test_a_site_that_stays_away_is_left_out(blobs: Data, four: Partition, smooth: nn.Module) -> None:
    deployed = Deployed(smooth, blobs, four, fedquilt.fed_avg(fraction=1.0, batch=20), 0.2)
    deployed.grid.offline = {3}
    _, (record,) = deployed.run(1)
    (fault,) = record["dropped"]
    assert fault["name"] == "site-3"
    assert (fault["kind"], fault["reason"]) == ("absent", "no sites that could do it joined in 0.2 s")
    assert sorted(record["clients"]) == [0, 1, 2]


def test_the_numbers_of_nodes_do_not_matter(
    blobs: Data, four: Partition, smooth: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients are numbered by the roster; Flower's numbers of nodes, which are random, decide nothing."""
    digests = set()
    for sign in (-7, 13):
        monkeypatch.setattr(MemoryGrid, "node", staticmethod(lambda client, sign=sign: 9_000 + sign * client))
        deployed = Deployed(smooth, blobs, four, BASE)
        digests.add(digest(deployed.server, deployed.run(2)[0]))
    assert len(digests) == 1
