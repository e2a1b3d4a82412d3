"""Models of what comes next in a sequence: symbols embedded, LSTM layers, a softmax over the symbols.

With a vocabulary of V, an embedding of e, h units, b bias vectors and L layers, the parameters number
V·e + 4h·(e + h + b) + (L − 1)·4h·(2h + b) + (h + 1)·V, and L·3h more with peepholes.
"""

from __future__ import annotations

from torch import Tensor, nn

from fedquilt.models.peephole_lstm import Biases, PeepholeLSTM


class NextSymbolLSTM(nn.Module):
    """Embedded symbols, LSTM layers, and the scores of the symbol that comes next, at every position."""

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
