"""Flower's simulation on Ray, in a network namespace.

Ray listens on every address, whatever `_node_ip_address` says (seen with `ss -ltn`, Ray 2.55.1): run.py therefore starts
this program where loopback is the only network there is, and it refuses to run elsewhere.

Variant: "1-cpu" gives a client one core, so that as many train at once as there are; "default" is Flower's own choice, two.
"""

from __future__ import annotations

import os
import socket
import sys
from functools import cache
from pathlib import Path

os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0", "RAY_DISABLE_IMPORT_WARNING": "1"}
os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parent)  # Ray's workers import `work`

# user code begins
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch.nn import functional
from work import WORKLOADS


@cache
def examples(workload: str, index: int) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = WORKLOADS[workload].client(index)
    return torch.from_numpy(x), torch.from_numpy(y)


def client_app(workload: str) -> ClientApp:
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        work = WORKLOADS[workload]
        x, y = examples(workload, int(context.node_config["partition-id"]))
        model = work.torch_model()
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        optimiser = torch.optim.SGD(model.parameters(), lr=work.lr, momentum=work.momentum)
        for _ in range(work.epochs):
            for batch in torch.randperm(len(y)).split(work.batch):
                optimiser.zero_grad()
                functional.cross_entropy(model(x[batch]), y[batch]).backward()
                optimiser.step()
        content = {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord({"num-examples": len(y)})}
        return Message(content=RecordDict(content), reply_to=message)

    return app


def server_app(turns) -> ServerApp:
    work, app = turns.work, ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        model = work.torch_model()

        def boundary(server_round: int, arrays: ArrayRecord) -> None:
            model.load_state_dict(arrays.to_torch_state_dict())
            turns.boundary(lambda: work.torch_loss(model))

        strategy = FedAvg(
            fraction_train=work.cohort / work.clients, fraction_evaluate=0.0, min_available_nodes=work.clients
        )
        strategy.start(grid, ArrayRecord(model.state_dict()), num_rounds=turns.rounds, evaluate_fn=boundary)

    return app


def simulate(turns) -> None:
    config = {"init_args": {"_node_ip_address": "127.0.0.1", "include_dashboard": False}}
    if turns.variant == "1-cpu":
        config["client_resources"] = {"num_cpus": 1, "num_gpus": 0.0}
    run_simulation(server_app(turns), client_app(sys.argv[1]), turns.work.clients, backend_config=config)
    # user code ends


if __name__ == "__main__":
    import on_flower  # Ray's workers know what is in a module, not what is in the main program
    from turns import Turns

    if [name for _, name in socket.if_nameindex()] != ["lo"]:
        raise SystemExit("needs a network namespace with loopback alone, because Ray listens on every address")
    on_flower.simulate(Turns())
