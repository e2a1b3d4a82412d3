"""FedLab's standalone simulation: a serial trainer and a synchronous server in one process."""

from __future__ import annotations

import sys
from unittest.mock import MagicMock

from turns import Turns


def main() -> None:
    turns = Turns()
    work = turns.work
    # FedLab's own data sets, unused here, import torchvision, which has to match PyTorch's build and may not.
    sys.modules |= {"torchvision": MagicMock(), "torchvision.transforms": MagicMock()}

    # user code begins
    import torch  # noqa: PLC0415
    from fedlab.contrib.algorithm.basic_client import SGDSerialClientTrainer  # noqa: PLC0415
    from fedlab.contrib.algorithm.basic_server import SyncServerHandler  # noqa: PLC0415
    from fedlab.core.standalone import StandalonePipeline  # noqa: PLC0415
    from fedlab.utils import Aggregators, SerializationTool  # noqa: PLC0415
    from torch.utils.data import DataLoader, TensorDataset  # noqa: PLC0415

    class Clients:
        def __init__(self):
            parts = [[torch.from_numpy(part) for part in work.client(index)] for index in range(work.clients)]
            self.sets = [TensorDataset(*part) for part in parts]

        def get_dataloader(self, index, batch_size):
            return DataLoader(self.sets[index], batch_size=batch_size, shuffle=True)

    class Trainer(SGDSerialClientTrainer):
        def train(self, model_parameters, train_loader):
            # Theirs has neither momentum nor weights, and keeps one optimiser for all clients.
            self.optimizer = torch.optim.SGD(self._model.parameters(), lr=work.lr, momentum=work.momentum)
            trained = super().train(model_parameters, train_loader)
            return [*trained, torch.tensor(len(train_loader.dataset))]

    class Server(SyncServerHandler):
        def global_update(self, buffer):
            mean = Aggregators.fedavg_aggregate([pack[0] for pack in buffer], [pack[1] for pack in buffer])
            SerializationTool.deserialize_model(self._model, mean)

    class Pipeline(StandalonePipeline):
        def evaluate(self):
            turns.boundary(lambda: work.torch_loss(self.handler.model))

    model = work.torch_model()
    trainer = Trainer(model, work.clients)
    trainer.setup_dataset(Clients())
    trainer.setup_optim(work.epochs, work.batch, work.lr)
    pipeline = Pipeline(Server(model, turns.rounds, work.cohort / work.clients), trainer)
    pipeline.evaluate()
    pipeline.main()
    # user code ends


if __name__ == "__main__":
    main()
