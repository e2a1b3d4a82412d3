"""An LSTM layer whose gates see the cell (peepholes), and models of what comes next in a sequence.

Gers, Schraudolph and Schmidhuber 2002, "Learning Precise Timing with LSTM Recurrent Networks", section 3. With input x_t,
output h_t, cell c_t and ∘ for elementwise products:

    i_t = σ(W_i x_t + U_i h_(t−1) + p_i ∘ c_(t−1) + b_i)
    f_t = σ(W_f x_t + U_f h_(t−1) + p_f ∘ c_(t−1) + b_f)
    g_t = tanh(W_g x_t + U_g h_(t−1) + b_g)
    c_t = f_t ∘ c_(t−1) + i_t ∘ g_t
    o_t = σ(W_o x_t + U_o h_(t−1) + p_o ∘ c_t + b_o)
    h_t = o_t ∘ tanh(c_t)

`nn.LSTM` has no peepholes, and two bias vectors, which are added up; this layer has as many as it is asked for. `nn.LSTM`
takes less than half the time, but cannot be mapped over clients; this one, made of plain operations, can. Where a run is
compiled, both are computed by a kernel.
"""

from __future__ import annotations

from math import sqrt
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedquilt.compute.kernels.build import usable
from fedquilt.compute.kernels.lstm import lstm_layer

Biases = Literal[1, 2]


class PeepholeLSTM(nn.Module):
    """One layer; without `peepholes` it computes what `nn.LSTM` does.

    Rows of the matrices are in the order i, f, g, o, as in `nn.LSTM`, and start as they do there.

    >>> layer = PeepholeLSTM(8, 256)
    >>> layer(torch.zeros(2, 5, 8)).shape, sum(p.numel() for p in layer.parameters())
    (torch.Size([2, 5, 256]), 272128)
    """

    compiled_as: type[nn.Module]
    """What takes its place where a run is compiled: see `fedquilt.compute.kernels`."""

    def __init__(self, inputs: int, hidden: int, peepholes: bool = True, biases: Biases = 1) -> None:
        """Make the matrices; there are 4h·(inputs + h + biases) + 3h parameters, h being `hidden`."""
        super().__init__()
        self.weight_ih = nn.Parameter(torch.empty(4 * hidden, inputs))
        self.weight_hh = nn.Parameter(torch.empty(4 * hidden, hidden))
        self.bias = nn.Parameter(torch.empty(biases, 4 * hidden))
        self.peepholes = nn.Parameter(torch.empty(3, hidden)) if peepholes else None
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -1 / sqrt(hidden), 1 / sqrt(hidden))

    def forward(self, x: Tensor) -> Tensor:
        """Map sequences (N, T, inputs) to the outputs of all positions (N, T, hidden)."""
        hidden = self.weight_hh.shape[1]
        seen = functional.linear(x, self.weight_ih, self.bias.sum(0))  # of all positions at once
        h = c = x.new_zeros(len(x), hidden)
        outputs = []
        for part in seen.unbind(1):
            i, f, g, o = torch.addmm(part, h, self.weight_hh.T).chunk(4, dim=1)
            if self.peepholes is not None:
                i, f = i + self.peepholes[0] * c, f + self.peepholes[1] * c
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            if self.peepholes is not None:
                o = o + self.peepholes[2] * c
            h = torch.sigmoid(o) * torch.tanh(c)
            outputs.append(h)
        return torch.stack(outputs, dim=1)


class CompiledPeepholeLSTM(PeepholeLSTM):
    """The same by the kernel of `fedquilt.compute.kernels.lstm`."""

    kernel = "lstm"

    def forward(self, x: Tensor) -> Tensor:
        """Map sequences (N, T, inputs) to the outputs of all positions (N, T, hidden)."""
        if not x.numel() or not usable(x, *self.parameters()):
            return super().forward(x)
        sequences = x.transpose(0, 1)
        outputs, _ = lstm_layer(sequences, self.weight_ih, self.weight_hh, self.bias.sum(0), self.peepholes)
        return outputs.transpose(0, 1)


PeepholeLSTM.compiled_as = CompiledPeepholeLSTM
CompiledPeepholeLSTM.compiled_as = CompiledPeepholeLSTM


class NextSymbolLSTM(nn.Module):
    """Embedded symbols, LSTM layers, and the scores of the symbol that comes next, at every position.

    With a vocabulary of V, an embedding of e, h units, b bias vectors and L layers, the parameters number
    V·e + 4h·(e + h + b) + (L − 1)·4h·(2h + b) + (h + 1)·V, and L·3h more with peepholes.
    """

    classifier_layer = "predict"

    def __init__(
        self, vocabulary: int, embedding: int, hidden: int, layers: int, peepholes: bool, biases: Biases
    ) -> None:
        """Build the three stages; without peepholes and with two biases, the second is `nn.LSTM`."""
        super().__init__()
        self.embed = nn.Embedding(vocabulary, embedding)
        self.lstm: nn.Module
        if peepholes or biases == 1:
            sizes = [embedding, *[hidden] * (layers - 1)]
            self.lstm = nn.Sequential(*(PeepholeLSTM(inputs, hidden, peepholes, biases) for inputs in sizes))
        else:
            self.lstm = nn.LSTM(embedding, hidden, layers, batch_first=True)
        self.predict = nn.Linear(hidden, vocabulary)

    def forward(self, x: Tensor) -> Tensor:
        """Map symbols (N, T) to scores (N, T, vocabulary)."""
        states = self.lstm(self.embed(x))
        scores: Tensor = self.predict(states[0] if isinstance(self.lstm, nn.LSTM) else states)
        return scores
