"""The next-word LSTM: words embedded in 192 dimensions, an LSTM of 256, a softmax over 10,000 words.

McMahan et al. 2017, "Communication-Efficient Learning of Deep Networks from Decentralized Data", section 3, large-scale
LSTM. Its 4,950,544 parameters are 10,000·192 for the embedding, 4·256·(192 + 256 + 1) + 3·256 for an LSTM with peepholes
and one bias, and 256·10,000 + 10,000 for the softmax. The paper also says that output embeddings have 192 dimensions; with
such, and the layer that leads to them, it would count 4,359,888.
"""

from __future__ import annotations

from torch import nn

from fedquilt.base.arguments import Size
from fedquilt.base.registry import models
from fedquilt.data.data import Data
from fedquilt.models.building import classes_of
from fedquilt.models.lstm import Biases, NextSymbolLSTM


@models.register
def word_lstm(
    vocabulary: Size | None = None,
    embedding: Size = 192,
    hidden: Size = 256,
    layers: Size = 1,
    peepholes: bool = False,
    biases: Biases = 2,
    data: Data | None = None,
) -> nn.Module:
    """A word-level LSTM that predicts at every position, 4,950,800 parameters with 10,000 words (McMahan 2017).

    `vocabulary` is that of `data` unless given, and 10,000 without data; a spec fills in `data`.
    `peepholes` and `biases` are as in `char_lstm`; the paper's count is that with peepholes and one bias.

    >>> import torch
    >>> model = word_lstm()
    >>> model(torch.zeros(2, 5, dtype=torch.int64)).shape, sum(p.numel() for p in model.parameters())
    (torch.Size([2, 5, 10000]), 4950800)
    >>> sum(p.numel() for p in word_lstm(peepholes=True, biases=1).parameters())  # the paper's
    4950544
    """
    symbols = classes_of(data, vocabulary, 10_000, "vocabulary")
    return NextSymbolLSTM(symbols, embedding, hidden, layers, peepholes, biases)
