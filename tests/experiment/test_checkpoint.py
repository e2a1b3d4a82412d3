"""Checkpoints: complete, and damage is detected, whatever its kind."""

from __future__ import annotations

import shutil
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import fedquilt
from fedquilt.algorithm.state import ClientStore, Group, RunState, ServerState
from fedquilt.base.errors import RunError
from fedquilt.compute.layout import ModelState
from fedquilt.experiment import checkpoint
from fedquilt.experiment.folder import RunFolder


def example() -> RunState:
    model = ModelState(torch.arange(5.0), torch.ones(2), torch.tensor([7]))
    store = ClientStore({3: {"0": {"w": torch.tensor([1.5])}}})
    state = ServerState(12, model, {"0": {"model": torch.full((5,), 0.25)}}, {"told": {"p": torch.ones(3)}})
    return RunState.of(state, store)


def test_what_is_saved_comes_back(tmp_path):
    checkpoint.save(tmp_path / "one.safetensors", example(), {"model": "abc"})
    run, about = checkpoint.load(tmp_path / "one.safetensors")
    (group,) = run.groups
    state, loaded, kept = example().groups[0].state, group.state, run.store
    assert run.round == loaded.round == 12
    assert group.clients is None
    assert torch.equal(loaded.broadcast["told"]["p"], torch.ones(3))
    assert torch.equal(loaded.model.vector, state.model.vector)
    assert torch.equal(loaded.model.counters, state.model.counters)
    assert torch.equal(loaded.optimiser["0"]["model"], torch.full((5,), 0.25))
    assert torch.equal(kept.get(3)["0"]["w"], torch.tensor([1.5]))
    assert kept.get(4) is None
    assert about == {"model": "abc"}


def test_groups_come_back_with_their_clients(tmp_path):
    one = example().groups[0].state
    groups = (Group(one, np.array([0, 2])), Group(one, np.array([1])))
    checkpoint.save(tmp_path / "two.safetensors", RunState(groups), {})
    run, _ = checkpoint.load(tmp_path / "two.safetensors")
    assert [group.clients.tolist() for group in run.groups] == [[0, 2], [1]]


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_every_flipped_bit_is_detected(data, tmp_path_factory):
    path = tmp_path_factory.mktemp("flip") / "one.safetensors"
    checkpoint.save(path, example(), {"model": "abc"})
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(bytes(content))
    with pytest.raises(RunError):
        checkpoint.load(path)


@settings(max_examples=60, deadline=None)
@given(share=st.floats(0, 1, exclude_max=True))
def test_every_truncation_is_detected(share, tmp_path_factory):
    path = tmp_path_factory.mktemp("cut") / "one.safetensors"
    checkpoint.save(path, example(), {})
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(RunError):
        checkpoint.load(path)


@pytest.fixture
def finished(tmp_path, blobs, unbalanced, smooth):
    """A run of six rounds, saved after each, and how to run it on."""

    def go(rounds, **options):
        return fedquilt.train(
            smooth,
            blobs,
            unbalanced,
            fedquilt.fed_avg_m(fraction=0.5),
            rounds=rounds,
            engine=fedquilt.inline(),
            checkpoint_seconds=0.0,
            out=tmp_path / "run",
            **options,
        )

    go(6)
    return RunFolder(tmp_path / "run"), go


def damage_bit(path):
    content = bytearray(path.read_bytes())
    content[-3] ^= 16
    path.write_bytes(bytes(content))


def damage_end(path):
    path.write_bytes(path.read_bytes()[:-40])


def damage_all(path):
    path.write_bytes(b"")


def damage_junk(path):
    # A header that claims a terabyte: it must be refused before memory is taken for it.
    path.write_bytes((2**40).to_bytes(8, "little") + b"{}" * 10)


@pytest.mark.parametrize("damage", [damage_bit, damage_end, damage_all, damage_junk])
def test_a_damaged_checkpoint_is_replaced_by_the_one_before_with_a_warning(damage, finished, blobs, unbalanced, smooth):
    folder, go = finished
    assert [path.name for path in folder.checkpoints] == ["round-00000006.safetensors", "round-00000005.safetensors"]
    damage(folder.checkpoints[0])
    with pytest.warns(RuntimeWarning, match="round-00000006.safetensors"):
        resumed = go(9)
    method = fedquilt.fed_avg_m(fraction=0.5)
    whole = fedquilt.train(smooth, blobs, unbalanced, method, rounds=9, engine=fedquilt.inline())
    assert resumed.digest == whole.digest
    assert [record["round"] for record in folder.history()] == list(range(1, 10))


@pytest.mark.filterwarnings("ignore:.*is damaged:RuntimeWarning")
def test_with_all_checkpoints_damaged_it_refuses_and_changes_nothing_unless_asked(finished):
    folder, go = finished
    before = folder.latest()[1]["model"]
    for path in folder.checkpoints:
        damage_bit(path)
    files = {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}
    with pytest.raises(RunError, match=r"no intact checkpoint is left .* Nothing was changed\. .* --from-start"):
        go(6)
    assert {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()} == files
    assert go(6, from_start=True).digest == before
    aside = {path.name: path.read_bytes() for path in (folder.path / "set_aside").iterdir()}
    assert aside == {path.name: files[path] for path in files if path.name in aside}
    assert aside.keys() == {"round-00000006.safetensors", "round-00000005.safetensors", "metrics.jsonl"}
    assert fedquilt.summary(folder.path)["damage"] == []


class Stop(BaseException):
    """As a kill: nothing catches it."""


class StopAfter:
    """Ends the process, as it were, after a round."""

    def __init__(self, last):
        self.last = last

    def begin(self, history, last):
        pass

    def heard(self, clients, total):
        pass

    def round(self, record):
        if record["round"] == self.last:
            raise Stop


@pytest.mark.filterwarnings("ignore:.*is damaged:RuntimeWarning")
def test_what_is_saved_after_a_new_start_outlives_the_next_kill(finished):
    """Checkpoints of the damaged attempt have higher numbers, and must not count as newer."""
    folder, go = finished
    before = folder.latest()[1]["model"]
    for path in folder.checkpoints:
        damage_bit(path)
    with pytest.raises(Stop):
        go(6, from_start=True, watcher=StopAfter(3))
    assert [path.name for path in folder.checkpoints] == ["round-00000003.safetensors", "round-00000002.safetensors"]
    assert folder.latest()[0].round == 3
    assert go(6).digest == before


def test_stale_checkpoints_never_cost_a_new_one(tmp_path):
    folder = RunFolder(tmp_path)
    folder.save(example(), {})
    for round_ in (1, 2, 3):
        state = replace(example().groups[0].state, round=round_)
        folder.save(RunState.of(state, ClientStore({})), {})
        assert f"round-0000000{round_}.safetensors" in [path.name for path in folder.checkpoints]


def test_a_missing_folder_of_checkpoints_is_made_again(finished):
    folder, go = finished
    before = folder.latest()[1]["model"]
    shutil.rmtree(folder.path / "checkpoints")
    records = folder.metrics.read_bytes()
    with pytest.raises(RunError, match=r"6 rounds are recorded, and their checkpoints are missing.* --from-start"):
        go(6)
    assert folder.metrics.read_bytes() == records
    with pytest.raises(RunError, match="has records, but no checkpoint: restore an intact one"):
        fedquilt.export(folder.path, folder.path / "model.safetensors")
    assert go(6, from_start=True).digest == before
    assert (folder.path / "set_aside" / "metrics.jsonl").read_bytes() == records
    assert folder.latest()[0].round == 6


def test_a_run_killed_before_its_first_checkpoint_starts_again_and_keeps_its_records(finished):
    folder, go = finished
    before = folder.latest()[1]["model"]
    shutil.rmtree(folder.path / "checkpoints")
    first = folder.metrics.read_bytes().splitlines(keepends=True)[0]
    folder.metrics.write_bytes(first)
    with pytest.warns(RuntimeWarning, match="there is no checkpoint to continue from: training starts again"):
        assert go(6).digest == before
    assert (folder.path / "set_aside" / "metrics.jsonl").read_bytes() == first


def test_a_short_run_killed_between_its_last_record_and_its_only_checkpoint_starts_again(tmp_path):
    tables = {
        "run": {"rounds": 2},
        "data": {"name": "digits"},
        "partition": {"name": "iid", "clients": 5},
        "model": {"name": "softmax_regression"},
        "method": {"name": "fed_avg"},
        "engine": {"name": "inline"},
    }
    before = fedquilt.run(tables, out=tmp_path / "run").result.digest
    (only,) = RunFolder(tmp_path / "run").checkpoints
    only.unlink()
    with pytest.warns(RuntimeWarning, match="there is no checkpoint to continue from: training starts again"):
        assert fedquilt.resume(tmp_path / "run").result.digest == before


@pytest.mark.parametrize("lost", [1, 3, 4])
def test_one_damaged_record_does_not_cost_a_checkpoint(lost, finished, blobs, unbalanced, smooth):
    folder, go = finished
    before = folder.metrics.read_bytes()
    lines = before.split(b"\n")
    lines[lost - 1] = lines[lost - 1].replace(b'"applied": true', b'"applied": false')
    folder.metrics.write_bytes(b"\n".join(lines))
    said = (
        rf"metrics.jsonl: line {lost} is damaged \(its checksum does not match\), the records of round {lost} are lost"
    )
    with pytest.warns(RuntimeWarning, match=said):
        about = fedquilt.summary(folder.path)
    assert (about["state"], about["round"], about["saved_round"]) == ("finished", 6, 6)
    assert about["lost_rounds"] == [[lost, lost]]
    assert about["accuracy"] is not None
    assert [about[name] for name in ("best", "seconds", "bytes_up")] == [None] * 3
    with pytest.warns(RuntimeWarning, match=said):
        longer = go(8)
    whole = fedquilt.train(
        smooth, blobs, unbalanced, fedquilt.fed_avg_m(fraction=0.5), rounds=8, engine=fedquilt.inline()
    )
    assert longer.digest == whole.digest
    assert [record["round"] for record in longer.history] == [n for n in range(1, 9) if n != lost]
    assert (folder.path / "set_aside" / "metrics.jsonl").read_bytes() == b"\n".join(lines)


@pytest.mark.filterwarnings("ignore:.*is not used:RuntimeWarning")
def test_a_damaged_last_record_is_made_again_from_the_checkpoint_before(finished):
    folder, go = finished
    before = folder.history().records
    content = bytearray(folder.metrics.read_bytes())
    content[-10] ^= 1
    folder.metrics.write_bytes(content)
    with pytest.warns(RuntimeWarning, match="line 6 is damaged"):
        again = go(6)
    timeless = [[record | {"seconds": 0} for record in records] for records in (before, again.history.records)]
    assert timeless[0] == timeless[1] == [record | {"seconds": 0} for record in folder.history()]


@pytest.mark.filterwarnings("ignore:.*is not used:RuntimeWarning")
def test_metrics_that_a_crash_cut_short_are_made_whole(finished):
    folder, go = finished
    lines = folder.metrics.read_text().splitlines(keepends=True)
    folder.metrics.write_text("".join(lines[:5]) + lines[5][:20])
    with pytest.warns(RuntimeWarning, match=r"line 6 is damaged \(it is unfinished\)"):
        go(6)
    fresh = folder.metrics.read_text().splitlines()
    assert len(fresh) == 6
    assert [line.partition('"seconds"')[0] for line in fresh] == [line.partition('"seconds"')[0] for line in lines]


def test_a_folder_of_another_run_is_refused(finished, blobs, unbalanced, smooth, tmp_path):
    with pytest.raises(RunError, match="another federation"):
        fedquilt.train(
            smooth, blobs, unbalanced, fedquilt.fed_avg_m(fraction=0.5), rounds=6, seed=9, out=tmp_path / "run"
        )


def test_another_rate_or_other_data_are_another_run(finished, blobs, unbalanced, smooth, tmp_path):
    for method, data in [
        (fedquilt.fed_avg_m(fraction=0.5, lr=0.9), blobs),
        (fedquilt.fed_avg_m(fraction=0.5), replace(blobs, train=replace(blobs.train, x=blobs.train.x + 1))),
    ]:
        with pytest.raises(RunError, match="another federation"):
            fedquilt.train(smooth, data, unbalanced, method, rounds=6, out=tmp_path / "run")


def test_a_run_from_python_is_described_as_one(finished):
    folder, _ = finished
    about = fedquilt.summary(folder.path)
    assert (about["state"], about["round"], about["rounds"]) == ("finished", 6, 6)
    with pytest.raises(RunError, match="is a run from Python"):
        fedquilt.resume(folder.path)


def test_train_does_not_take_over_the_folder_of_a_spec(tmp_path, blobs, unbalanced, smooth):
    RunFolder(tmp_path).begin("[run]\nrounds = 3\n", {})
    with pytest.raises(RunError, match="holds the run of a spec"):
        fedquilt.train(smooth, blobs, unbalanced, fedquilt.fed_avg(), rounds=1, out=tmp_path)


def test_looking_at_a_run_does_not_keep_it_from_running(finished):
    """`show` looks at the lock again and again while the run is started and ended."""
    folder, _ = finished
    stop = threading.Event()

    def look():
        while not stop.is_set():
            folder.running()

    onlookers = [threading.Thread(target=look) for _ in range(2)]
    for onlooker in onlookers:
        onlooker.start()
    try:
        for _ in range(50):
            with folder.locked():
                pass
    finally:
        stop.set()
        for onlooker in onlookers:
            onlooker.join()


def test_a_disk_that_is_full_is_one_message(finished, monkeypatch):
    _, go = finished

    def full(self, *_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(RunFolder, "save", full)
    with pytest.raises(fedquilt.FedquiltError, match="cannot be written: No space left on device"):
        go(8)


def test_two_processes_cannot_run_one_folder(finished):
    folder, go = finished
    with folder.locked(), pytest.raises(RunError, match="another process"):
        go(7)
    assert go(7).history.records[-1]["round"] == 7
