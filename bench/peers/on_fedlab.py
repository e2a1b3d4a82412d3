"""FedLab's standalone simulation: a serial trainer and a synchronous server in one process."""

from __future__ import annotations

import sys
from unittest.mock import MagicMock

try:
    import torchvision  # noqa: F401
except (ImportError, RuntimeError):
    # FedLab's own data sets, unused here, import torchvision, which has to match PyTorch's build and may not.
    sys.modules |= {"torchvision": MagicMock(), "torchvision.transforms": MagicMock()}

# user code begins
import torch
from fedlab.contrib.algorithm.basic_client import SGDSerialClientTrainer
from fedlab.contrib.algorithm.basic_server import SyncServerHandler
from fedlab.core.standalone import StandalonePipeline
from fedlab.utils import Aggregators, SerializationTool
from torch.utils.data import DataLoader
from torch_models import data_set, loss, vector
from turns import play


class Clients:
    def __init__(self, work):
        self.sets = [data_set(work, index) for index in range(work.clients)]
        self.shuffled = work.shuffled

    def get_dataloader(self, index, batch_size):
        return DataLoader(self.sets[index], batch_size=batch_size, shuffle=self.shuffled)


class Trainer(SGDSerialClientTrainer):
    momentum = 0.0

    def train(self, model_parameters, train_loader):
        # Theirs has neither momentum nor weights, and keeps one optimiser for all clients.
        self.optimizer = torch.optim.SGD(self._model.parameters(), lr=self.lr, momentum=self.momentum)
        trained = super().train(model_parameters, train_loader)
        return [*trained, torch.tensor(len(train_loader.dataset))]


class Server(SyncServerHandler):
    def global_update(self, buffer):
        mean = Aggregators.fedavg_aggregate([pack[0] for pack in buffer], [pack[1] for pack in buffer])
        SerializationTool.deserialize_model(self._model, mean)


def simulate(work, turns):
    class Pipeline(StandalonePipeline):
        def evaluate(self):
            turns.boundary()

    model = work.torch_model()
    trainer = Trainer(model, work.clients)
    trainer.setup_dataset(Clients(work))
    trainer.setup_optim(work.epochs, work.batch, work.lr)
    trainer.momentum, trainer.criterion = work.momentum, loss
    pipeline = Pipeline(Server(model, turns.rounds, work.cohort / work.clients), trainer)
    pipeline.evaluate()
    pipeline.main()
    return vector(pipeline.handler.model)


play(simulate)
# user code ends
