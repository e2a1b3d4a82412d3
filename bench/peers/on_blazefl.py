"""BlazeFL's federated averaging. Variant: its pool of threads, or of processes that share memory, one per core."""

from __future__ import annotations

# user code begins
import os
import tempfile
from pathlib import Path

import torch
from blazefl.contrib import FedAvgBaseServerHandler, FedAvgProcessPoolClientTrainer, FedAvgThreadPoolClientTrainer
from blazefl.contrib.fedavg import FedAvgProcessPoolUplinkPackage
from blazefl.core import IPCMode, deserialize_model, serialize_model
from torch.utils.data import DataLoader
from torch_models import data_set, loss, vector
from turns import play


class Models:
    def __init__(self, work):
        self.work = work

    def select_model(self, model_name):
        return self.work.torch_model()


class Clients:
    def __init__(self, work):
        self.work = work

    def get_dataset(self, type_, cid):
        return data_set(self.work, cid)

    def set_dataset(self, type_, cid, dataset):
        pass

    def get_dataloader(self, type_, cid, batch_size, generator):
        data = self.get_dataset(type_, cid)
        return DataLoader(data, batch_size, shuffle=self.work.shuffled, generator=generator)


def simulate(work, turns):
    def train(model, model_parameters, train_loader, device, epochs, lr, stop_event, cid):
        # As theirs, with momentum and a loss that knows sequences.
        deserialize_model(model, model_parameters)
        optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=work.momentum)
        for _ in range(epochs):
            for data, target in train_loader:
                optimizer.zero_grad()
                loss(model(data), target).backward()
                optimizer.step()
        return FedAvgProcessPoolUplinkPackage(cid, serialize_model(model), len(train_loader.dataset))

    models, clients = Models(work), Clients(work)
    server = FedAvgBaseServerHandler(
        models, "", clients, turns.rounds, work.clients, work.cohort / work.clients, "cpu", work.batch, seed=1
    )
    local = {"epochs": work.epochs, "batch_size": work.batch, "lr": work.lr, "seed": 1, "num_parallels": os.cpu_count()}
    if turns.variant == "processes":
        FedAvgProcessPoolClientTrainer.train = staticmethod(train)
        shared = Path(tempfile.mkdtemp(dir=os.environ["PEERS_DATA"]))
        trainer = FedAvgProcessPoolClientTrainer(
            models, "", shared, shared, clients, "cpu", work.clients, ipc_mode=IPCMode.SHARED_MEMORY, **local
        )
    else:
        trainer = FedAvgThreadPoolClientTrainer(models, "", clients, "cpu", work.clients, **local)
        trainer.train = train
    while turns.boundary():
        chosen = server.sample_clients()
        trainer.local_process(server.downlink_package(), chosen)
        for package in trainer.uplink_package():
            server.load(package)
    return vector(server.model)


play(simulate)
# user code ends
