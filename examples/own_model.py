import torch
from sklearn.datasets import load_digits

import fedquilt as fq


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden, self.out = torch.nn.Linear(64, 32), torch.nn.Linear(32, 10)

    def forward(self, x):
        return self.out(self.hidden(x).relu())


torch.manual_seed(0)
x, y = load_digits(return_X_y=True)
data = fq.arrays(x[:1400] / 16, y[:1400], x[1400:] / 16, y[1400:])
clients = fq.dirichlet(y[:1400], clients=20, alpha=1.0, seed=1)
result = fq.train(Net(), data, clients, fq.fed_avg_m(lr=0.05, fraction=0.5), rounds=40, seed=1)
print(f"accuracy {result.history.accuracy[-1]:.3f} after {len(result.history)} rounds; model {result.digest[:12]}")
