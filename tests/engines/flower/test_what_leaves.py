"""What leaves a site: every message of a run of every method is recorded, and searched for what must not be in it."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from every_method import VARIANTS, made
from torch import nn

pytest.importorskip("flwr")

from deployed import BASE, Deployed
from memory_grid import served

import fedquilt
from fedquilt.base import registry
from fedquilt.base.errors import FedquiltError, RunError
from fedquilt.compute.tensors import flat, from_bytes
from fedquilt.data.data import Data
from fedquilt.engines.flower.client_state import KEPT
from fedquilt.engines.flower.site import Host
from fedquilt.engines.flower.wire import Sent, unpacked
from fedquilt.partition.partition import Partition

SAID = {"client", "slot", "weight", "loss", "steps", "examples", "more_batches", "more_gradients"}
"""What is said of an update besides its tensors."""

LEAVES = {
    "fed_avg_r": {"mean", "scale"},
    "fed_nova": {"steps"},
    "scaffold": {"variate"},
}
"""What methods upload besides the update, as their pages list it."""

ALL = [(name, arguments) for name in [*registry.methods, *registry.wrappers] for arguments in VARIANTS[name] or [{}]]


@pytest.fixture
def skewed() -> Partition:
    """Four sites with different numbers of examples of every class."""
    rng, classes = np.random.default_rng(3), np.arange(240) % 3
    rows = [rng.permutation(np.flatnonzero(classes == label)) for label in range(3)]
    cuts = [(5, 30, 41), (20, 27, 66), (11, 50, 60)]
    parts = [np.split(row, cut) for row, cut in zip(rows, cuts, strict=True)]
    return Partition.of([np.sort(np.concatenate([part[site] for part in parts])) for site in range(4)])


@pytest.mark.parametrize(("name", "arguments"), ALL, ids=[f"{name}-{number}" for number, (name, _) in enumerate(ALL)])
def test_no_example_label_or_class_count_leaves_a_site(
    name: str, arguments: dict[str, Any], blobs: Data, skewed: Partition, smooth: nn.Module
) -> None:
    method = (
        made(name, **arguments)
        if name != "krum"
        else fedquilt.krum(fedquilt.fed_avg(batch=8, fraction=1.0), **arguments)
    )
    if method.course.pooled or not method.course.sends:
        with pytest.raises(FedquiltError, match=r"needs them in one place|sends nothing"):
            Deployed(smooth, blobs, skewed, method)
        return
    deployed = Deployed(smooth, blobs, skewed, method)
    deployed.run(2)
    counts_asked = any(exchange.needs_classes for exchange in method.exchanges)
    sent: dict[int, list[tuple[str, bytes, Sent]]] = {client: [] for client in range(4)}
    for message in deployed.grid.seen:
        if message.metadata.reply_to_message_id:
            client = (9_000 - message.metadata.src_node_id) // 7
            (record,) = message.content.array_records.values()
            content = next(iter(record.values())).data
            sent[client].append((message.metadata.message_type, content, unpacked(message.content)))
    assert sum(map(len, sent.values())) >= 2
    for client, messages in sent.items():
        site = deployed.site(client, deployed.server.agreement)
        x, y = site.data.train.x.numpy(), site.data.train.y.numpy()
        counts = np.bincount(y, minlength=3)
        hidden = [row.astype(dtype).tobytes() for row in x for dtype in (np.float32, np.float64, np.float16)]
        hidden += [y[:12].astype(dtype).tobytes() for dtype in (np.int64, np.int32, np.float32, np.uint8)]
        hidden += [str(y[:12].tolist())[1:-1].encode()]
        told = [counts, counts / counts.sum(), counts / counts.max()]
        for kind, content, told_us in messages:
            assert not any(each in content for each in hidden)
            if counts_asked and kind == "query.first":  # to which the site has agreed
                continue
            parts: dict[str, Any] = {part: from_bytes(written) for part, written in told_us.parts.items()}
            assert parts.keys() <= {"train": {"tensors"}, "query.first": {"uploads"}}.get(kind, set())
            for _, tensor in flat(parts):
                for values in told:
                    assert tensor.numel() < 3 or not holds(tensor.flatten().double().numpy(), values)
            assert str(counts.tolist())[1:-1].encode() not in content
            if kind == "train":
                (about,) = told_us.said["reply"]["answers"]
                assert about.keys() == SAID
                assert told_us.said.keys() == {"token", "reply"}
                table = parts["tensors"]["0"]
                assert table.keys() <= {"values", "client_state", "extra_upload"}
                assert table.get("client_state", {KEPT: None}).keys() == {KEPT}, "what a client keeps stays at its site"
                assert table.get("extra_upload", {}).keys() <= {name}
                assert table.get("extra_upload", {}).get(name, {}).keys() <= LEAVES.get(name, set())
            elif kind == "query.first":
                assert told_us.said == {"token": None, "class_counts": {}}
                assert parts["uploads"][str(client)].keys() == {name}
                assert parts["uploads"][str(client)][name].keys() <= LEAVES.get(name, set())


def holds(values: np.ndarray, wanted: np.ndarray) -> bool:
    windows = np.lib.stride_tricks.sliding_window_view(values, len(wanted))
    return bool(np.isclose(windows, wanted, rtol=1e-5, atol=0).all(axis=1).any())


def test_the_search_finds_what_it_looks_for() -> None:
    assert holds(np.array([9.0, 1, 2, 3, 9]), np.array([1, 2, 3]))
    assert not holds(np.array([9.0, 1, 2, 9, 3]), np.array([1, 2, 3]))


def test_class_counts_are_asked_for_and_can_be_refused(blobs: Data, skewed: Partition, smooth: nn.Module) -> None:
    deployed = Deployed(smooth, blobs, skewed, fedquilt.fed_ir(BASE))
    deployed.grid.sites[2] = served(Host(lambda settings: {}, partial(deployed.site, 2), deployed.shelves[2]))
    with pytest.raises(RunError, match=r"site site-2: does not share how many examples of each class it has"):
        deployed.run(1)
