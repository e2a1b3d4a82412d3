"""Specs that no one would write by hand: each is refused in one short line, before memory or time is taken."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import fedquilt
from fedquilt.base.errors import DataError, FedquiltError, SpecError
from fedquilt.base.text import LONGEST
from fedquilt.experiment.build import build
from fedquilt.experiment.spec import check_spec, load_spec
from fedquilt.experiment.tables import MOST_WRAPS

SPEC: dict[str, dict[str, Any]] = {
    "run": {"rounds": 1},
    "data": {"name": "digits"},
    "partition": {"name": "iid", "clients": 10},
    "model": {"name": "softmax_regression", "inputs": 64},
    "method": {"name": "fed_avg"},
    "engine": {"name": "inline"},
}


def with_key(key: str, value: object) -> dict[str, Any]:
    table, _, name = key.partition(".")
    return SPEC | {table: SPEC.get(table, {}) | {name: value}}


def refusal(tables: dict[str, Any]) -> str:
    with pytest.raises(SpecError) as refused:
        check_spec(tables)
    return str(refused.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = " + "[" * 100_000, "is not valid TOML: lists or tables are nested too deeply"),
        ("x = " + "9" * 5000, "is not valid TOML: an integer has thousands of digits"),
        ("x = 1e400", "is not valid TOML: 1e400 is too large"),
        ("[run]\nrounds = 0x" + "f" * 5000, "[run] rounds: integers must be between -2^63 and 2^63"),
        ("[" + "a." * 500 + "a]", "[a] a a a: lists or tables are nested more than 16 levels deep"),
        (
            f"[run]\n{'k' * 5000} = 1",
            f"[run] {'k' * 19} … (5,000 characters): a key may have at most 200 characters, got 5,000",
        ),
        (f'[run]\nloss = "{"a" * 5000}"', "[run] loss: a string may have at most 4,096 characters, got 5,000"),
        ("#" * 2**20 + "#", "is longer than 1,048,576 bytes, the limit for a spec"),
    ],
    ids=lambda value: value[:20],
)
def test_what_no_spec_can_mean_is_refused_when_it_is_read(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "spec.toml"
    path.write_text(text)
    with pytest.raises(SpecError) as refused:
        load_spec(path)
    assert str(refused.value) == f"{path}: {message}"


@pytest.mark.parametrize(
    "key", ["model.inputs", "model.classes", "partition.clients", "engine.workers", "engine.block", "method.epochs"]
)
def test_sizes_are_compared_with_memory_before_it_is_taken(key: str) -> None:
    tables = with_key(key, 10**15)
    tables |= {"engine": {**tables["engine"], "name": "vectorised"}}
    assert refusal(tables).startswith(f"spec: [{key.replace('.', '] ')}: is too large: so many would take ")


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("mnist_2nn", {"hidden": 10**7}),
        ("random_fourier", {"features": 5 * 10**8}),
        ("word_lstm", {"vocabulary": 10**7, "embedding": 10**7}),
    ],
)
def test_a_model_is_counted_before_it_is_made(name: str, sizes: dict[str, int]) -> None:
    begun = time.perf_counter()
    with pytest.raises(
        SpecError, match=r"\[model\] the model, of which a run has 4 copies, would take .* GB of memory"
    ):
        build(check_spec(SPEC | {"model": {"name": name, **sizes}}))
    assert time.perf_counter() - begun < 10


def test_many_synthetic_clients_are_refused_before_any_is_drawn() -> None:
    begun = time.perf_counter()
    with pytest.raises(DataError, match="synthetic: about 45,300,000,000 examples would take"):
        fedquilt.synthetic(clients=10**8)
    assert time.perf_counter() - begun < 5


def test_scores_of_many_synthetic_classes_are_refused_before_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDQUILT_MEMORY", "1GB")
    with pytest.raises(DataError, match="examples of a client, with 5 features and 1,000,000 classes would take"):
        fedquilt.synthetic(clients=5, minimum=100, features=5, classes=10**6)


@pytest.mark.parametrize("stages", [[[float("inf"), 0.1]], [[1.5, 0.1]], [["1", "2"]], [[True, 0.1]], 3, {}, [[1]]])
def test_stages_are_pairs_of_a_round_and_a_number(stages: object) -> None:
    assert "is not a schedule: stages must be pairs [first round, value]" in refusal(
        with_key("method.lr", {"stages": stages})
    )


def test_somebody_who_is_no_user_has_no_home(tmp_path: Path) -> None:
    tables = SPEC | {"data": {"name": "table", "path": "~nosuchuser/data.csv", "label": "a"}}
    with pytest.raises(SpecError, match="~nosuchuser"):
        build(check_spec(tables))


def test_wrappers_have_an_end() -> None:
    assert refusal(SPEC | {"wrap": [{"name": "fed_prox"}] * (MOST_WRAPS + 1)}).endswith("at most 50 are allowed")


def test_of_many_problems_the_first_are_listed() -> None:
    message = refusal(SPEC | {"method": {"name": "fed_avg"} | {f"x{number}": 1 for number in range(300)}})
    assert len(message.splitlines()) == 11
    assert message.endswith("\n… and 290 more")


def test_no_error_has_an_endless_or_a_raw_text() -> None:
    for kind in (FedquiltError, SpecError, DataError):
        text = str(kind("\x1b]0;title\x07" * 10**6))
        assert len(text) <= LONGEST
        assert "\x1b" not in text


def test_weights_in_eight_bits_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    names = build(check_spec(SPEC))[0].replica.module.state_dict()
    save_file({name: value.to(torch.float8_e4m3fn) for name, value in names.items()}, path)
    with pytest.raises(SpecError, match=r"\[run\] start: .*F8_E4M3, but the model has torch.float32"):
        build(check_spec(with_key("run.start", str(path))))
