"""FedJAX's federated averaging. Variant: the back end for "for each client", jit or pmap over the cores."""

from __future__ import annotations

# user code begins
import fedjax
import jax
import jax_models
import numpy as np
from fedjax.algorithms import fed_avg
from turns import play


def simulate(work, turns):
    if work.photos:
        raise SystemExit("its clients are arrays in memory: nothing decodes files while a client trains")

    def apply(params, batch, rng=None):
        return jax_models.MODELS[work.model](params, batch["x"])

    model = fedjax.Model(lambda rng: jax_models.parameters(work), apply, apply, jax_models.loss, {})
    clients = {}
    for index in range(work.clients):
        x, y = work.client(index)
        clients[f"{index:05d}"] = {"x": x if x.dtype == np.float32 else x.astype(np.int32), "y": y.astype(np.int32)}
    data = fedjax.InMemoryFederatedData(clients)
    sampler = fedjax.client_samplers.UniformGetClientSampler(fd=data, num_clients=work.cohort, seed=1)
    fedjax.set_for_each_client_backend(turns.variant)
    algorithm = fed_avg.federated_averaging(
        fedjax.model_grad(model),
        fedjax.optimizers.sgd(work.lr, momentum=work.momentum or None),
        fedjax.optimizers.sgd(1.0),
        fedjax.ShuffleRepeatBatchHParams(work.batch, num_epochs=work.epochs, skip_shuffle=not work.shuffled),
    )
    state = algorithm.init(model.init(jax.random.PRNGKey(0)))
    while turns.boundary():
        state, _ = algorithm.apply(state, sampler.sample())
        jax.block_until_ready(state.params)
    return jax_models.vector(state.params)


play(simulate)
# user code ends
