"""Data sets: one file each, registered by name."""

from fedquilt.data.arrays import arrays
from fedquilt.data.cifar10 import cifar10
from fedquilt.data.data import Augment, Data, Prepare, Split
from fedquilt.data.digits import digits
from fedquilt.data.femnist import femnist
from fedquilt.data.mnist import mnist
from fedquilt.data.mnist_5k import mnist_5k
from fedquilt.data.posts import posts
from fedquilt.data.shakespeare import shakespeare
from fedquilt.data.stack_overflow import stack_overflow

__all__ = [
    "Augment",
    "Data",
    "Prepare",
    "Split",
    "arrays",
    "cifar10",
    "digits",
    "femnist",
    "mnist",
    "mnist_5k",
    "posts",
    "shakespeare",
    "stack_overflow",
]
