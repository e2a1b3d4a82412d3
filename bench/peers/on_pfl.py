"""Apple's pfl: simulated backend in one process."""

from __future__ import annotations

from turns import Turns


def main() -> None:
    turns = Turns()
    work = turns.work

    # user code begins
    import types  # noqa: PLC0415

    import torch  # noqa: PLC0415
    from pfl.aggregate.simulate import SimulatedBackend  # noqa: PLC0415
    from pfl.aggregate.weighting import WeightByDatapoints  # noqa: PLC0415
    from pfl.algorithm.base import NNAlgorithmParams  # noqa: PLC0415
    from pfl.algorithm.federated_averaging import FederatedAveraging  # noqa: PLC0415
    from pfl.callback.base import TrainingProcessCallback  # noqa: PLC0415
    from pfl.data.dataset import Dataset  # noqa: PLC0415
    from pfl.data.federated_dataset import FederatedDataset  # noqa: PLC0415
    from pfl.data.sampling import get_user_sampler  # noqa: PLC0415
    from pfl.hyperparam.base import NNTrainHyperParams  # noqa: PLC0415
    from pfl.metrics import Metrics  # noqa: PLC0415
    from pfl.model.pytorch import PyTorchModel  # noqa: PLC0415
    from torch.nn import functional  # noqa: PLC0415

    clients = {index: [torch.from_numpy(part) for part in work.client(index)] for index in range(work.clients)}

    def user(index):
        # pfl iterates in the order given, so shuffling is the user's.
        order = torch.randperm(len(clients[index][1]))
        return Dataset([part[order] for part in clients[index]], user_id=str(index))

    def loss(self, x, y):
        return functional.cross_entropy(self(x), y)

    class Boundary(TrainingProcessCallback):
        def on_train_begin(self, *, model):
            turns.boundary(None)
            return Metrics()

        def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
            return not turns.boundary(lambda: work.torch_loss(model.pytorch_model)), Metrics()

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
        NNAlgorithmParams(
            turns.rounds + 1, evaluation_frequency=10**6, train_cohort_size=work.cohort, val_cohort_size=0
        ),
        SimulatedBackend(users, users, postprocessors=[WeightByDatapoints()]),
        model,
        NNTrainHyperParams(local_batch_size=work.batch, local_num_epochs=work.epochs, local_learning_rate=work.lr),
        callbacks=[Boundary()],
    )
    # user code ends


if __name__ == "__main__":
    main()
