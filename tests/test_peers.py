"""The tables of bench/peers are what its results say, and memory is weighed as they say."""

import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import fedquilt

PEERS = Path(__file__).parent.parent / "bench" / "peers"
MODULES = ("table", "findings", "chart", "wholes", "work", "program", "environments", "torch_models")

HOLDS = """
import mmap, os, sys, time
answer = lambda: os.write(int(os.environ["PEERS_ANSWERS"]), b'{"seconds": 0.5}\\n')
shared = mmap.mmap(-1, 60_000_000)
child = os.fork()
for page in range(0, 60_000_000, 4096):
    shared[page] = 1
own = b"x" * 40_000_000
if not child:
    time.sleep(60)
answer()
sys.stdin.readline()
time.sleep(0.5)
answer()
sys.stdin.readline()
"""
"""A process and its child: 60 MB that they share, and 40 MB of each one's own."""


@pytest.fixture
def peers(monkeypatch):
    monkeypatch.syspath_prepend(str(PEERS))
    yield __import__
    for name in MODULES:
        sys.modules.pop(name, None)


def row(program, *rounds, **more):
    return {"program": program, "rounds": rounds, "start_up": 3.0, "memory_mb": 600, "lines": 9, "apart": 1e-8, **more}


def found(*rows):
    return {"when": "today", "command": "c", "machine": "m", "rows": rows}


@pytest.mark.parametrize("file", ["bench/peers/README.md", "docs/fast.md"])
def test_the_pages_have_the_tables_of_the_results(peers, file):
    text = (PEERS.parent.parent / file).read_text()
    assert peers("table").written(text, PEERS) == text


def test_a_skipped_program_is_in_the_table_with_its_reason(peers):
    skipped = {"program": "flower", "skipped": "a | b"}
    text = peers("table").programs({"w1": found(skipped), "w2": found(row("pfl, 1 thread", 1.0))})
    assert "| W1 | flower | skipped: a / b |" in text
    assert "| W1 | pfl | not run |" in text
    assert "| W2 | flower | not run |" in text


def test_goals_are_held_against_the_better_plain_loop_and_the_fastest_peer_turn_by_turn(peers):
    rows = (
        row("fedquilt", 1.0, 2.0, 1.0, about="processes: compiled"),
        row("fedquilt, defaults", 2.0, 4.0, 2.0, about="no engine given: eager"),
        row("plain, 1 thread", 5.0, 10.0, 9.0),
        row("plain, default threads", 8.0, 16.0, 8.0),
        row("pfl, 1 thread", 1.5, 3.0, 9.0),
    )
    text = peers("table").goals({"w1": found(*rows)})
    assert "| W1 | 5.00 (plain, 1 thread) | 5 | reached | 1.50 (pfl, 1 thread) | 3 | **not reached** |" in text
    assert "| 2.50 (plain, 1 thread), 0.75 (pfl, 1 thread) | 3.00, reached | 600, **not reached** (goal 500) |" in text
    assert "| W2 | not measured | 2 |" in text


def test_what_is_kept_of_a_workload_is_read_again_in_order_and_leaves_the_others(peers, tmp_path):
    findings = peers("findings")
    results = {"w10": found(row("fedquilt", 3.0)), "w1": found(row("fedquilt", 1.0)), "w4": found(row("fedquilt", 2.0))}
    for name, one in results.items():
        findings.keep(name, one, tmp_path)
    assert [list(one["rows"][0]["rounds"]) for one in findings.kept(tmp_path).values()] == [[1.0], [2.0], [3.0]]


@pytest.mark.parametrize(
    ("name", "model", "shape"),
    [
        ("w5", "char_lstm", (2, 7)),
        ("w8", "resnet20_fixup", (2, 3, 32, 32)),
        ("w9", "mobilenet_v2", (2, 3, 64, 64)),
        ("w10", "word_lstm", (2, 7)),
    ],
)
def test_the_peers_models_are_fedquilts_own(peers, name, model, shape):
    """The same vector of parameters gives the same scores."""
    theirs, ours = peers("work").WORKLOADS[name].torch_model(), getattr(fedquilt.models, model)()
    vector = torch.randn(sum(p.numel() for p in ours.parameters()), generator=torch.Generator().manual_seed(0)) / 20
    for each in (theirs, ours):
        torch.nn.utils.vector_to_parameters(vector, each.parameters())
    x = torch.randint(90, shape) if len(shape) == 2 else torch.rand(shape)
    with torch.no_grad():
        torch.testing.assert_close(theirs(x), ours(x))


def test_photos_are_the_same_for_peers_and_for_fedquilt(peers, tmp_path, monkeypatch):
    monkeypatch.setenv("PEERS_DATA", str(tmp_path))
    work = replace(peers("work").WORKLOADS["w9"], classes=2, sizes=(3, 3), cohort=2)
    monkeypatch.setattr(peers("work").Work, "torch_model", lambda self: torch.nn.Linear(1, 1))
    work.write()
    data = fedquilt.datasets.image_folder(
        work.photos, work.photos / "all.csv", test=work.photos / "first.csv", scale="unit", augment=False
    )
    x, y = work.client(1)
    ours = data.batch(data.train, torch.from_numpy(work.rows[3:]))
    assert torch.equal(peers("torch_models").inputs(work, torch.from_numpy(x)), ours[0])
    assert torch.equal(torch.from_numpy(y), ours[1])


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="Linux tells the memory of a process there")
def test_memory_that_processes_share_is_counted_once(peers):
    program = peers("program").Program("holds", [sys.executable, "-S", "-c", HOLDS], {}, 10.0)
    program.stop()
    program.log.close()
    program.answers.close()
    assert 140e6 < program.peak < 170e6


TAKES_TURNS = """
import time
from turns import Turns
turns, rounds = Turns(3, timed=True, variant=""), 0
while turns.boundary():
    time.sleep(0.02)
    rounds += 1
assert rounds == 1 + 5 + 5, rounds
"""
"""A program whose rounds take 0.02 s: the first alone, then two turns of 5."""


def test_a_turn_has_several_short_rounds_whose_mean_counts(peers):
    environment = {"PYTHONPATH": str(PEERS)}
    program = peers("program").Program("takes", [sys.executable, "-c", TAKES_TURNS], environment, 10.0, most=5)
    try:
        for _ in range(2):
            begun = time.perf_counter()
            mean = program.turn(record=True)
            assert 0.02 <= mean <= (time.perf_counter() - begun) / 5
        assert len(program.seconds) == 2
        program.ask("compare 1")
        assert program.process.wait(10) == 0
    finally:
        program.stop()
        program.log.close()
        program.answers.close()


def test_whole_runs_are_told_cell_by_cell(peers, tmp_path):
    wholes = peers("wholes")

    def whole(program, seconds, cache="", out=""):
        return wholes.Whole("w3", 10, program, cache, seconds, out, "", "c", "m", 0.5)

    found = [whole("fedquilt", 5.0, "cold"), whole("fedquilt", 2.0, "warm"), whole("fedquilt", 4.0, "warm")]
    found += [whole("plain, 1 thread", 4.6), whole("plain, 1 thread", 60.0, out="more than 60 s")]
    found += [whole(name, 60.9, out="more than 61 s") for name in ("pfl, 1 thread", "fedlab, 1 thread")]
    wholes.keep_wholes(found, tmp_path)
    assert wholes.kept_wholes(tmp_path) == found
    text = wholes.whole_table(found)
    late = "more than 60 s: pfl 1 thread, fedlab 1 thread"
    assert f"| W3 | 10 | cold | 5.0 | 4.6 (plain, 1 thread) | 0.92 | within 10% | {late} |" in text
    assert "| W3 | 10 | warm | 3.0 | 4.6 (plain, 1 thread) | 1.53 | first |" in text


def test_memory_is_held_against_that_of_eager_runs(peers):
    row = {"eager_mb": 400, "about": "no engine given: engine: fused", "commit": "c", "machine": "m"}
    text = peers("table").memory({"w1": {**row, "chosen_mb": 520}, "w2": {**row, "chosen_mb": 524}})
    assert "| W1 | 520 | 400 | 1.30 | reached | engine: fused |" in text
    assert "| W2 | 524 | 400 | 1.31 | **not reached** | engine: fused |" in text


def test_one_way_to_run_a_peer_can_be_chosen(peers):
    run = peers("run")
    found = run.chosen({"fedquilt", "blazefl/threads"})
    assert [(peer.name, list(peer.variants)) for peer in found] == [
        ("fedquilt", ["", "defaults"]),
        ("blazefl", ["threads"]),
    ]
    assert found[0] is run.FEDQUILT
    assert "blazefl/threads" in run.every_name()


def test_a_new_folder_gets_both_tables(peers, tmp_path, monkeypatch):
    wholes, table = peers("wholes"), peers("table")
    monkeypatch.setattr(table, "draw", lambda *_: None)
    monkeypatch.setattr(table, "draw_wholes", lambda *_: None)
    wholes.keep_wholes([wholes.Whole("w3", 10, "fedquilt", "warm", 2.0, "", "", "c", "m", 0.5)], tmp_path)
    peers("findings").keep("w1", found(row("fedquilt", 1.0)), tmp_path)
    table.publish(tmp_path)
    text = (tmp_path / "README.md").read_text()
    assert "| W3 | 10 | warm | 2.0 | none in time |" in text
    assert "| W1 | fedquilt | 1 | 1.00 |" in text
