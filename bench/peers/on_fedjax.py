"""FedJAX's federated averaging. Variant: the back end for "for each client", jit or pmap over the cores."""

from __future__ import annotations

import os

from turns import Turns


def main() -> None:
    turns = Turns()
    work = turns.work
    if turns.variant == "pmap":
        os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={os.cpu_count()}"

    # user code begins
    import fedjax  # noqa: PLC0415
    import jax  # noqa: PLC0415
    import jax.numpy as jnp  # noqa: PLC0415
    import numpy as np  # noqa: PLC0415
    from fedjax.algorithms import fed_avg  # noqa: PLC0415
    from jax.example_libraries import stax  # noqa: PLC0415

    models = {
        "linear": [stax.Dense(work.classes)],
        "2nn": [stax.Flatten, stax.Dense(200), stax.Relu, stax.Dense(200), stax.Relu, stax.Dense(work.classes)],
        "cnn": [
            *(stax.Conv(32, (5, 5), padding="SAME"), stax.MaxPool((2, 2), (2, 2)), stax.Relu),
            *(stax.Conv(64, (5, 5), padding="SAME"), stax.MaxPool((2, 2), (2, 2)), stax.Relu),
            *(stax.Flatten, stax.Dense(512), stax.Relu, stax.Dense(work.classes)),
        ],
        "fourier": [
            stax.Dense(
                100, W_init=jax.random.normal, b_init=lambda key, shape: 6.2832 * jax.random.uniform(key, shape)
            ),
            stax.elementwise(lambda x: jnp.sqrt(2.0) * jnp.cos(x)),
            (
                lambda key, shape: (
                    (-1, work.classes),
                    jax.random.uniform(key, (100, work.classes), minval=-0.1, maxval=0.1),
                ),
                lambda weights, x, **_: x @ weights,
            ),
        ],
    }

    def scores_loss(batch, scores):
        return -jnp.take_along_axis(jax.nn.log_softmax(scores), batch["y"][:, None], axis=1)[:, 0]

    shape = (*work.shape[1:], 1) if len(work.shape) > 1 else work.shape
    init, apply = stax.serial(*models[work.model])
    model = fedjax.create_model_from_stax(
        stax_init=init, stax_apply=apply, sample_shape=(-1, *shape), train_loss=scores_loss, eval_metrics={}
    )
    clients = {}
    for index in range(work.clients):
        x, y = work.client(index)
        clients[f"{index:04d}"] = {"x": x.reshape(-1, *shape), "y": y.astype(np.int32)}
    data = fedjax.InMemoryFederatedData(clients)
    sampler = fedjax.client_samplers.UniformGetClientSampler(fd=data, num_clients=work.cohort, seed=1)
    fedjax.set_for_each_client_backend(turns.variant or None)
    algorithm = fed_avg.federated_averaging(
        fedjax.model_grad(model),
        fedjax.optimizers.sgd(work.lr, momentum=work.momentum or None),
        fedjax.optimizers.sgd(1.0),
        fedjax.ShuffleRepeatBatchHParams(batch_size=work.batch, num_epochs=work.epochs),
    )

    def loss():
        x, y = work.checked
        batch = {"x": x.reshape(-1, *shape), "y": y}
        return scores_loss(batch, model.apply_for_eval(state.params, batch)).mean()

    state = algorithm.init(model.init(jax.random.PRNGKey(0)))
    while turns.boundary(loss):
        state, _ = algorithm.apply(state, sampler.sample())
        jax.block_until_ready(state.params)
    # user code ends


if __name__ == "__main__":
    main()
