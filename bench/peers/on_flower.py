"""Flower's simulation on Ray, in a network namespace.

Ray listens on every address, whatever `_node_ip_address` says (seen with `ss -ltn`, Ray 2.55.1): run.py therefore starts
this program where loopback is the only network there is, and it refuses to run elsewhere.

Variant: "1-cpu" gives a client one core, so that as many train at once as there are; "default" is Flower's own choice, two.
"""

from __future__ import annotations

import os
import socket

os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0", "RAY_DISABLE_IMPORT_WARNING": "1"}

# user code begins
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch_models import inputs, loss, vector
from turns import play


def client_app(work):
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        x, y = (torch.from_numpy(part) for part in work.client(int(context.node_config["partition-id"])))
        model = work.torch_model()
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        optimiser = torch.optim.SGD(model.parameters(), lr=work.lr, momentum=work.momentum)
        for _ in range(work.epochs):
            order = torch.randperm(len(y)) if work.shuffled else torch.arange(len(y))
            for batch in order.split(work.batch):
                optimiser.zero_grad()
                loss(model(inputs(work, x[batch])), y[batch]).backward()
                optimiser.step()
        content = {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord({"num-examples": len(y)})}
        return Message(content=RecordDict(content), reply_to=message)

    return app


def server_app(work, turns, model):
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        # The fraction is taken of the nodes that have connected so far, which in the first round need not be all.
        strategy = FedAvg(
            fraction_train=work.cohort / work.clients,
            min_train_nodes=work.cohort,
            min_available_nodes=work.clients,
            fraction_evaluate=0.0,
        )

        def evaluate(server_round: int, arrays: ArrayRecord) -> None:
            turns.boundary()

        first = ArrayRecord(model.state_dict())
        trained = strategy.start(grid, first, num_rounds=turns.rounds, evaluate_fn=evaluate)
        model.load_state_dict(trained.arrays.to_torch_state_dict())

    return app


def simulate(work, turns):
    model = work.torch_model()
    config = {"init_args": {"_node_ip_address": "127.0.0.1", "include_dashboard": False}}
    if turns.variant == "1-cpu":
        config["client_resources"] = {"num_cpus": 1, "num_gpus": 0.0}
    run_simulation(server_app(work, turns, model), client_app(work), work.clients, backend_config=config)
    return vector(model)


# user code ends
if __name__ == "__main__":
    import on_flower  # Ray's workers know what is in a module, not what is in the main program

    if [name for _, name in socket.if_nameindex()] != ["lo"]:
        raise SystemExit("needs a network namespace with loopback alone, because Ray listens on every address")
    play(on_flower.simulate)
