"""Damage to the files of a run folder: it is said, and nothing is shown that was derived from it."""

from __future__ import annotations

import json
import random
import shutil
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

import fedquilt
from fedquilt import cli
from fedquilt.errors import RunError
from fedquilt.experiment.folder import RunFolder
from fedquilt.experiment.sealed import sealed_json, sealed_text

SPEC = {
    "run": {"rounds": 4, "checkpoint_seconds": 0.0, "metrics": ["accuracy", "top5"]},
    "data": {"name": "digits"},
    "partition": {"name": "dirichlet", "clients": 6, "alpha": 1.0, "own_test": True},
    "model": {"name": "softmax_regression", "inputs": 64},
    "method": {"name": "fed_avg", "fraction": 0.5},
    "engine": {"name": "inline"},
}

FLIPS = 300


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, with a note that it once could not go on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedquilt.experiment.run.draw_run", lambda *_: None)
        folder = fedquilt.run(SPEC, out=tmp_path_factory.mktemp("whole") / "run").folder
    RunFolder(folder).fail("a worker died")
    return folder


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("run.draw_run", "report.draw_curves", "report.draw_fares"):
        monkeypatch.setattr(f"fedquilt.experiment.{name}", lambda *_: None)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)


Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    def call(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["fedquilt", *words])
        with warnings.catch_warnings(), pytest.raises(SystemExit) as ended:
            warnings.simplefilter("always")
            cli.main()
        return (int(ended.value.code or 0), *capsys.readouterr())

    return call


def said(answer: tuple[int, str, str], file: Path) -> bool:
    """Say whether an answer names the file that was damaged."""
    return file.name in answer[2]


def test_every_flipped_bit_is_said_or_changes_nothing(
    whole: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three hundred flips over all files, the same number in each: `show`, `report` and `resume` notice, or say the same."""
    monkeypatch.chdir(tmp_path)
    rng = random.Random(11)
    names = sorted(path.relative_to(whole) for path in whole.rglob("*") if path.is_file() and path.stat().st_size)
    assert {str(name.parts[0]) for name in names} == {
        *("spec.toml", "environment.json", "metrics.jsonl", "clients.json", "partition.npz", "error.txt", "checkpoints")
    }
    asked = [("show", "run"), ("show", "run", "--json"), ("report", "run"), ("resume", "run")]

    def answers() -> list[tuple[int, str, str]]:
        return [command(*words) for words in asked]

    shutil.copytree(whole, "run")
    expected = answers()
    assert [(code, err) for code, _, err in expected] == [(0, "")] * 4
    noticed = 0
    for number in range(FLIPS):
        shutil.rmtree("run")
        shutil.copytree(whole, "run")
        file = Path("run") / names[number % len(names)]
        content = bytearray(file.read_bytes())
        place, bit = rng.randrange(len(content)), rng.randrange(8)
        content[place] ^= 1 << bit
        file.write_bytes(content)
        found = answers()
        for words, answer, usual in zip(asked, found, expected, strict=True):
            where = f"{file}: byte {place}, bit {bit}: {' '.join(words)}: {answer}"
            assert said(answer, file) or answer == usual, where
            assert "Traceback" not in answer[2], where
        noticed += said(found[0], file)
    assert noticed > 0.8 * FLIPS
