"""How much a client's update counts."""

from __future__ import annotations


def equally(examples: int) -> float:
    """Weigh every client the same, as Hsu 2020's FedVC does."""
    return 1.0


def by_examples(examples: int) -> float:
    """Weigh a client by its number of examples, as McMahan 2017's Algorithm 1 does.

    The mean is over those who reported: n_k / n with n their sum, so that a client that drops out needs no correction.
    """
    return float(examples)
