"""Posts by author: which word comes next.

McMahan et al. 2017, "Communication-Efficient Learning of Deep Networks from Decentralized Data", section 3, large-scale
LSTM: 10 million posts of a social network, by over 500,000 authors, who are the clients; "at most 5000 words" of each; a
vocabulary of 10,000 words; "an unroll of 10 words"; tested on 100,000 posts "from different (non-training) authors". Those
posts are not public: these are your own, as JSON Lines or Parquet.

What the paper leaves open: words are runs of letters and digits, apostrophes inside included, in lower case; the vocabulary
has the most frequent words of the training posts and two symbols besides, one for all other words and one that stands
before a post. Other words are read, but not predicted: they count neither in the loss nor in the accuracy. Posts are cut
into pieces of 10 words, and the network begins each anew.

The posts are read once, in the order of the file. That takes some 6 bytes per word, 30 per post and 150 per distinct
word; what stays takes 4 bytes per position of an example. Of an author nothing but a number is stored.
"""

from __future__ import annotations

import re
from array import array
from collections import defaultdict
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedquilt.base.arguments import Seed, Size
from fedquilt.base.errors import DataError
from fedquilt.base.memory import require_memory
from fedquilt.base.registry import datasets
from fedquilt.base.rng import generator
from fedquilt.base.types import Indices
from fedquilt.data.data import IGNORED, Data, Split
from fedquilt.data.fetch.folders import own_file
from fedquilt.data.formats.rows import files, rows
from fedquilt.data.labels import TestFraction
from fedquilt.data.unrolled import AT_ONCE, to_indices, unrolled

OTHER, BEGIN = 0, 1
FIRST_WORD = 2
WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
CHUNK = 2**22
"""Words looked up at a time: a bound on memory."""

CHECKED = 10_000
"""After so many posts, or a post of more words, it is looked at how much memory they take."""


class Posts(NamedTuple):
    """All posts: the words one after the other, by number; the words of each post; its author's number."""

    words: npt.NDArray[np.integer[Any]]
    sizes: Indices
    authors: Indices
    distinct: int

    def ordered(self, order: Indices) -> tuple[Indices, Indices, Indices]:
        """Return authors, sizes and positions of the first words of some posts."""
        firsts = np.cumsum(self.sizes) - self.sizes
        return self.authors[order], self.sizes[order], firsts[order]


@datasets.register
def posts(
    path: Path,
    author: str = "author",
    text: str = "text",
    vocabulary: Annotated[int, Field(gt=FIRST_WORD)] = 10_000,
    words: Size = 5_000,
    unroll: Size = 10,
    test_fraction: TestFraction = 0.01,
    seed: Seed = 0,
) -> Data:
    """Your own posts by author, for predicting the next word (McMahan 2017).

    The clients' own numbers go with the examples; test posts are by authors whose posts are not trained on.

    - `path`: a file, or a folder of them, that ends in `.jsonl` (or `.jsonl.gz`, `.bz2`, `.xz`) or `.parquet`; relative to
      the working folder, to that of the spec, or to the data folders.
    - `author`, `text`: the names of the two columns.
    - `vocabulary`: symbols, for the model's key of that name: the most frequent words, and two besides.
    - `words`: at most so many words of a training author, the first ones.
    - `unroll`: positions of an example.
    - `test_fraction`: share of the authors that are tested, drawn by `seed`; at least one.

    >>> data = posts(Path("posts.jsonl"))  # doctest: +SKIP
    >>> data.train.x.shape[1:], data.classes  # doctest: +SKIP
    (torch.Size([10]), 10000)
    """
    read = read_posts((pair for file in files(own_file(path)) for pair in rows(file, (author, text))), str(path))
    count = len(np.unique(read.authors))
    if count < 2:
        raise DataError(
            f"{path}: has posts of one author only; at least two are needed, one to train on and one to test on"
        )
    tested = np.zeros(count, dtype=bool)
    chosen = min(max(round(test_fraction * count), 1), count - 1)
    tested[generator(seed, "test authors").permutation(count)[:chosen]] = True
    order = np.argsort(read.authors, kind="stable")
    trained, test_order = order[~tested[read.authors[order]]], order[tested[read.authors[order]]]
    owners, sizes, firsts = read.ordered(trained)
    sizes = limited(owners, sizes, words)
    read = read._replace(words=code(read, firsts, sizes, vocabulary))
    train = _split(read.words, owners, sizes, firsts, unroll, vocabulary)
    test = _split(read.words, *read.ordered(test_order), unroll, vocabulary)
    for name, split in (("training", train), ("test", test)):
        if not len(split):
            raise DataError(f"{path}: no word of the {name} posts is in the vocabulary; nothing can be predicted")
    return Data("posts", train, test, classes=vocabulary, prepare=to_indices, at_once=AT_ONCE)


def read_posts(pairs: Iterable[tuple[Any, ...]], source: str) -> Posts:
    """Read pairs of author and text; posts without words are left out.

    >>> read = read_posts([("ann", "Well, well!"), ("bob", "It's well.")], "")
    >>> read.words.tolist(), read.sizes.tolist(), read.distinct, len(set(read.authors.tolist()))
    ([0, 0, 1, 0], [2, 2], 2, 2)
    """
    known: defaultdict[str, int] = defaultdict()
    known.default_factory = known.__len__
    words, sizes, authors = array("i"), array("i"), array("Q")
    for number, (author, text) in enumerate(pairs, start=1):
        if author is None or isinstance(author, dict | list) or not isinstance(text, str):
            raise DataError(f"{source}, post {number}: needs an author and a text, got {author!r:.40} and {text!r:.40}")
        try:
            name = str(author).encode()
        except UnicodeEncodeError:
            raise DataError(f"{source}, post {number}: the author {author!a:.40} is not valid text") from None
        found = WORD.findall(text.lower())
        if found:
            words.extend(map(known.__getitem__, found))
            sizes.append(len(found))
            authors.append(int.from_bytes(blake2b(name, digest_size=8).digest(), "little"))
        if number % CHECKED == 0 or len(found) > CHECKED:
            size = 6 * len(words) + 30 * len(sizes) + 150 * len(known)
            require_memory(f"{source}: {len(sizes):,} posts of {len(words):,} words", size)
    if not sizes:
        raise DataError(f"{source}: has no posts with words in them")
    owners = np.unique(np.frombuffer(authors, dtype=np.uint64), return_inverse=True)[1]
    return Posts(np.frombuffer(words, dtype=np.int32), np.array(sizes, dtype=np.int64), owners, len(known))


def limited(owners: Indices, sizes: Indices, words: int) -> Indices:
    """Cut an author's posts, which stand together, where they have had so many words.

    >>> limited(np.array([0, 0, 0, 1]), np.array([3, 3, 3, 9]), words=4).tolist()
    [3, 1, 0, 4]
    """
    before = np.cumsum(sizes) - sizes
    starts = np.flatnonzero(np.diff(owners, prepend=-1))
    before = before - np.repeat(before[starts], np.diff(starts, append=len(owners)))
    kept: Indices = np.clip(words - before, 0, sizes)
    return kept


def code(read: Posts, firsts: Indices, sizes: Indices, vocabulary: int) -> npt.NDArray[np.integer[Any]]:
    """Give the most frequent of the training posts' words a symbol each, by frequency, and all others one symbol.

    Of words that are equally frequent, the one that was read first comes first.
    """
    counted = np.zeros(len(read.words) + 1, dtype=np.int8)
    filled = sizes > 0
    np.add.at(counted, firsts[filled], 1)
    np.add.at(counted, firsts[filled] + sizes[filled], -1)
    trained = np.cumsum(counted[:-1], dtype=np.int8).view(bool)
    counts = np.zeros(read.distinct, dtype=np.int64)
    for first in range(0, len(trained), CHUNK):
        some = slice(first, first + CHUNK)
        counts += np.bincount(read.words[some][trained[some]], minlength=read.distinct)
    frequent = np.argsort(-counts, kind="stable")[: vocabulary - FIRST_WORD]
    frequent = frequent[counts[frequent] > 0]
    symbols = np.full(read.distinct, OTHER, dtype=np.int16 if vocabulary <= 2**15 else np.int32)
    symbols[frequent] = np.arange(FIRST_WORD, FIRST_WORD + len(frequent))
    coded: npt.NDArray[np.integer[Any]] = symbols[read.words]
    return coded


def _split(
    coded: npt.NDArray[np.integer[Any]],
    owners: Indices,
    sizes: Indices,
    firsts: Indices,
    unroll: int,
    vocabulary: int,
) -> Split:
    x, y, of = unrolled(coded, sizes, unroll, vocabulary, BEGIN, firsts=firsts)
    y.masked_fill_(y == OTHER, IGNORED)
    ids = owners[of]
    predicted = (y != IGNORED).any(dim=1)
    if not bool(predicted.all()):
        x, y, ids = x[predicted], y[predicted], ids[predicted.numpy()]
    return Split(x, y, ids=ids)
