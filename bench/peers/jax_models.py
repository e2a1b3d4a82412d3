"""The workloads' models in JAX: functions of parameters in PyTorch's order and layout, so that models can be compared."""

from __future__ import annotations

import math
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np

Parameters = list[jax.Array]


def linear(p: Parameters, x: jax.Array) -> jax.Array:
    return x @ p[0].T + p[1]


def dense(p: Parameters, x: jax.Array) -> jax.Array:
    for layer in range(0, len(p) - 2, 2):
        x = jax.nn.relu(linear(p[layer : layer + 2], x))
    return linear(p[-2:], x)


def perceptron(p: Parameters, x: jax.Array) -> jax.Array:
    return dense(p, x.reshape(len(x), -1))


def convolutional(p: Parameters, x: jax.Array) -> jax.Array:
    """Channels last inside, which XLA likes on a CPU."""
    x = x.transpose(0, 2, 3, 1)
    for weight, bias in (p[:2], p[2:4]):
        x = jax.lax.conv_general_dilated(x, weight, (1, 1), "SAME", dimension_numbers=("NHWC", "OIHW", "NHWC")) + bias
        n, height, width, channels = x.shape
        x = jax.nn.relu(x.reshape(n, height // 2, 2, width // 2, 2, channels).max((2, 4)))
    return dense(p[4:], x.transpose(0, 3, 1, 2).reshape(len(x), -1))


def lstm(p: Parameters, x: jax.Array) -> jax.Array:
    inputs = p[0][x].transpose(1, 0, 2)
    for layer in range(1, len(p) - 2, 4):
        into, back, bias, other = p[layer : layer + 4]
        still = jnp.zeros((len(x), back.shape[1]))
        offered = inputs @ into.T + bias + other

        def step(state, offer, back=back):
            hidden, cell = state
            take, keep, new, show = jnp.split(offer + hidden @ back.T, 4, axis=1)
            cell = jax.nn.sigmoid(keep) * cell + jax.nn.sigmoid(take) * jnp.tanh(new)
            hidden = jax.nn.sigmoid(show) * jnp.tanh(cell)
            return (hidden, cell), hidden

        inputs = jax.lax.scan(step, (still, still), offered)[1]
    return linear(p[-2:], inputs.transpose(1, 0, 2))


def resnet(p: Parameters, x: jax.Array) -> jax.Array:
    """Channels last inside; a module's scalars come before its convolutions, as in PyTorch."""

    def convolution(x, weight, stride=1):
        return jax.lax.conv_general_dilated(
            x, weight, (stride, stride), [(1, 1), (1, 1)], dimension_numbers=("NHWC", "OIHW", "NHWC")
        )

    x = jax.nn.relu(convolution(x.transpose(0, 2, 3, 1), p[2]) + p[0])
    for block in range(3, len(p) - 2, 7):
        before, after, between, multiplier, last, first, second = p[block : block + 7]
        more = first.shape[0] - first.shape[1]
        shifted = x + before
        branch = jax.nn.relu(convolution(shifted, first, 2 if more else 1) + after)
        branch = convolution(branch + between, second) * multiplier + last
        x = jax.nn.relu(branch + (jnp.pad(shifted[:, ::2, ::2], [(0, 0)] * 3 + [(0, more)]) if more else x))
    return linear(p[-2:], x.mean((1, 2)) + p[1])


def fourier(p: Parameters, x: jax.Array) -> jax.Array:
    return math.sqrt(2) * jnp.cos(linear(p[:2], x)) @ p[2].T


MODELS = {
    "2nn": perceptron,
    "cnn": convolutional,
    "hsu": convolutional,
    "linear": linear,
    "lstm": lstm,
    "words": lstm,
    "resnet": resnet,
    "fourier": fourier,
}

WIDTHS = (16, 16, 16, 16, 32, 32, 32, 64, 64, 64)

SHAPES = {
    "2nn": [(200, 784), (200,), (200, 200), (200,), (10, 200), (10,)],
    "cnn": [(32, 1, 5, 5), (32,), (64, 32, 5, 5), (64,), (512, 3136), (512,), (10, 512), (10,)],
    "hsu": [
        *[(64, 3, 5, 5), (64,), (64, 64, 5, 5), (64,)],
        *[(384, 4096), (384,), (192, 384), (192,), (10, 192), (10,)],
    ],
    "linear": [(10, 100), (10,)],
    "lstm": [
        *[(90, 8), (1024, 8), (1024, 256), (1024,), (1024,)],
        *[(1024, 256), (1024, 256), (1024,), (1024,), (90, 256), (90,)],
    ],
    "words": [(10_000, 192), (1024, 192), (1024, 256), (1024,), (1024,), (10_000, 256), (10_000,)],
    "resnet": [
        *[(1,), (1,), (16, 3, 3, 3)],
        *(shape for a, b in pairwise(WIDTHS) for shape in (*[(1,)] * 5, (b, a, 3, 3), (b, b, 3, 3))),
        *[(10, 64), (10,)],
    ],
    "fourier": [(100, 50), (100,), (5, 100)],
}


def parameters(work) -> Parameters:
    """Cut the first model into its parameters."""
    ends = np.cumsum([math.prod(shape) for shape in SHAPES[work.model]])
    assert ends[-1] == len(work.first_model)
    cut = np.split(work.first_model, ends[:-1])
    return [jnp.asarray(part.reshape(shape)) for part, shape in zip(cut, SHAPES[work.model], strict=True)]


def loss(batch: dict[str, jax.Array], scores: jax.Array) -> jax.Array:
    """Cross-entropy of every example, the mean over places where there are some."""
    each = -jnp.take_along_axis(jax.nn.log_softmax(scores), batch["y"][..., None], axis=-1)
    return each.reshape(len(each), -1).mean(1)


def vector(p: Parameters) -> np.ndarray:
    """All parameters in one vector."""
    return np.concatenate([np.ravel(part) for part in p])
