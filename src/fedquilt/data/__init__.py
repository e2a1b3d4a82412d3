"""Data sets: one file each, registered by name."""

from fedquilt.data.arrays import arrays
from fedquilt.data.cifar10 import cifar10
from fedquilt.data.cifar100 import cifar100
from fedquilt.data.data import Augment, Data, Prepare, Split
from fedquilt.data.digits import digits
from fedquilt.data.fashion_mnist import fashion_mnist
from fedquilt.data.femnist import femnist
from fedquilt.data.hugging_face import hugging_face
from fedquilt.data.image_folder import image_folder
from fedquilt.data.inaturalist import inaturalist
from fedquilt.data.landmarks import landmarks
from fedquilt.data.leaf import leaf
from fedquilt.data.libsvm import libsvm
from fedquilt.data.mnist import mnist
from fedquilt.data.mnist_5k import mnist_5k
from fedquilt.data.posts import posts
from fedquilt.data.shakespeare import shakespeare
from fedquilt.data.stack_overflow import stack_overflow
from fedquilt.data.synthetic import synthetic
from fedquilt.data.table import table

__all__ = [
    "Augment",
    "Data",
    "Prepare",
    "Split",
    "arrays",
    "cifar10",
    "cifar100",
    "digits",
    "fashion_mnist",
    "femnist",
    "hugging_face",
    "image_folder",
    "inaturalist",
    "landmarks",
    "leaf",
    "libsvm",
    "mnist",
    "mnist_5k",
    "posts",
    "shakespeare",
    "stack_overflow",
    "synthetic",
    "table",
]
