"""Stack Overflow: questions and answers by their authors, for predicting the next word.

TensorFlow Federated's data set of that name: 342,477 authors with 135,818,730 sentences to train on and 204,088 with
16,586,035, written later, to test; two HDF5 files, and a file of word counts, the most frequent first.

Read as for the experiments of Reddi et al. 2021, "Adaptive Federated Optimization": the 10,000 most frequent words; the
first 20 words of a sentence, then its end, if that is within the 20 positions; at most 1,000 sentences per author. Besides
V words there are four symbols, numbered as there: 0 for padding, which is not needed here; V + 1 for all other words, V + 2
for the beginning and V + 3 for the end of a sentence. Other words and the end are predicted and count; the published
accuracies leave them out.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedquilt.base.arguments import Seed, Size
from fedquilt.base.errors import DataError
from fedquilt.base.memory import require_memory
from fedquilt.base.registry import datasets
from fedquilt.base.rng import generator
from fedquilt.base.types import Indices
from fedquilt.data.data import Data, Split
from fedquilt.data.fetch.published import Counts, Wanted, by_hand
from fedquilt.data.files import lines
from fedquilt.data.formats.federated_hdf5 import Clients, opened
from fedquilt.data.labels import number_clients
from fedquilt.data.unrolled import AT_ONCE, to_indices, unrolled

SOURCE = (
    "TensorFlow Federated publishes it as stackoverflow.tar.bz2 and stackoverflow.word_count.tar.bz2, to be unpacked: "
    "https://storage.googleapis.com/tff-datasets-public/stackoverflow.tar.bz2"
)
WORD_COUNTS, TRAIN, TEST = (
    Wanted.below(("stackoverflow", "stack_overflow", ""), name, SOURCE)
    for name in ("stackoverflow.word_count", "stackoverflow_train.h5", "stackoverflow_test.h5")
)

by_hand(
    "stack_overflow",
    [WORD_COUNTS, TRAIN, TEST],
    [Counts("TensorFlow Federated", 342_477, 135_818_730, 16_586_035, of="sentences", test_clients=204_088)],
)


@datasets.register
def stack_overflow(
    vocabulary: Size = 10_000,
    unroll: Size = 20,
    clients: Size | None = None,
    sentences: Size = 1_000,
    test_sentences: Size = 10_000,
    seed: Seed = 0,
) -> Data:
    """Stack Overflow's questions and answers by author, for predicting the next word (Reddi 2021).

    The authors' numbers go with the examples, the same ones for training and testing. The model needs `vocabulary` + 4
    symbols. An example takes 4 bytes per position: all that the defaults allow takes several gigabytes.

    - `vocabulary`: words, the most frequent ones.
    - `unroll`: positions of an example, which is a sentence; longer ones are cut off.
    - `clients`: so many authors, drawn by `seed`; unset: all.
    - `sentences`: at most so many of an author, the first ones.
    - `test_sentences`: at most so many, of authors drawn by `seed`.

    >>> data = stack_overflow(clients=1000)  # doctest: +SKIP
    >>> data.train.x.shape[1:], data.classes  # doctest: +SKIP
    (torch.Size([20]), 10004)
    """
    known = read_vocabulary(WORD_COUNTS.find(), vocabulary)
    with opened(TRAIN.find()) as train, opened(TEST.find()) as test:
        chosen = _drawn(train, "clients", seed)[:clients]
        tested = _enough(test, _drawn(test, "test sentences", seed), sentences, test_sentences)
        ids, test_ids = number_clients(chosen, list(tested))
        trained = _read(train, dict.fromkeys(chosen, sentences), ids, known, unroll)
        later = _read(test, tested, test_ids, known, unroll)
    return Data("stack_overflow", trained, later, classes=vocabulary + 4, prepare=to_indices, at_once=AT_ONCE)


def read_vocabulary(path: Path, count: int) -> dict[str, int]:
    """Read the first words of a file with a word and its count a line, and number them from 1."""
    known: dict[str, int] = {}
    try:
        for number, line in enumerate(itertools.islice(lines(path), count), start=1):
            text = line.decode()
            parts = text.split()
            if len(parts) != 2 or not parts[1].isdecimal() or parts[0] in known:
                raise DataError(
                    f"{path}, line {number}: must be a word that did not occur before and its count, got {text[:60]!r}"
                )
            known[parts[0]] = number
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: cannot be read: {error}") from error
    if len(known) < count:
        raise DataError(f"{path}: has {len(known)} words, but vocabulary = {count}")
    return known


def _drawn(clients: Clients, purpose: str, seed: int) -> list[str]:
    order = generator(seed, f"stack overflow {purpose}").permutation(len(clients.names))
    return [clients.names[index] for index in order.tolist()]


def _enough(clients: Clients, names: Sequence[str], each: int, total: int) -> dict[str, int]:
    """Say how many sentences to take of which clients, until there are enough."""
    taken: dict[str, int] = {}
    for name in names:
        if total <= 0:
            break
        taken[name] = min(len(clients.column(name, "tokens")), each, total)
        total -= taken[name]
    return taken


def _read(clients: Clients, taken: dict[str, int], numbers: Indices, known: dict[str, int], unroll: int) -> Split:
    other, begin, end = len(known) + 1, len(known) + 2, len(known) + 3
    symbols: list[np.ndarray[tuple[int], np.dtype[np.int32]]] = []
    sizes: list[int] = []
    counts: list[int] = []
    for name, most in taken.items():
        of_client: list[int] = []
        sentences = clients.read(name, "tokens", most)
        total = len(sizes) + len(sentences)
        require_memory(f"{clients.path}: {total:,} sentences", total * unroll * 4)
        for sentence in sentences:
            words = _text(clients, name, sentence).split()
            coded = [known.get(word, other) for word in words[:unroll]]
            coded += [end] if len(words) < unroll else []
            of_client += coded
            sizes.append(len(coded))
        symbols.append(np.array(of_client, dtype=np.int32))
        counts.append(len(sentences))
    if not sizes:
        raise DataError(f"{clients.path}: has no sentences")
    flat, lengths = np.concatenate(symbols), np.array(sizes, dtype=np.int64)
    x, y, of = unrolled(flat, lengths, unroll, len(known) + 4, begin)
    return Split(x, y, ids=np.repeat(numbers, counts)[of])


def _text(clients: Clients, name: str, sentence: object) -> str:
    if not isinstance(sentence, bytes):
        raise DataError(f"{clients.path}: examples/{name}/tokens must be text, got {type(sentence).__name__}")
    return sentence.decode("utf-8", errors="replace")
