# Written by tools/stubs.py: do not edit.

from fedquilt.models.char_lstm import char_lstm
from fedquilt.models.cifar_cnn_hsu import cifar_cnn_hsu
from fedquilt.models.cifar_cnn_mcmahan import cifar_cnn_mcmahan
from fedquilt.models.mnist_2nn import mnist_2nn
from fedquilt.models.mnist_cnn import mnist_cnn
from fedquilt.models.mobilenet_v2 import mobilenet_v2
from fedquilt.models.random_fourier import random_fourier
from fedquilt.models.resnet20_fixup import resnet20_fixup
from fedquilt.models.softmax_regression import softmax_regression
from fedquilt.models.weights import load_weights
from fedquilt.models.word_lstm import word_lstm

__all__ = [
    "char_lstm",
    "cifar_cnn_hsu",
    "cifar_cnn_mcmahan",
    "load_weights",
    "mnist_2nn",
    "mnist_cnn",
    "mobilenet_v2",
    "random_fourier",
    "resnet20_fixup",
    "softmax_regression",
    "word_lstm",
]
