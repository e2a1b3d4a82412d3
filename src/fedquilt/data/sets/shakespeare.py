"""Shakespeare's plays by role: what comes next in a line.

McMahan et al. 2017, "Communication-Efficient Learning of Deep Networks from Decentralized Data", section 3: a client is
"each speaking role in each play with at least two lines", its first 80% of lines are for training, the last 20%, at
least one line, for testing. From Project Gutenberg's Etext #100 of 1994, whose notice allows personal use only.

An example is a line, not a window of 80 characters: u = E·n/(K·B), the expected number of updates a client makes in a
round, is 1.5, 7.4 and 37.1 in the paper's Table 2, so that n/K is 74 lines per client. A line is one of the file, and found
as in the authors' published script (the one in LEAF, Caldas et al. 2018): a speech begins with two blanks and a name, and
goes on in lines that begin with four; stage directions inside a speech belong to it; the Comedy of Errors stands two
columns to the left. Other than there, the heading of an act or scene ends the speech before it, and empty lines are none.

| | published | here |
|---|---|---|
| roles | 1,146 | 1,145 |
| characters for training | 3,564,579 | 3,564,304 |
| characters for testing | 870,014 | 870,197 |
| u for (E, B) = (1, 50), (1, 10), (5, 10) | 1.5, 7.4, 37.1 | 1.48, 7.42, 37.08 |

Characters are counted with the end of each line. What is left of a difference may be the edition, which the paper does not
name, or names in capitals and not, which here are one (1,147 roles if they were two). "At least two lines" means more than
two, as in the script: with roles of exactly two lines it would be 1,202 roles, and u 35.3 instead of 37.1. Some names are
not recognised, in the script and here: those with numbers and signs ("1. Watch.", "VARRO'S SERVANT.").
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
from pydantic import Field

from fedquilt.base.arguments import Size
from fedquilt.base.errors import DataError
from fedquilt.base.registry import datasets
from fedquilt.data.data import Data, Split
from fedquilt.data.fetch.published import Counts, Wanted, by_hand
from fedquilt.data.files import read_unpacked, require_digest
from fedquilt.data.unrolled import to_indices, unrolled

DIGEST = "c5601d266987ac885ca96522b1b4e439feb7eca39f0fe1111f7342b63b6468f3"
"""SHA-256 of the unpacked text."""

SOURCE = (
    "The text is Project Gutenberg's Etext #100 of January 1994 with plain line ends, known as t8.shakespeare.txt: "
    "https://ocw.mit.edu/ans7870/6/6.006/s08/lecturenotes/files/t8.shakespeare.txt"
)
NAMES = ("t8.shakespeare.txt.xz", "t8.shakespeare.txt")
LARGEST = 2**26
"""Bytes that are read at most: ten times the text, in case a packed file unpacks to something else."""

TEXT = Wanted(
    (*(f"shakespeare/{name}" for name in NAMES), *NAMES),
    SOURCE,
    digests=dict.fromkeys(NAMES, DIGEST),
    largest=LARGEST,
)
by_hand("shakespeare", [TEXT], [Counts("McMahan 2017", 1_146, 3_564_579, 870_014, of="characters")])

BEGIN, END = 256, 257
SYMBOLS = 258
"""All bytes, the beginning and the end of a line."""

AUTHOR = "by William Shakespeare"
PERSONS = "dramatis personae"
LEFT = "THE COMEDY OF ERRORS"
HEADING = re.compile(r" *(ACT|SCENE)[ _][IVX\d]+\b", re.IGNORECASE)
SPEECH = re.compile(r"  ([A-Za-z][A-Za-z ]*)\. (.*)")
FURTHER = " " * 4


class Role(NamedTuple):
    """A role of a play, and its lines in their order."""

    play: str
    name: str
    lines: list[str]


@datasets.register
def shakespeare(unroll: Size = 80, least_lines: Annotated[int, Field(ge=2)] = 3, check: bool = True) -> Data:
    """Shakespeare's plays: each client is a role, each example a line of characters (McMahan 2017).

    With 258 symbols: bytes, the beginning and the end of a line. The clients' own numbers go with the examples, for
    training and testing alike; for the paper's balanced version, deal the same lines out with `iid` and 1,145 clients.

    - `unroll`: positions of an example; shorter lines are padded, and longer ones, of which there is one, cut into pieces.
    - `least_lines`: roles with fewer are left out; 3 is what makes the published counts, though the paper says two.
    - `check`: refuse another edition of the text than that which these counts are of.

    >>> data = shakespeare()  # doctest: +SKIP
    >>> data.train.x.shape, data.classes, len(np.unique(data.train.ids))  # doctest: +SKIP
    (torch.Size([84919, 80]), 258, 1145)
    """
    text, path = read_text(DIGEST if check else None)
    return by_role([role for role in roles(text) if len(role.lines) >= least_lines], unroll, path)


def by_role(chosen: list[Role], unroll: int, path: Path) -> Data:
    """Make a data set of roles: of each, the last fifth of the lines is tested, at least one."""
    if not chosen:
        raise DataError(f"{path}: contains no role of a play; expected the Complete Works as plain text")
    tested = [max(len(role.lines) // 5, 1) for role in chosen]
    train = [role.lines[:-last] for role, last in zip(chosen, tested, strict=True)]
    test = [role.lines[-last:] for role, last in zip(chosen, tested, strict=True)]
    return Data("shakespeare", _split(train, unroll), _split(test, unroll), classes=SYMBOLS, prepare=to_indices)


def read_text(digest: str | None) -> tuple[str, Path]:
    """Read the text, packed or not; without a digest it is not checked for one. A character is a byte."""
    path = TEXT.find()
    content = read_unpacked(path, LARGEST)
    if not content:
        raise DataError(f"{path}: is empty; download it again")
    require_digest(path, [content], digest)
    return content.decode("latin-1"), path


def roles(text: str) -> list[Role]:
    """Find the roles of all plays, in the order in which they first speak."""
    found: dict[tuple[str, str], Role] = {}
    for title, body in _plays(text.split("\n")):
        speaking: Role | None = None
        for line in body:
            whole = f"  {line}" if title == LEFT else line
            speech = SPEECH.match(whole)
            if HEADING.match(whole):
                speaking = None
            elif speech is not None:
                name = speech[1].upper()
                speaking = found.setdefault((title, name), Role(title, name, []))
                speaking.lines.append(speech[2])
            elif speaking is not None and whole.startswith(FURTHER) and whole.strip():
                speaking.lines.append(whole.removeprefix(FURTHER))
    return list(found.values())


def _plays(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Cut the text into works; those without a list of persons, which are poems, are left out."""
    starts = [index for index, line in enumerate(lines) if AUTHOR in line]
    for start, end in pairwise([*starts, len(lines)]):
        body = lines[start + 1 : end]
        if any(PERSONS in line.lower() for line in body):
            yield next((line.strip() for line in reversed(lines[:start]) if line.strip()), ""), body


def _split(lines: list[list[str]], unroll: int) -> Split:
    flat = [line for spoken in lines for line in spoken]
    symbols = np.frombuffer("".join(flat).encode("latin-1"), dtype=np.uint8)
    sizes = np.array([len(line) for line in flat], dtype=np.int64)
    x, y, of = unrolled(symbols, sizes, unroll, SYMBOLS, BEGIN, END)
    owner = np.repeat(np.arange(len(lines)), [len(spoken) for spoken in lines])
    return Split(x, y, ids=owner[of])
