from collections import Counter
from collections.abc import Callable
from hashlib import blake2b
from importlib import import_module
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sample_data.texts import Pair, several_posts, write_posts
from torch import nn

import fedquilt
from fedquilt.base.arguments import ArgumentError
from fedquilt.base.errors import DataError
from fedquilt.data.data import IGNORED, Data, Split
from fedquilt.data.sets.posts import BEGIN, OTHER, WORD, limited, posts
from fedquilt.experiment.result import Result
from fedquilt.models import word_lstm


def pieces(split: Split) -> dict[int, list[tuple[list[int], list[int]]]]:
    """Return inputs and targets of every row, by author, without their padding."""
    assert split.ids is not None
    found: dict[int, list[tuple[list[int], list[int]]]] = {}
    for x, y, author in zip(split.x.tolist(), split.y.tolist(), split.ids.tolist(), strict=True):
        found.setdefault(author, []).append((x, y))
    return found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Don't panic, it's 42!", ["don't", "panic", "it's", "42"]),
        ("  'quoted' snake_case …", ["quoted", "snake", "case"]),
        ("ÜBER naïve 東京", ["über", "naïve", "東京"]),
        ("?!", []),
    ],
)
def test_words(text: str, words: list[str]) -> None:
    assert WORD.findall(text.lower()) == words


def test_a_post_becomes_pieces_that_predict_the_next_word(tmp_path: Path) -> None:
    """By hand: five words of one author, unrolled to three; a comes last of three words, and there is room for two."""
    path = write_posts(tmp_path / "p.jsonl", [("x", "b c b c a"), ("y", "b")])
    drawn = (posts(path, vocabulary=4, unroll=3, seed=seed) for seed in range(20))
    data = next(data for data in drawn if len(data.train) == 2)
    b, c = 2, 3
    assert data.train.x.tolist() == [[BEGIN, b, c], [b, c, BEGIN]]
    assert data.train.y.tolist() == [[b, c, b], [c, IGNORED, IGNORED]]
    assert (data.test.x.tolist(), data.test.y.tolist()) == ([[BEGIN] * 3], [[b, IGNORED, IGNORED]])
    assert data.classes == 4
    assert data.prepare is not None
    assert data.prepare(data.train.x).dtype == torch.int64


def test_tested_authors_do_not_train(tmp_path: Path) -> None:
    path = write_posts(tmp_path / "p.jsonl", several_posts())
    data, again, other = (
        posts(path, test_fraction=0.2),
        posts(path, test_fraction=0.2),
        posts(path, test_fraction=0.2, seed=1),
    )
    train, test = set(pieces(data.train)), set(pieces(data.test))
    assert (len(train), len(test)) == (16, 4)
    assert not train & test
    assert set(pieces(again.test)) == test
    assert set(pieces(other.test)) != test
    assert torch.equal(data.train.x, again.train.x)


def by_number(pairs: list[Pair]) -> dict[int, list[list[str]]]:
    """Return the words of every author's posts, by the number that the data set gives them."""
    authors = {str(author) for author, _ in pairs}
    ranked = sorted(authors, key=lambda a: int.from_bytes(blake2b(a.encode(), digest_size=8).digest(), "little"))
    return {k: [str(text).split() for who, text in pairs if who == author] for k, author in enumerate(ranked)}


def test_the_vocabulary_is_of_the_training_posts_most_frequent_first(tmp_path: Path) -> None:
    pairs = several_posts()
    data = posts(write_posts(tmp_path / "p.jsonl", pairs), vocabulary=12, unroll=30, test_fraction=0.3)
    written = by_number(pairs)
    assert data.train.ids is not None
    counts = Counter(word for k in set(data.train.ids.tolist()) for post in written[k] for word in post)
    expected = [count for _, count in counts.most_common(10)]
    counted = torch.bincount(data.train.y[data.train.y != IGNORED].long(), minlength=12)
    assert counted.tolist() == [0, 0, *expected]  # neither other words nor the beginning are predicted
    assert (data.train.x == OTHER).any()  # but they are read
    assert counts.total() > sum(expected)


def test_every_word_is_predicted_once(tmp_path: Path) -> None:
    """With room for all words, the rows of an author spell the posts."""
    rng = np.random.default_rng(0)
    words = [f"w{k}" for k in range(12)]
    pairs: list[Pair] = [(f"a{k % 4}", " ".join(rng.permutation(words))) for k in range(20)]
    data = posts(write_posts(tmp_path / "p.jsonl", pairs), unroll=5)
    written = by_number(pairs)
    names: dict[int, str] = {}
    for split in (data.train, data.test):
        for author, rows in pieces(split).items():
            targets = [symbol for _, y in rows for symbol in y if symbol != IGNORED]
            spoken = [word for post in written[author] for word in post]
            assert len(targets) == len(spoken)
            for symbol, word in zip(targets, spoken, strict=True):
                assert names.setdefault(symbol, word) == word
    assert sorted(names) == list(range(2, 14))


def test_clients_have_at_most_so_many_words(tmp_path: Path) -> None:
    path = write_posts(tmp_path / "p.jsonl", several_posts())
    whole, few = posts(path), posts(path, words=10)
    found = {
        author: sum(symbol != IGNORED for _, y in rows for symbol in y) for author, rows in pieces(few.train).items()
    }
    assert set(found.values()) == {10}
    assert sorted(found) == sorted(pieces(whole.train))
    assert few.test.ids is not None
    assert whole.test.ids is not None
    assert few.test.ids.tolist() == whole.test.ids.tolist()  # test posts are whole


@given(st.lists(st.lists(st.integers(0, 9), max_size=6), min_size=1, max_size=6), st.integers(1, 20))
def test_limited_takes_the_first_words_of_every_author(sizes: list[list[int]], words: int) -> None:
    owners = np.repeat(np.arange(len(sizes)), [len(own) for own in sizes])
    kept = limited(owners, np.array([size for own in sizes for size in own], dtype=np.int64), words)
    for author, own in enumerate(sizes):
        mine = kept[owners == author].tolist()
        assert sum(mine) == min(sum(own), words)
        left = words
        for size, taken in zip(own, mine, strict=True):
            assert taken == min(size, left)
            left -= taken


def test_chunks_do_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_posts(tmp_path / "p.jsonl", several_posts())
    whole = posts(path, vocabulary=20)
    monkeypatch.setattr(import_module("fedquilt.data.sets.posts"), "CHUNK", 7)  # the function hides the module
    cut = posts(path, vocabulary=20)
    assert torch.equal(whole.train.y, cut.train.y)


def test_parquet_and_a_folder_give_the_same(tmp_path: Path) -> None:
    pairs = several_posts()
    whole = posts(write_posts(tmp_path / "p.jsonl", pairs))
    (tmp_path / "parts").mkdir()
    for part in range(2):
        authors, texts = zip(*pairs[part * 50 : (part + 1) * 50], strict=True)
        table = pyarrow.table({"user": authors, "body": texts})
        pyarrow.parquet.write_table(table, tmp_path / "parts" / f"{part}.parquet")
    parts = posts(tmp_path / "parts", author="user", text="body")
    assert torch.equal(whole.train.x, parts.train.x)
    assert torch.equal(whole.test.y, parts.test.y)


def test_numbers_as_authors(tmp_path: Path) -> None:
    data = posts(write_posts(tmp_path / "p.jsonl", [(1, "one two one two"), (2, "one two one two"), (1, "two")]))
    assert len(pieces(data.train)) == len(pieces(data.test)) == 1


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([], "p.jsonl: has no posts with words in them"),
        ([("a", "?!"), ("b", "")], "p.jsonl: has no posts with words in them"),
        ([("a", "one"), ("a", "two")], "p.jsonl: has posts of one author only; at least two are needed"),
        ([("a", "one"), (None, "two")], "post 2: needs an author and a text, got None and 'two'"),
        ([("a", "one"), ("b", None)], "post 2: needs an author and a text, got 'b' and None"),
        ([("a", "one"), ("b", 3)], "post 2: needs an author and a text, got 'b' and 3"),
        ([("a", "one"), ("b", "two")], "no word of the test posts is in the vocabulary"),
    ],
)
def test_posts_that_do_not_do(tmp_path: Path, pairs: list[Pair], message: str) -> None:
    with pytest.raises(DataError, match=message):
        posts(write_posts(tmp_path / "p.jsonl", pairs))


def test_a_missing_column(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"p.jsonl, line 1: has no column 'body'; there are: author, text"):
        posts(write_posts(tmp_path / "p.jsonl", several_posts()), text="body")


def test_a_vocabulary_needs_room_for_words() -> None:
    with pytest.raises(ArgumentError, match="vocabulary: must be greater than 2, got 2"):
        posts(Path("p.jsonl"), vocabulary=2)


def test_a_round(tmp_path: Path, train_by_id: Callable[[Data, nn.Module], Result]) -> None:
    data = posts(write_posts(tmp_path / "p.jsonl", several_posts()), vocabulary=50, test_fraction=0.2)
    torch.manual_seed(0)
    result = train_by_id(data, word_lstm(vocabulary=50, embedding=4, hidden=8))
    assert result.history.records[0]["examples"] == len(data.train)
    assert result.history.loss[-1] < np.log(50)


def test_from_a_spec(tmp_path: Path) -> None:
    path = write_posts(tmp_path / "p.jsonl", several_posts())
    spec = tmp_path / "spec.toml"
    spec.write_text(
        f'[run]\nrounds = 1\n[data]\nname = "posts"\npath = "{path}"\nvocabulary = 50\n'
        '[partition]\nname = "iid"\nclients = 5\n[model]\nname = "word_lstm"\nvocabulary = 50\nembedding = 4\nhidden = 8\n'
        '[method]\nname = "fed_avg"\nfraction = 1.0\n[engine]\nname = "inline"\n'
    )
    run = fedquilt.run(spec, out=tmp_path / "run")
    assert len(run.result.history.loss) == 1


def test_perplexity_and_a_loss_of_ones_own(tmp_path: Path) -> None:
    """Words are kept in two bytes; what measures them need not know."""
    data = fedquilt.posts(write_posts(tmp_path / "posts.jsonl", several_posts()), vocabulary=30)
    model = fedquilt.models.word_lstm(vocabulary=30, embedding=4, hidden=8)
    held = fedquilt.iid(data.train.y.numpy(), clients=4)

    def own(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        flat = torch.nn.functional.cross_entropy(outputs.flatten(0, -2), targets.flatten(), reduction="none")
        return flat.view(targets.shape)

    for loss in ("cross_entropy", own):
        result = fedquilt.train(
            model, data, held, fedquilt.fed_avg(), 1, loss=loss, metrics=["perplexity"], engine=fedquilt.inline()
        )
        assert 1 < result.history.records[0]["metrics"]["perplexity"] < 40


def test_an_author_that_is_no_text(tmp_path: Path) -> None:
    path = write_posts(tmp_path / "posts.jsonl", [("a", "one"), ("\ud800", "two")])
    with pytest.raises(DataError, match=r"posts.jsonl, post 2: the author '\\ud800' is not valid text"):
        posts(path)


def test_files_are_found_in_the_data_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_posts(tmp_path / "mine.jsonl", [("x", "b c"), ("y", "b")])
    monkeypatch.setenv("FEDQUILT_DATA", str(tmp_path))
    found, named = (posts(each, vocabulary=4, test_fraction=0.5) for each in (Path("mine.jsonl"), path))
    assert found.train.x.tolist() == named.train.x.tolist()
    with pytest.raises(DataError, match=r"other.jsonl: no such file or folder; looked for: other.jsonl, "):
        posts(Path("other.jsonl"))
