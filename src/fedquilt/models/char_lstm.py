"""The Shakespeare LSTM: characters embedded in 8 dimensions, two LSTM layers of 256, a softmax over the characters.

McMahan et al. 2017, "Communication-Efficient Learning of Deep Networks from Decentralized Data", section 3. It counts
866,578 parameters, and says neither its vocabulary nor its kind of LSTM: with 258 symbols (256 bytes and two more, the
beginning and the end of a line), peepholes and one bias a gate it is that number exactly. TensorFlow's LSTM of the time
had one bias, and peepholes as an option. `nn.LSTM`, which is faster, has no peepholes and two biases: 867,090.
"""

from __future__ import annotations

from torch import nn

from fedquilt.base.arguments import Size
from fedquilt.base.registry import models
from fedquilt.data.data import Data
from fedquilt.models.building import classes_of
from fedquilt.models.lstm import Biases, NextSymbolLSTM


@models.register
def char_lstm(
    vocabulary: Size | None = None,
    embedding: Size = 8,
    hidden: Size = 256,
    layers: Size = 2,
    peepholes: bool = False,
    biases: Biases = 2,
    data: Data | None = None,
) -> nn.Module:
    """A character-level LSTM that predicts at every position, 822,570 parameters with 90 symbols (McMahan 2017).

    - `vocabulary`: the symbols; those of `data` unless given, and 90 without data. A spec fills in `data`.
    - `peepholes`: gates that see the cell (Gers 2002).
    - `biases`: bias vectors per layer; two equal one, except for the number of parameters and the effective rate.

    Without peepholes and with two biases it is PyTorch's own LSTM, in less than half the time.

    >>> import torch
    >>> model = char_lstm(vocabulary=90)
    >>> model(torch.zeros(2, 5, dtype=torch.int64)).shape, sum(p.numel() for p in model.parameters())
    (torch.Size([2, 5, 90]), 822570)
    >>> sum(p.numel() for p in char_lstm(vocabulary=258, peepholes=True, biases=1).parameters())  # the paper's
    866578
    """
    symbols = classes_of(data, vocabulary, 90, "vocabulary")
    return NextSymbolLSTM(symbols, embedding, hidden, layers, peepholes, biases)
