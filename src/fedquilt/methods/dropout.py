"""Clients that never respond: McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data.

§1 names them among the issues of a deployed system (2017). The weights n_k / n are over those who do respond.
"""

from __future__ import annotations

from fedquilt.arguments import BelowOne
from fedquilt.core.algorithm import Algorithm
from fedquilt.parts.presence import DropOut, add_absent
from fedquilt.registry import wrappers


@wrappers.register
def dropout(algorithm: Algorithm, probability: BelowOne = 0.1) -> Algorithm:
    """Let clients drop out of a round at random (McMahan 2017).

    Every client that is asked drops out with that probability, independently of the others and of other rounds; a client
    that fills several slots (`fed_vc`) does so for each. It has received the model, and sends nothing: it counts in
    `bytes_down`, and is named in the round's `absent`. If all drop out the model stays as it was. With a `probability` of 0
    this is the wrapped method, to the bit.

    >>> from fedquilt import fed_avg
    >>> base = fed_avg()
    >>> dropout(base, probability=0.0) is base
    True
    """
    # Before all other rules: a server that takes the first answers takes those of clients that answer.
    return add_absent(algorithm, DropOut(probability), first=True) if probability else algorithm
