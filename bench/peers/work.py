"""The workloads of bench/workloads.py in plain figures and NumPy, so that every peer's environment can read them.

A peer's environment does not hold fedquilt, and FedJAX's does not even hold PyTorch: hence figures here and in
bench/workloads.py. `on_fedquilt.py` fails if shapes, sizes, rate or momentum differ; cohort, epochs and batch are not
compared.

Labels follow a fixed random linear rule, so that the loss after a few rounds tells whether two programs did the same
amount of learning.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class Work:
    """One workload in figures."""

    model: str
    shape: tuple[int, ...]
    classes: int
    sizes: tuple[int, ...]
    cohort: int
    epochs: int
    batch: int
    lr: float
    momentum: float = 0.0

    @property
    def clients(self) -> int:
        return len(self.sizes)

    @cached_property
    def examples(self) -> tuple[np.ndarray, np.ndarray]:
        """All examples, float32, and their labels; client after client."""
        rng = np.random.default_rng(0)
        count, inputs = sum(self.sizes), int(np.prod(self.shape))
        x = rng.random((count, inputs), np.float32) if len(self.shape) > 1 else rng.standard_normal((count, inputs))
        x = x.astype(np.float32)
        y = ((x - x.mean()) @ rng.standard_normal((inputs, self.classes)).astype(np.float32)).argmax(1)
        return x.reshape(count, *self.shape), y

    def client(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """One client's examples and labels."""
        x, y = self.examples
        first = sum(self.sizes[:index])
        return x[first : first + self.sizes[index]], y[first : first + self.sizes[index]]

    @property
    def checked(self) -> tuple[np.ndarray, np.ndarray]:
        """About 5,000 examples, of all clients, that the loss is measured on."""
        x, y = self.examples
        return x[:: len(y) // 5000], y[:: len(y) // 5000]

    def torch_model(self):
        """Build the PyTorch model, from one seed."""
        import torch  # noqa: PLC0415
        from torch_models import MODELS  # noqa: PLC0415

        torch.manual_seed(0)
        return MODELS[self.model](self)

    def torch_loss(self, model) -> float:
        """Mean cross-entropy on the examples to check."""
        import torch  # noqa: PLC0415

        x, y = (torch.from_numpy(part.copy()) for part in self.checked)
        with torch.no_grad():
            return float(torch.nn.functional.cross_entropy(model(x), y))


UNEQUAL = tuple(int(size) for size in np.linspace(100, 1000, 10))

WORKLOADS = {
    "w1": Work("2nn", (1, 28, 28), 10, (600,) * 100, cohort=10, epochs=1, batch=10, lr=0.05),
    "w2": Work("cnn", (1, 28, 28), 10, (600,) * 100, cohort=10, epochs=1, batch=50, lr=0.05),
    "w3": Work("linear", (100,), 10, (100,) * 100, cohort=10, epochs=10, batch=10, lr=0.05),
    "w7": Work("fourier", (50,), 5, UNEQUAL, cohort=10, epochs=10, batch=10, lr=0.002, momentum=0.9),
}
