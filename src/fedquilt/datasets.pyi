# Written by tools/stubs.py: do not edit.

from fedquilt.data.sets.arrays import arrays
from fedquilt.data.sets.cifar10 import cifar10
from fedquilt.data.sets.cifar100 import cifar100
from fedquilt.data.sets.digits import digits
from fedquilt.data.sets.fashion_mnist import fashion_mnist
from fedquilt.data.sets.femnist import femnist
from fedquilt.data.sets.hugging_face import hugging_face
from fedquilt.data.sets.image_folder import image_folder
from fedquilt.data.sets.inaturalist import inaturalist
from fedquilt.data.sets.landmarks import landmarks
from fedquilt.data.sets.leaf import leaf
from fedquilt.data.sets.libsvm import libsvm
from fedquilt.data.sets.mnist import mnist
from fedquilt.data.sets.mnist_5k import mnist_5k
from fedquilt.data.sets.posts import posts
from fedquilt.data.sets.shakespeare import shakespeare
from fedquilt.data.sets.stack_overflow import stack_overflow
from fedquilt.data.sets.synthetic import synthetic
from fedquilt.data.sets.table import table

__all__ = [
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
