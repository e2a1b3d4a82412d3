"""LSTM layers by `lstm.cpp`: the same values and gradients as PyTorch's, but for the last bits, in less time.

PyTorch's LSTM spends most of a step on products of a few rows with the recurrent weights, one for every position, and
reaches less than half of a core's peak. Here those weights are laid out once per step, and the products run near the
peak.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from fedquilt.compute.kernels.build import library, pointers, sizes, usable

NARROW = 16
"""Columns below which a product takes up to nine times as long as its transpose (MKL, sums of 800 and 1,024)."""


def lstm_layer(
    x: Tensor, input_weights: Tensor, weights: Tensor, bias: Tensor, peepholes: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Run one layer from zeros over sequences, (T, N, inputs); return h of every position, (T, N, hidden), and the last c.

    The rows of the weights are the gates i, f, g and o; `peepholes` is None or (3, hidden), those of i, f and o.

    >>> from fedquilt.compute.kernels.build import trouble
    >>> if trouble("lstm") is None:
    ...     layer, x = nn.LSTM(3, 5), torch.randn(7, 2, 3)
    ...     inputs, weights, one, two = (p.detach() for p in layer.parameters())
    ...     assert torch.allclose(lstm_layer(x, inputs, weights, one + two)[0], layer(x)[0], atol=1e-6)
    """
    return _Layer.apply(x, input_weights, weights, bias, peepholes)  # type: ignore[no-any-return,no-untyped-call]


class CompiledLSTM(nn.LSTM):
    """`nn.LSTM` by the kernel, from zeros and without dropout between layers."""

    kernel = "lstm"

    def forward(self, input: Any, hx: Any = None) -> Any:  # noqa: A002 - PyTorch's name
        """Return the outputs and the last h and c, as `nn.LSTM` does."""
        plain = hx is None and isinstance(input, Tensor) and input.dim() == 3 and input.numel() > 0
        if not plain or not usable(input, *self._flat_weights):
            return super().forward(input, hx)
        outputs = input.transpose(0, 1) if self.batch_first else input
        last_h, last_c = [], []
        for names in self._all_weights:
            input_weights, weights, *biases = (getattr(self, name) for name in names)
            bias = biases[0] + biases[1] if biases else input_weights.new_zeros(len(input_weights))
            outputs, c = lstm_layer(outputs, input_weights, weights, bias)
            last_h.append(outputs[-1])
            last_c.append(c)
        outputs = outputs.transpose(0, 1) if self.batch_first else outputs
        return outputs, (torch.stack(last_h), torch.stack(last_c))


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, input_weights: Tensor, weights: Tensor, bias: Tensor, peepholes: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        (length, rows, _), hidden = x.shape, weights.shape[1]
        x, weights = x.contiguous(), weights.contiguous()
        peepholes = None if peepholes is None else peepholes.contiguous()
        gates = torch.addmm(bias, x.flatten(0, 1), input_weights.T)
        h, c = x.new_empty(length + 1, rows, hidden), x.new_empty(length + 1, rows, hidden)
        h[0], c[0] = 0, 0
        library("lstm").lstm_forward(*pointers(gates, weights, peepholes, h, c), *sizes(length, rows, hidden))
        ctx.spent = False
        ctx.save_for_backward(x, input_weights, weights, peepholes, gates, h, c)
        return h[1:], c[-1]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_outputs: Tensor, of_c: Tensor) -> tuple[Tensor | None, ...]:
        x, input_weights, weights, peepholes, gates, h, c = ctx.saved_tensors
        if ctx.spent:
            raise RuntimeError("the LSTM kernel supports one backward pass; call forward again")
        ctx.spent = True
        length, rows, hidden = of_outputs.shape
        of_outputs, of_gates = of_outputs.contiguous(), gates  # in place, which spares the caches
        of_h, of_c = torch.zeros_like(of_c), of_c.contiguous().clone()
        given = pointers(of_gates, weights, peepholes, c, of_outputs, of_h, of_c)
        library("lstm").lstm_backward(*given, *sizes(length, rows, hidden))
        of_x = _product(of_gates, input_weights).view_as(x) if ctx.needs_input_grad[0] else None
        by_gate = of_gates.T
        of_peepholes = None
        if peepholes is not None:
            i, f, _, o = of_gates.view(length, rows, 4, hidden).unbind(2)
            of_peepholes = torch.stack([(d * seen).sum((0, 1)) for d, seen in ((i, c[:-1]), (f, c[:-1]), (o, c[1:]))])
        of_inputs, of_weights = _product(by_gate, x.flatten(0, 1)), _product(by_gate, h[:-1].flatten(0, 1))
        return of_x, of_inputs, of_weights, of_gates.sum(0), of_peepholes


def _product(a: Tensor, b: Tensor) -> Tensor:
    """Return ab, contiguous."""
    return (b.T @ a.T).T.contiguous() if b.shape[1] < NARROW else a @ b
