"""The Shakespeare LSTM: characters embedded in 8 dimensions, two LSTM layers of 256, a softmax over the characters.

McMahan et al. 2017, "Communication-Efficient Learning of Deep Networks from Decentralized Data", section 3.
With a vocabulary of V, an embedding of e, h units and L layers, the parameters number
V·e + 4h·(e + h + 2) + (L − 1)·4h·(2h + 2) + (h + 1)·V. `nn.LSTM` keeps two bias vectors a layer (the 2 in the brackets)
where other libraries keep one. The paper counts 866,578 parameters and does not say its vocabulary; no V gives that
number exactly (256 byte values give 866,560).
"""

from __future__ import annotations

from torch import Tensor, nn

from fedquilt.arguments import Count
from fedquilt.registry import models


class CharLSTM(nn.Module):
    """Predict the next character at every place of a line."""

    classifier_layer = "predict"

    def __init__(self, vocabulary: int, embedding: int, hidden: int, layers: int) -> None:
        """Build the three stages."""
        super().__init__()
        self.embed = nn.Embedding(vocabulary, embedding)
        self.lstm = nn.LSTM(embedding, hidden, layers, batch_first=True)
        self.predict = nn.Linear(hidden, vocabulary)

    def forward(self, x: Tensor) -> Tensor:
        """Map characters (N, T) to scores (N, T, vocabulary)."""
        states, _ = self.lstm(self.embed(x))
        scores: Tensor = self.predict(states)
        return scores


@models.register
def char_lstm(vocabulary: Count = 90, embedding: Count = 8, hidden: Count = 256, layers: Count = 2) -> nn.Module:
    """A character-level LSTM that predicts at every place, 822,570 parameters by default (McMahan 2017).

    >>> import torch
    >>> model = char_lstm(vocabulary=90)
    >>> model(torch.zeros(2, 5, dtype=torch.int64)).shape, sum(p.numel() for p in model.parameters())
    (torch.Size([2, 5, 90]), 822570)
    """
    return CharLSTM(vocabulary, embedding, hidden, layers)
