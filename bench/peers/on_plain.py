"""The plain PyTorch loop: one model, `torch.optim.SGD`, a client after the other. Variant: the number of threads."""

from __future__ import annotations

from turns import Turns


def main() -> None:
    turns = Turns()
    work = turns.work

    # user code begins
    import copy  # noqa: PLC0415

    import numpy as np  # noqa: PLC0415
    import torch  # noqa: PLC0415
    from torch.nn import functional  # noqa: PLC0415

    if turns.variant:
        torch.set_num_threads(int(turns.variant))
    rng = np.random.default_rng(1)
    clients = [tuple(torch.from_numpy(part) for part in work.client(index)) for index in range(work.clients)]
    model = work.torch_model()
    while turns.boundary(lambda: work.torch_loss(model)):
        total = {name: torch.zeros_like(value) for name, value in model.state_dict().items()}
        chosen = rng.choice(work.clients, work.cohort, replace=False)
        seen = sum(work.sizes[index] for index in chosen)
        for index in chosen:
            local = copy.deepcopy(model)
            optimiser = torch.optim.SGD(local.parameters(), lr=work.lr, momentum=work.momentum)
            x, y = clients[index]
            for _ in range(work.epochs):
                for batch in torch.randperm(len(y)).split(work.batch):
                    optimiser.zero_grad()
                    functional.cross_entropy(local(x[batch]), y[batch]).backward()
                    optimiser.step()
            for name, value in local.state_dict().items():
                total[name] += value * (len(y) / seen)
        model.load_state_dict(total)
    # user code ends


if __name__ == "__main__":
    main()
