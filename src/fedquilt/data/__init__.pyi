# Written by tools/stubs.py: do not edit.

from fedquilt.data.data import Augment, Data, Prepare, Split

__all__ = [
    "Augment",
    "Data",
    "Prepare",
    "Split",
]
