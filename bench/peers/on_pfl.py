"""Apple's pfl: simulated backend in one process."""

from __future__ import annotations

# user code begins
import types

import torch
import torch_models
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from turns import play


def simulate(work, turns):
    clients = [[torch.from_numpy(part) for part in work.client(index)] for index in range(work.clients)]

    def user(index):
        # pfl iterates in the order given, so shuffling is the user's.
        count = work.sizes[index]
        order = torch.randperm(count) if work.shuffled else torch.arange(count)
        return Dataset([part[order] for part in clients[index]], user_id=str(index))

    def loss(self, x, y):
        return torch_models.loss(self(torch_models.inputs(work, x)), y)

    class Boundary(TrainingProcessCallback):
        def on_train_begin(self, *, model):
            turns.boundary()
            return Metrics()

        def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
            return not turns.boundary(), Metrics()

    module = work.torch_model()
    module.loss = types.MethodType(loss, module)
    module.metrics = lambda x, y: {}
    model = PyTorchModel(
        module,
        lambda parameters, lr: torch.optim.SGD(parameters, lr, momentum=work.momentum),
        torch.optim.SGD(module.parameters(), 1.0),
    )
    users = FederatedDataset(user, get_user_sampler("minimize_reuse", list(range(work.clients))))
    FederatedAveraging().run(
        NNAlgorithmParams(10**6, evaluation_frequency=10**6, train_cohort_size=work.cohort, val_cohort_size=0),
        SimulatedBackend(users, users, postprocessors=[WeightByDatapoints()]),
        model,
        NNTrainHyperParams(local_batch_size=work.batch, local_num_epochs=work.epochs, local_learning_rate=work.lr),
        callbacks=[Boundary()],
    )
    return torch_models.vector(module)


play(simulate)
# user code ends
