"""Data sets: one file each, registered by name."""

from fedquilt.data.arrays import arrays
from fedquilt.data.cifar10 import cifar10
from fedquilt.data.data import Augment, Data, Prepare, Split
from fedquilt.data.digits import digits
from fedquilt.data.image_folder import image_folder
from fedquilt.data.inaturalist import inaturalist
from fedquilt.data.landmarks import landmarks
from fedquilt.data.mnist import mnist
from fedquilt.data.mnist_5k import mnist_5k

__all__ = [
    "Augment",
    "Data",
    "Prepare",
    "Split",
    "arrays",
    "cifar10",
    "digits",
    "image_folder",
    "inaturalist",
    "landmarks",
    "mnist",
    "mnist_5k",
]
