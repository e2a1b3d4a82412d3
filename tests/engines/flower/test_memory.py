"""The engine of a real federation against Flower's Grid in memory: everything is real but the way of the bytes."""

from __future__ import annotations

import pytest
from torch import nn

pytest.importorskip("flwr")

from deployed import BASE, Deployed

import fedquilt
from fedquilt.algorithm.algorithm import Algorithm
from fedquilt.data.data import Data
from fedquilt.experiment.fingerprint import digest
from fedquilt.partition.partition import Partition

TARGET = [0.5, 0.3, 0.2]
METHODS: dict[str, Algorithm] = {
    "fed_avg": BASE,
    "fed_avg_m": fedquilt.fed_avg_m(fraction=0.67, batch=8, server_momentum=0.9),
    "fed_vc and fed_ir": fedquilt.fed_ir(
        fedquilt.fed_vc(fedquilt.fed_avg_m(fraction=0.67, batch=8), size=32), target=TARGET
    ),
    "fed_prox": fedquilt.fed_prox(BASE, mu=0.1),
    "fed_avg_r": fedquilt.fed_avg_r(BASE),
    "scaffold": fedquilt.scaffold(BASE),
    "server_training and sign_agreement": fedquilt.server_training(
        fedquilt.sign_agreement(BASE, threshold=2), share=0.1
    ),
    "fl_hc": fedquilt.fl_hc(BASE, rounds=1),
    "one_shot": fedquilt.one_shot(batch=8, max_epochs=3),
}
"""The nine methods whose digests must be the simulation's."""


@pytest.mark.parametrize("name", METHODS)
def test_the_digest_is_that_of_the_simulation(name: str, blobs: Data, four: Partition, smooth: nn.Module) -> None:
    method = METHODS[name]
    simulated = fedquilt.train(smooth, blobs, four, method, rounds=3, seed=1, engine=fedquilt.inline())
    deployed = Deployed(smooth, blobs, four, method)
    state, records = deployed.run(1 if name == "one_shot" else 3)
    assert digest(deployed.server, state) == simulated.digest
    assert not any(record["dropped"] for record in records)
    for mine, theirs in zip(records, simulated.history.records, strict=True):
        assert {**mine, "seconds": 0} == {**theirs, "seconds": 0}
