"""Damage to the files of a run folder: it is said, and nothing is shown that was derived from it."""

from __future__ import annotations

import json
import random
import re
import shutil
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

import fedquilt
from fedquilt.analysis.curves import History
from fedquilt.base.errors import RunError, WorkerError
from fedquilt.cli import app as cli
from fedquilt.experiment import report as reporting
from fedquilt.experiment.page import runs as page_of_runs
from fedquilt.experiment.sealed import sealed_json, sealed_text

SPEC = {
    "run": {"rounds": 4, "checkpoint_seconds": 0.0, "metrics": ["accuracy", "top5"]},
    "data": {"name": "digits"},
    "partition": {"name": "dirichlet", "clients": 6, "alpha": 1.0, "own_test": True},
    "model": {"name": "softmax_regression", "inputs": 64},
    "method": {"name": "fed_avg", "fraction": 0.5},
    "engine": {"name": "inline"},
}

FLIPS = 70


class Failing:
    """Ends a run when it goes on."""

    def begin(self, history: History, last: int) -> None:
        raise WorkerError("a worker died 3 times on client 7")

    heard = round = begin


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with every file that there can be: it ended, was made longer, and then failed."""
    folder = fedquilt.run(SPEC, out=tmp_path_factory.mktemp("whole") / "run").folder
    with pytest.raises(WorkerError):
        fedquilt.resume(folder, rounds=5, watcher=Failing())  # type: ignore[arg-type]
    return folder


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes longer than all the rest."""
    monkeypatch.setattr(page_of_runs, "run_figures", lambda *_: [])
    monkeypatch.setattr(reporting, "page", lambda *_: "")
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)


Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    def call(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["fedquilt", *words])
        with warnings.catch_warnings(action="always"), pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), re.sub(r"[0-9.]+ (rounds/s|s/round).*", "", out), err

    return call


def said(answer: tuple[int, str, str], file: Path) -> bool:
    """Say whether an answer names the file that was damaged."""
    return file.name in answer[2]


@pytest.mark.timeout(600)  # it calls two hundred commands: minutes on a busy machine
def test_every_flipped_bit_is_said_or_changes_nothing(
    whole: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flips over all files, the same number in each: `show`, `report` and `resume` notice, or say the same."""
    monkeypatch.chdir(tmp_path)
    rng = random.Random(11)
    names = sorted(path.relative_to(whole) for path in whole.rglob("*") if path.is_file() and path.stat().st_size)
    assert {str(name.parts[0]) for name in names} == {
        *("spec.toml", "environment.json", "metrics.jsonl", "clients.json", "partition.npz", "population.json"),
        *("error.txt", "checkpoints"),
    }
    asked = [("show", "run"), ("show", "run", "--json"), ("report", "run"), ("resume", "run")]
    shutil.copytree(whole, "run")
    expected = {words: command(*words) for words in asked}
    assert [(code, err) for code, _, err in expected.values()] == [(0, "")] * 4
    noticed = 0
    for number in range(FLIPS):
        shutil.rmtree("run")
        shutil.copytree(whole, "run")
        file = Path("run") / names[number % len(names)]
        content = bytearray(file.read_bytes())
        place, bit = rng.randrange(len(content)), rng.randrange(8)
        content[place] ^= 1 << bit
        file.write_bytes(content)
        for words in (asked[number % 2], *asked[2:]):  # `show` as text or as JSON, in turn
            answer = command(*words)
            where = f"{file}: byte {place}, bit {bit}: {' '.join(words)}: {answer}"
            assert said(answer, file) or answer == expected[words], where
            assert "Traceback" not in answer[2], where
        noticed += said(answer, file)
    assert noticed > 0.8 * FLIPS


# Values of another type, in files whose checks are right


WRONG = [None, True, -1, 1.5, 10**400, 1e308, "text", [], [1], [None], {}, {"a": "b"}]


def test_a_value_of_any_type_is_shown_or_said(
    whole: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every key of a record and of `clients.json` is given every kind of value: never a traceback."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(whole, "run")
    last = whole.joinpath("metrics.jsonl").read_text().splitlines(keepends=True)
    record, fares = json.loads(last[-1]), json.loads(whole.joinpath("clients.json").read_text())
    more = {"absent": [], "groups": [], "simulated_seconds": 1.0, "divergence": {}, "excess_risk": {}}
    good = {"metrics.jsonl": record | more, "clients.json": fares}
    refused = 0
    for name, about in good.items():
        del about["check"]
        for key in about:
            for number, value in enumerate(WRONG):
                shutil.copyfile(whole / name, Path("run") / name)
                before = "".join(last[:-1]) if name == "metrics.jsonl" else ""
                Path("run", name).write_text(before + sealed_json(about | {key: value}))
                code, _, err = command(("show", "report")[number % 2], "run")
                assert code == 0, (name, key, value, err)
                refused += "is damaged" in err
        shutil.copyfile(whole / name, Path("run") / name)
    assert refused > 100


# The spec, changed by hand


def changed(whole: Path, tmp_path: Path, keep_check: bool) -> Path:
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    text = (folder / "spec.toml").read_text().replace("rounds = 5", "rounds = 6")
    (folder / "spec.toml").write_text(text if keep_check else text.partition("# check")[0] + "# check: edited\n")
    return folder


@pytest.mark.parametrize("ask", [fedquilt.summary, fedquilt.resume, fedquilt.evaluate])
def test_a_spec_that_was_changed_is_refused_with_what_to_do(ask, whole: Path, tmp_path: Path) -> None:
    folder = changed(whole, tmp_path, keep_check=True)
    with pytest.raises(
        RunError,
        match=r"was changed by hand: .* If that was on purpose, change its last line to `# check: edited`",
    ) as error:
        ask(folder)
    assert "The records of 4 rounds are intact, and so is the checkpoint of round 4" in str(error.value)


def test_a_spec_that_was_changed_on_purpose_is_taken(whole: Path, tmp_path: Path) -> None:
    folder = changed(whole, tmp_path, keep_check=False)
    with pytest.warns(RuntimeWarning, match="was changed by hand, as its last line says; it is used as it is"):
        ended = fedquilt.resume(folder)
    assert len(ended.result.history) == 6
    assert fedquilt.summary(folder)["damage"] == []


@pytest.mark.parametrize("lost", [1, 2, 5, 15])
def test_a_spec_that_was_cut_short_is_no_change_by_hand(lost: int, whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    lines = (folder / "spec.toml").read_text().splitlines(keepends=True)
    (folder / "spec.toml").write_text("".join(lines[:-lost]))
    with pytest.raises(RunError, match=r"is damaged, or was changed by hand: .*The records of 4 rounds are intact"):
        fedquilt.summary(folder)


def test_the_model_can_be_had_without_a_good_spec(whole: Path, tmp_path: Path) -> None:
    folder = changed(whole, tmp_path, keep_check=True)
    with pytest.warns(RuntimeWarning, match="spec.toml: is damaged"):
        assert fedquilt.export(folder, tmp_path / "model.safetensors").exists()


@pytest.mark.parametrize(
    "text", ["[run]\nrounds = 'x'\n", "run = 3\n", "[run]\nrounds = 3\n[[wrap]]\n[method]\nname = 3\n"]
)
def test_a_spec_of_other_types(text: str, whole: Path, tmp_path: Path, command: Command) -> None:
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    (folder / "spec.toml").write_text(sealed_text(text))
    for verb in ("show", "report", "resume", "evaluate"):
        code, _, err = command(verb, str(folder))
        assert code == 0 or err.startswith("error: "), err


def test_a_damaged_partition_is_written_again(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    good = (folder / "partition.npz").read_bytes()
    (folder / "partition.npz").write_bytes(good[:-1])
    with pytest.warns(RuntimeWarning, match="partition.npz"):
        fedquilt.resume(folder)
    assert (folder / "set_aside" / "partition.npz").read_bytes() == good[:-1]
    assert fedquilt.summary(folder)["damage"] == []
