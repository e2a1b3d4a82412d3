"""A federation's folder at work without a network: what its ServerApp and ClientApps do, on Flower's Grid in memory."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("flwr")

from flwr.app import Message
from memory_grid import KEYS, MemoryGrid, served

import fedquilt
from fedquilt.base.errors import RunError, SpecError
from fedquilt.engines.flower.site import versions
from fedquilt.engines.flower.wire import packed, unpacked
from fedquilt.experiment.deployment import apps
from fedquilt.experiment.deployment.apps import SITES, checked, conducted, host_of
from fedquilt.experiment.deployment.commands import free_port
from fedquilt.experiment.deployment.folder import DeploymentFolder
from fedquilt.experiment.deployment.template import write_folder
from fedquilt.experiment.deployment.ticket import Ticket
from fedquilt.experiment.export import export
from fedquilt.experiment.summary import quiet_summary

NAMES = ["bern", "oslo"]


@pytest.fixture(autouse=True)
def own_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every test import its own data.py: here they are all in one process."""
    monkeypatch.delitem(sys.modules, "data", raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))


@pytest.fixture
def clinics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DeploymentFolder:
    monkeypatch.setattr(apps, "WAIT", 3.0)
    folder = DeploymentFolder(tmp_path / "clinics")
    write_folder(folder, NAMES)
    change(folder, "rounds = 5", "rounds = 2")
    change(folder, 'name = "mnist_2nn"', 'name = "softmax_regression"')
    change(folder, "least = 1", "poll = 0.01")
    return folder


def change(folder: DeploymentFolder, before: str, after: str, file: str = "federation.toml") -> None:
    path = folder.path / file
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))


def grid_of(folder: DeploymentFolder, changed: Callable[[DeploymentFolder], None] = lambda site: None) -> MemoryGrid:
    """Give every site a copy of the folder, on its own machine; that of oslo is changed."""
    spec = folder.load()
    sites = {}
    for client, member in enumerate(spec.sites):
        copy = DeploymentFolder(folder.path.parent / f"at-{member.name}")
        shutil.rmtree(copy.path, ignore_errors=True)
        shutil.copytree(folder.path, copy.path, ignore=shutil.ignore_patterns("runs", "state"))
        if member.name == "oslo":
            changed(copy)
        sites[client] = served(host_of(copy, member.name))
    return MemoryGrid(list(spec.sites), sites)


def run(folder: DeploymentFolder, grid: MemoryGrid, rounds: int | None = None, name: str = "first") -> Any:
    return conducted(grid, folder, name, rounds, Ticket(folder, "abc"))


def test_a_deployed_run_is_a_run_like_any_other(clinics: DeploymentFolder, tmp_path: Path) -> None:
    """Its digest is the simulation's; show, resume and export work on its folder."""
    simulated = fedquilt.run(clinics.path, out=tmp_path / "simulated")
    grid = grid_of(clinics)
    ended = run(clinics, grid)
    assert ended.result.digest == simulated.result.digest
    path = clinics.run("first")
    assert quiet_summary(path)["state"] == "finished"
    assert quiet_summary(path)["round"] == 2
    assert [site["name"] for site in json.loads((path / SITES).read_text())] == NAMES
    assert export(path, tmp_path / "model.safetensors")
    longer = run(clinics, grid, rounds=4)
    assert len(longer.result.history) == 4
    assert longer.result.digest == fedquilt.resume(simulated.folder, rounds=4).result.digest
    with pytest.raises(RunError, match="is a run of real sites"):
        fedquilt.resume(path)


def test_a_run_that_was_killed_goes_on_with_the_same_bits(clinics: DeploymentFolder, tmp_path: Path) -> None:
    """SCAFFOLD, whose clients keep their variates at their sites: what they kept in the round before is found again."""
    change(clinics, "[engine]", '[[wrap]]\nname = "scaffold"\n\n[engine]')
    change(clinics, "rounds = 2", "rounds = 4")
    simulated = fedquilt.run(clinics.path, out=tmp_path / "simulated")
    grid = grid_of(clinics)

    class Killed(BaseException): ...

    def kill(message: Message, reply: Message) -> Any:
        if message.metadata.group_id == "3":
            raise Killed  # after the sites have trained, and kept what is newer than the last checkpoint
        return [(0.0, reply)]

    grid.on_the_way = kill
    with pytest.raises(Killed):
        run(clinics, grid)
    assert quiet_summary(clinics.run("first"))["round"] == 2
    grid.on_the_way = lambda message, reply: [(0.0, reply)]
    assert run(clinics, grid).result.digest == simulated.result.digest


def test_a_run_goes_on_with_a_new_key_of_a_site(clinics: DeploymentFolder, tmp_path: Path) -> None:
    """As when a site has lost its key; who is who in the run's bits goes by the order of names."""
    simulated = fedquilt.run(clinics.path, ["run.rounds=3"], out=tmp_path / "simulated")
    run(clinics, grid_of(clinics))
    oslo = clinics.load().sites[1].key
    change(clinics, oslo, KEYS[0])
    assert run(clinics, grid_of(clinics), rounds=3).result.digest == simulated.result.digest


def test_a_spec_that_was_changed_since_a_run_began_is_refused(clinics: DeploymentFolder) -> None:
    run(clinics, grid_of(clinics))
    change(clinics, "lr = 0.1", "lr = 0.2")
    with pytest.raises(RunError, match=r"\[method\] lr is 0.2, and was 0.1 when .* was begun: .* --run NAME"):
        run(clinics, grid_of(clinics), rounds=3)
    assert run(clinics, grid_of(clinics), name="second").result.run.round == 2


def test_a_server_with_examples_of_its_own_and_tests_at_sites(clinics: DeploymentFolder, tmp_path: Path) -> None:
    """What the server trains on is its own in simulation too; sites test on what they hold out, and send counts."""
    change(clinics, "return only(digits, [])", "return only(digits, range(100))", "data.py")
    wraps = [f'[[wrap]]\nname = "{name}"\n' for name in ("sign_agreement", "server_training", "own_test")]
    change(clinics, "[engine]", "\n".join([*wraps, "[engine]"]))
    simulated = fedquilt.run(clinics.path, out=tmp_path / "simulated")
    deployed = run(clinics, grid_of(clinics))
    assert deployed.result.digest == simulated.result.digest
    mine, theirs = (each.result.history.records[-1] for each in (deployed, simulated))
    assert mine["per_client_accuracy"] == theirs["per_client_accuracy"] is not None


def test_resume_goes_on_at_the_sites(clinics: DeploymentFolder, command: Callable[..., Any]) -> None:
    """It submits the run again: without a SuperLink that fails, and says so."""
    run(clinics, grid_of(clinics))
    (clinics.state / "flower").mkdir(parents=True)
    about = f'[superlink]\ndefault = "fedquilt"\n[superlink.fedquilt]\naddress = "127.0.0.1:{free_port()}"\n'
    (clinics.state / "flower" / "config.toml").write_text(about)
    answer = command("resume", str(clinics.run("first")), "--rounds", "3")
    assert answer.code != 0
    assert 'run="first" rounds=3' in answer.out
    assert "flwr run" in answer.err


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("lr = 0.1", "lr = 0.2", r"site oslo has another spec: \[method\] lr is 0.2 there, and 0.1 at the server"),
        ("seed = 1", "seed = 2", r"site oslo has another spec: \[run\] seed"),
        ('name = "bern"', 'name = "Bern"', "site oslo failed"),
        ('name = "oslo"', 'name = "rome"', "site oslo was started as site oslo, which is not in its spec"),
    ],
)
def test_a_site_with_another_spec_is_refused_by_name(
    before: str, after: str, words: str, clinics: DeploymentFolder
) -> None:
    grid = grid_of(clinics, lambda site: change(site, before, after))
    with pytest.raises(RunError, match=words) as raised:
        run(clinics, grid)
    assert "bern" not in str(raised.value).replace("Bern", "")
    rows = checked(grid, clinics)
    assert rows[0]["examples"] > 0
    assert rows[0]["unlike"] == []
    assert "refused" in rows[1]


def test_a_site_whose_data_fail_says_so_without_details(clinics: DeploymentFolder) -> None:
    grid = grid_of(clinics, lambda site: change(site, "data:load", "data:nothing"))
    with pytest.raises(RunError, match=r"site oslo failed \(SpecError\); the site's log says why") as raised:
        run(clinics, grid)
    assert "nothing" not in str(raised.value), "an exception's text stays at the site"


def test_a_hello_in_the_place_of_another_site_is_passed_over(clinics: DeploymentFolder) -> None:
    grid = grid_of(clinics)

    def on_the_way(message: Message, reply: Message) -> Any:
        if message.metadata.dst_node_id == grid.node(0):
            forged = Message(packed({"failed": "has no time"}, {}), reply_to=message)
            forged.metadata.__dict__["_src_node_id"] = grid.node(1)
            yield 0.0, forged
        yield 0.02, reply

    grid.on_the_way = on_the_way
    assert all("refused" not in row for row in checked(grid, clinics))


def test_what_a_site_says_of_itself_is_shown_escaped(clinics: DeploymentFolder) -> None:
    """In the server's log, too, which is a terminal's."""
    grid = grid_of(clinics)

    def on_the_way(message: Message, reply: Message) -> Any:
        sent = unpacked(reply.content)
        sent.said["hello"]["versions"]["torch"] = "\x1b[2J"
        return [(0.0, Message(packed(sent.said, {}), reply_to=message))]

    grid.on_the_way = on_the_way
    for row in checked(grid, clinics):
        assert row["versions"]["torch"] == r"\x1b[2J"
        assert all(text.isprintable() for text in row["unlike"])
        assert row["unlike"]


def test_a_hello_says_what_the_page_lists_and_no_more(clinics: DeploymentFolder) -> None:
    """docs/trust.md: name, numbers of examples and classes, versions, digests of spec, model and code."""
    grid = grid_of(clinics)
    checked(grid, clinics)
    replies = [message for message in grid.seen if message.metadata.reply_to_message_id]
    assert len(replies) == len(NAMES)
    for reply in replies:
        sent = unpacked(reply.content)
        assert sent.parts == {}
        assert sent.said.keys() == {"token", "hello"}
        hello = sent.said["hello"]
        assert hello.keys() == {"name", "examples", "classes", "fingerprint", "frozen", "versions", "differs"}
        assert NAMES[[grid.node(0), grid.node(1)].index(reply.metadata.src_node_id)] == hello["name"]
        assert (hello["classes"], hello["differs"]) == (10, None)
        assert all(len(hello[key]) == 64 for key in ("fingerprint", "frozen"))
        assert hello["versions"] == versions()


def test_sites_that_are_not_there_are_named(clinics: DeploymentFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apps, "WAIT", 0.3)
    grid = grid_of(clinics)
    grid.offline = {0}
    with pytest.raises(RunError, match="site bern is not there: its SuperNode is not connected"):
        run(clinics, grid)
    assert not clinics.run("first").exists() or not (clinics.run("first") / "spec.toml").exists()


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("seed = 1\n", "seed = 1\ntrain_loss = true\n", "train_loss: is not possible with real sites"),
        ("seed = 1\n", "seed = 1\ndiagnose = true\n", "diagnose: is not possible with real sites"),
        ("seed = 1\n", "seed = 1\nvalidation = 0.1\n", "validation: is not possible with real sites"),
        ('name = "fed_avg"', 'name = "local_only"', "sends nothing, and is there to compare with"),
    ],
)
def test_what_needs_all_data_in_one_place_is_refused_with_the_reason(
    before: str, after: str, words: str, clinics: DeploymentFolder
) -> None:
    change(clinics, before, after)
    if "local_only" in after:
        change(clinics, "fraction = 1.0            # all sites, in every round\n", "")
    with pytest.raises(SpecError, match=words):
        run(clinics, grid_of(clinics))


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (
            'name = "data:load"        # the function `load` in data.py',
            'name = "digits"',
            "needs a function of your own",
        ),
        ('name = "natural"', 'name = "iid"\nclients = 3', 'every site is a client: write "natural"'),
        ('name = "oslo"', 'name = "bern"', "bern is in the roster already"),
        ("ecdsa-sha2-nistp384 AAAA", "ecdsa-sha2-nistp384 BBBB", "must be the site's public key"),
        ('[engine]\nname = "flower"', '[engine]\nname = "inline"', 'real sites are run by "flower"'),
        ("[engine]", '[[simulate]]\nname = "dropout"\nprobability = 0.1\n\n[engine]', "are not simulated"),
    ],
)
def test_a_spec_with_sites_is_checked(before: str, after: str, words: str, clinics: DeploymentFolder) -> None:
    if "inline" in after:
        change(clinics, "over_select = 0.0 ", "# ")
        change(clinics, "poll = 0.01", "#")
    change(clinics, before, after)
    with pytest.raises(SpecError, match=words):
        clinics.load()


@pytest.mark.parametrize("source", ["digits", "csv", "parquet", "images", "code"])
def test_templates_run(source: Any, tmp_path: Path) -> None:
    """Each with files as its README tells users to put them there."""
    folder = DeploymentFolder(tmp_path / source)
    write_folder(folder, NAMES, source)
    rng = np.random.default_rng(1)
    for owner in ("server", *NAMES):
        home = folder.path / "data"
        home.mkdir(exist_ok=True)
        columns = {"age": rng.normal(size=30), "weight": rng.normal(size=30), "label": np.arange(30) % 2}
        if source == "csv":
            rows = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
            (home / f"{owner}.csv").write_text("\n".join(rows) + "\n")
        elif source == "parquet":
            pytest.importorskip("pyarrow.parquet").write_table(
                pytest.importorskip("pyarrow").table(columns), home / f"{owner}.parquet"
            )
        elif source == "images":
            for number in range(20):
                path = home / owner / ("cat", "dog")[number % 2] / f"{number}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(rng.integers(0, 255, (8, 8, 3), dtype=np.uint8)).save(path)
    sets = ["run.rounds=1", "model.name=softmax_regression"]
    ended = fedquilt.run(folder.path, sets, out=tmp_path / "run")
    assert ended.result.history.records[0]["applied"]
    assert (folder.key("bern").stat().st_mode & 0o777, folder.keys.stat().st_mode & 0o777) == (0o600, 0o700)
