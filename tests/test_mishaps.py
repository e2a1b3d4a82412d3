"""What the command line says when something went wrong: labels that do not fit, damaged files, typos, divergence."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable
from csv import DictReader
from pathlib import Path

import numpy as np
import pytest
from command_line import SPEC, Answer, Command
from sklearn.datasets import load_digits

import fedquilt
from fedquilt.cli.console import out as screen
from fedquilt.experiment.sealed import sealed_json

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


@pytest.fixture
def aloud(command: Command) -> Callable[..., Answer]:
    """Call the command line, and let it show warnings."""

    def call(*words: str) -> Answer:
        with warnings.catch_warnings(action="default"):
            return command(*words)

    return call


def csv(file: str, labels: Callable[[int], str]) -> None:
    """Write 200 of scikit-learn's digits as a table."""
    x, y = load_digits(return_X_y=True)
    rows = [
        ",".join([*(f"{value / 16:g}" for value in row), labels(int(label))]) for row, label in zip(x, y, strict=True)
    ]
    Path(file).write_text("\n".join([",".join([*(f"p{n}" for n in range(64)), "digit"]), *rows[:200]]) + "\n")


def save_every_round(*more: str) -> list[str]:
    return ["run", "spec.toml", "--set", "run.rounds=4", "--set", "run.checkpoint_seconds=0.0", *more]


def spoil_last_line(path: Path) -> None:
    *lines, last = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines, last.replace('"round"', '"ruond"', 1)]))


# Labels of other data


def test_text_labels_for_a_run_whose_classes_are_numbers_are_refused(command: Command) -> None:
    command("run", "spec.toml")
    csv("words.csv", lambda label: WORDS[label])
    csv("numbers.csv", str)
    answer = command("evaluate", "runs/spec", "--data", "words.csv", "--set", "data.label=digit")
    assert answer.code == 2
    assert "labels are 'eight', 'five', 'four' and 7 more, but the classes" in answer.err
    assert "those of digits, are the numbers from 0 to 9" in answer.err
    assert command("evaluate", "runs/spec", "--data", "numbers.csv", "--set", "data.label=digit").code == 0


def test_text_labels_are_the_runs_classes_by_their_names(command: Command) -> None:
    """The rows of four digits only, whose names would be numbered from 0: the accuracy is that of the same rows as such."""
    csv("train.csv", lambda label: WORDS[label])
    text = SPEC.replace('name = "digits"', 'name = "table"\npath = "train.csv"\nlabel = "digit"\ntest = "train.csv"')
    Path("spec.toml").write_text(text)
    command("run", "spec.toml", "--set", "run.rounds=20", "--set", "method.fraction=1.0")
    lines = Path("train.csv").read_text().splitlines()
    few = [line for line in lines[1:] if line.endswith(("six", "seven", "eight", "nine"))]
    Path("few.csv").write_text("\n".join([lines[0], *few]) + "\n")
    Path("more.csv").write_text("\n".join([lines[0], *few, few[0].replace("six", "apple")]) + "\n")
    same = fedquilt.table(Path("few.csv"), label="digit", test=Path("few.csv"))
    numbers = np.array([sorted(WORDS).index(same.class_names[n]) for n in same.test.y.tolist()])  # type: ignore[index]
    x = same.test.x.numpy()
    expected = fedquilt.evaluate("runs/spec", fedquilt.arrays(x, numbers, x, numbers, classes=10))["accuracy"]
    assert expected > 0.5
    assert json.loads(command("evaluate", "runs/spec", "--data", "few.csv", "--json").out)["accuracy"] == expected
    Path("few.toml").write_text('[data]\nname = "table"\npath = "few.csv"\nlabel = "digit"\ntest = "few.csv"\n')
    assert json.loads(command("evaluate", "runs/spec", "--data", "few.toml", "--json").out)["accuracy"] == expected
    Path("more.csv").write_text("\n".join([lines[0], re.sub(r"\w+$", "apple", few[0]), *few]) + "\n")
    assert "labels are 'apple', but the classes" in command("evaluate", "runs/spec", "--data", "more.csv").err


# Damage


def test_the_record_of_the_last_round_is_made_again_where_a_checkpoint_allows(
    command: Command, aloud: Callable[..., Answer]
) -> None:
    command(*save_every_round())
    before = Path("runs/spec/metrics.jsonl").read_text()
    spoil_last_line(Path("runs/spec/metrics.jsonl"))
    answer = aloud("resume", "runs/spec")
    assert "spec: continues after round 3, 4 rounds in all\n" in answer.out
    assert "they are computed again from round-00000003.safetensors" in answer.err
    assert "Set aside: runs/spec/set_aside/metrics.jsonl\n" in answer.out
    assert "\nWhat was set aside is kept as it was before this resume" in answer.out
    again = Path("runs/spec/metrics.jsonl").read_text()
    records = [[json.loads(line)[key] for key in ("round", "loss")] for line in before.splitlines()]
    assert [[json.loads(line)[key] for key in ("round", "loss")] for line in again.splitlines()] == records


def test_where_it_cannot_be_made_again_the_round_after_the_checkpoint_is_the_next(
    command: Command, aloud: Callable[..., Answer]
) -> None:
    command("run", "spec.toml", "--set", "run.rounds=3")
    spoil_last_line(Path("runs/spec/metrics.jsonl"))
    answer = aloud("resume", "runs/spec", "--rounds", "5")
    assert "spec: continues after round 3, 5 rounds in all\n" in answer.out
    assert "the records of round 3 are lost; the records of 2 rounds are intact" in answer.err
    assert "best" not in answer.out, "nor is it said of a history with a gap at its end"


def test_a_key_that_was_changed_by_hand_is_named(command: Command, aloud: Callable[..., Answer]) -> None:
    command("run", "spec.toml")
    spec = Path("runs/spec/spec.toml")
    spec.write_text(
        spec.read_text().replace("fraction = 0.3", "fraction = 0.5").partition("# check")[0] + "# check: edited\n"
    )
    answer = aloud("resume", "runs/spec", "--rounds", "3")
    assert answer.code == 2
    assert answer.err.endswith(
        "error: runs/spec: cannot continue: [method] fraction was 0.3 when the run began, and is 0.5 now. Change "
        "it back to continue, or start a new run with it: `fedquilt run runs/spec/spec.toml --out FOLDER`\n"
    )
    assert command("run", "runs/spec/spec.toml", "--out", "new").code == 0
    assert fedquilt.summary("new")["spec"]["method"]["fraction"] == 0.5


def test_a_spec_that_says_it_was_edited_is_not_to_say_it_again(command: Command) -> None:
    command("run", "spec.toml")
    spec = Path("runs/spec/spec.toml")
    good = spec.read_text()
    spec.write_text(good.replace("rounds = 2", "rounds = = 2"))
    assert "change its last line to `# check: edited`" in command("show", "runs/spec").err
    spec.write_text(good.partition("# check")[0].replace("rounds = 2", "rounds = = 2") + "# check: edited\n")
    answer = command("show", "runs/spec")
    assert answer.code == 2
    assert "change its last line" not in answer.err
    assert "Correct it, or restore an intact copy. The records of 2 rounds are intact" in answer.err


@pytest.mark.parametrize("verb", ["show", "resume", "evaluate"])
def test_an_emptied_spec_is_damage(command: Command, verb: str) -> None:
    command("run", "spec.toml")
    Path("runs/spec/spec.toml").write_text("")
    answer = command(verb, "runs/spec")
    assert answer.code == 2
    assert answer.err == (
        "error: runs/spec/spec.toml: is damaged: it is empty. Restore an intact copy. The records of 2 rounds are "
        "intact, and so is the checkpoint of round 2: `fedquilt export` can read it\n"
    )


def test_show_says_what_of_a_run_is_saved(command: Command, aloud: Callable[..., Answer]) -> None:
    command("run", "spec.toml")
    newest = Path("runs/spec/checkpoints/round-00000002.safetensors")
    content = newest.read_bytes()
    newest.write_bytes(content[:100])
    damaged = aloud("show", "runs/spec")
    assert damaged.err == f"warning: {newest}: is damaged or cut short; it is not used\n"
    assert re.search(r"^rounds +2 of 2 \(no intact checkpoint is left\)", damaged.out, re.MULTILINE)
    assert re.search(r"^digest +–$", damaged.out, re.MULTILINE)
    assert damaged.out.endswith("continue with: fedquilt resume runs/spec --from-start\n")
    newest.unlink()
    none = aloud("show", "runs/spec")
    assert re.search(r"^rounds +2 of 2 \(no checkpoint yet\)", none.out, re.MULTILINE)
    assert none.out.endswith("continue with: fedquilt resume runs/spec\n")


def test_a_digest_is_one_line(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    command("run", "spec.toml")
    path = Path("runs/spec/metrics.jsonl")
    first, second = path.read_text().splitlines()
    faulty = json.loads(second) | {"dropped": [{"client": 1, "reason": "late", "kind": "of_a_kind_with_a_long_name"}]}
    del faulty["check"]
    path.write_text(f"{first}\n{sealed_json(faulty)}")
    monkeypatch.setattr(screen, "_width", 80)
    lines = [line.split() for line in command("show", "runs/spec").out.splitlines()]
    assert ["digest", fedquilt.summary("runs/spec")["digest"]] in lines


def test_what_the_good_records_say_is_said(command: Command, aloud: Callable[..., Answer]) -> None:
    command(*save_every_round("--set", "run.rounds=14"))
    path = Path("runs/spec/metrics.jsonl")
    records = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text(path.read_text().replace('"round": 2,', '"round": 6,'))
    good = [record for record in records if record["round"] != 2]
    best = max(good, key=lambda record: record["accuracy"])
    words = " ".join(aloud("show", "runs/spec").out.split())
    of = "the 13 rounds whose records are intact"
    assert f"best {100 * best['accuracy']:.2f}% in round {best['round']}, best of {of}" in words
    assert f"left out 0 clients, 0 rounds without an update, in {of}" in words
    assert aloud("report", "runs/spec", "--out", "report", "--target", "0.2").code == 0
    (row,) = DictReader(Path("report/tables/runs.csv").read_text().splitlines())
    assert row["mean of last 10"] == f"{10 * sum(record['accuracy'] for record in records[-10:]):.2f}%", (
        "rounds 5 to 14"
    )
    assert row["best accuracy"] == f"≥ {100 * best['accuracy']:.2f}%"
    crossed = fedquilt.rounds_to(
        [record["round"] for record in good], [record["accuracy"] for record in good], target=0.2
    )
    assert row["rounds to target"] == (f"≤ {crossed:.1f}" if crossed and crossed > 2 else f"{crossed:.1f}")
    assert row["MB sent"].startswith("≥ ")
    about = json.loads(aloud("show", "runs/spec", "--json").out)
    assert about["best"] is about["seconds"] is None, "of the whole run it is not known"
    assert about["known"]["rounds"] == 13


# Sweeps and reports


def test_a_sweep_is_reported_but_not_resumed_and_one_of_nothing_says_so(command: Command) -> None:
    Path("grid.toml").write_text(SPEC + '[grid]\n"method.lr" = [0.001, 0.5]\n')
    command("sweep", "grid.toml")
    assert command("report", "runs/grid").code == 0
    answer = command("resume", "runs/grid")
    assert answer.code == 2
    assert "holds no run itself, but 2 runs, as the folder of a sweep does (lr=0.001, lr=0.5)" in answer.err
    for verb in ("report", "show", "resume", "evaluate"):
        answer = command(verb, "runs/gird")
        assert answer.err == "error: runs/gird: there is no such folder; did you mean 'grid'? (known: grid)\n"


# Divergence


def test_the_model_of_a_diverged_run_is_not_handed_out_in_silence(aloud: Callable[..., Answer]) -> None:
    assert aloud("run", "spec.toml", "--set", "method.lr=1e30", "--set", "run.rounds=5").code == 1
    for words in (["evaluate", "runs/spec"], ["export", "runs/spec", "model.safetensors"]):
        answer = aloud(*words)
        assert answer.code == 0
        assert "warning: runs/spec: the run diverged, and its model is of little use: " in answer.err


# Names


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("method.learning_rate=0.1", "[method] learning_rate: unknown key; did you mean 'lr'?"),
        ("method.batch_size=8", "[method] batch_size: unknown key; did you mean 'batch'?"),
        ("partition.num_clients=8", "[partition] num_clients: unknown key; did you mean 'clients'?"),
        ("run.device=cuda", "[run] device: unknown key; it is a key of [engine]; known: "),
        ("method.rounds=8", "[method] rounds: unknown key; it is a key of [run]; known: "),
    ],
)
def test_other_words_and_other_tables(command: Command, change: str, said: str) -> None:
    answer = command("run", "spec.toml", "--set", change)
    assert answer.code == 2
    assert answer.err.startswith(f"error: spec.toml: {said}")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "spec.toml", "--rounds", "3"], "--set run.rounds=3"),
        (["sweep", "spec.toml", "--lr=0.5"], "--set method.lr=0.5"),
        (["partition", "spec.toml", "--clients", "5"], "--set partition.clients=5"),
    ],
)
def test_a_key_given_as_an_option(command: Command, words: list[str], said: str) -> None:
    answer = command(*words)
    assert answer.code == 2
    assert said in re.sub(r"[│\s]+", " ", answer.err)
    assert "It is a key" not in command("run", "spec.toml", "--sett", "x").err


def test_a_method_that_the_spec_has_is_not_suggested(command: Command) -> None:
    answer = command("partition", "spec.toml", "--set", "partition.alpha=0.01")
    assert "the spec has fed_avg_m, as is advised" in answer.out
    assert not re.search(r"try .*fed_avg_m", answer.out)
    other = command("partition", "spec.toml", "--set", "partition.alpha=0.01", "--set", "method.name=fed_avg")
    assert "try fed_avg_m." in other.out
