"""Images in training: the same bits however they are made ready."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from sample_data.images import write_images
from torch import nn

import fedquilt
from fedquilt.data.data import Data

OPTIONS: dict[str, Any] = {"size": 16, "scale": "symmetric"}
METHOD = fedquilt.fed_avg(lr=0.1, fraction=0.5, batch=4)


def model(classes: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 4, 5, stride=3),
        nn.GroupNorm(2, 4),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(16, classes),
    )


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with small files of every set of images."""
    home = tmp_path_factory.mktemp("home")
    write_images(home)
    return home


@pytest.fixture(autouse=True)
def at_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDQUILT_DATA", str(home))


def own(home: Path, **options: Any) -> Data:
    return fedquilt.image_folder(home / "own", home / "own.csv", **OPTIONS, **options)


def test_the_bits_do_not_depend_on_how_images_are_made_ready(home: Path, tmp_path: Path) -> None:
    def digest(workers: int = 0, **options: Any) -> str:
        data = own(home, **options)
        engine = fedquilt.processes(workers=workers) if workers else fedquilt.inline()
        return fedquilt.train(model(2), data, fedquilt.natural(data), METHOD, rounds=2, seed=5, engine=engine).digest

    expected = digest(ahead=0)
    assert digest(ahead=3) == expected
    assert digest(ahead=1, cache=tmp_path / "cache") == expected
    assert digest(workers=1) == digest(workers=2) == expected
    assert digest(workers=2, ahead=0, cache=tmp_path / "cache") == expected
    assert digest(workers=2, cache=tmp_path / "another") == expected, "two workers fill it at once"
    assert digest(ahead=0, augment=False) != expected


@pytest.mark.parametrize("augment", [True, False])
def test_blocks_of_clients_have_their_own_bits_however_images_are_made_ready(home: Path, augment: bool) -> None:
    def digest(workers: int, ahead: int) -> str:
        data = own(home, augment=augment, ahead=ahead)
        engine = fedquilt.vectorised(block=2, workers=workers)
        return fedquilt.train(model(2), data, fedquilt.natural(data), METHOD, rounds=2, seed=5, engine=engine).digest

    assert digest(workers=1, ahead=0) == digest(workers=2, ahead=2)


def test_a_run_that_is_resumed_gives_the_same_model(home: Path, tmp_path: Path) -> None:
    def trained(rounds: int, out: Path | None, folder: Path = home, **options: Any) -> str:
        data, engine = own(folder, **options), fedquilt.processes(workers=2)
        return fedquilt.train(
            model(2), data, fedquilt.natural(data), METHOD, rounds=rounds, seed=5, engine=engine, out=out
        ).digest

    trained(2, tmp_path / "run")
    shutil.copytree(home, tmp_path / "moved")
    moved = trained(4, tmp_path / "run", tmp_path / "moved", ahead=0, cache=tmp_path / "cache")
    assert moved == trained(4, None)


@pytest.mark.filterwarnings("ignore:client .* was left out:RuntimeWarning")
@pytest.mark.parametrize("ahead", [0, 2])
def test_a_damaged_image_is_the_fault_of_its_client(home: Path, tmp_path: Path, ahead: int) -> None:
    rows = (home / "own.csv").read_text().splitlines()
    for row in rows[1:]:
        name = row.split(",", 1)[0]
        content = (home / "own" / name).read_bytes()
        (tmp_path / name).write_bytes(content[: len(content) // 2] if name == "7.jpg" else content)
    (tmp_path / "test.csv").write_text("\n".join([rows[0], *rows[3:6]]) + "\n")
    data = fedquilt.image_folder(tmp_path, home / "own.csv", test=tmp_path / "test.csv", ahead=ahead, **OPTIONS)
    method = fedquilt.fed_avg(fraction=1.0, batch=4)
    result = fedquilt.train(
        model(2), data, fedquilt.natural(data), method, rounds=1, engine=fedquilt.processes(workers=2)
    )
    (dropped,) = result.history.records[0]["dropped"]
    assert dropped["client"] == 7 % 5
    assert "7.jpg: the image cannot be read" in dropped["reason"]
    tested = fedquilt.image_folder(tmp_path, home / "own.csv", test=home / "own.csv", ahead=ahead, **OPTIONS)
    with pytest.raises(fedquilt.FedquiltError, match=r"7\.jpg: the image cannot be read"):
        fedquilt.train(
            model(2), tested, fedquilt.natural(tested), method, rounds=1, engine=fedquilt.processes(workers=2)
        )
