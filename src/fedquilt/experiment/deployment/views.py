"""The server's and a site's view of a run, from a spec with sites: neither has the data of the other."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedquilt.base.errors import RunError, SpecError
from fedquilt.base.text import short
from fedquilt.data.data import Data, require_sound
from fedquilt.engines.flower.client_state import require_state_at_sites
from fedquilt.engines.flower.engine import DEADLINE, FlowerEngine
from fedquilt.engines.flower.greeting import Hello, collect_first
from fedquilt.engines.flower.site import plain, versions
from fedquilt.experiment.build import Made, naming, site_data
from fedquilt.experiment.fingerprint import differences, model_fingerprint
from fedquilt.experiment.objective import require_accuracy
from fedquilt.experiment.spec import Spec
from fedquilt.round.agreement import Agreement
from fedquilt.round.apart import make_server, make_site
from fedquilt.round.evaluation import no_rows
from fedquilt.round.first_broadcast import waits_for_clients
from fedquilt.round.server import Server
from fedquilt.round.site import Site

if TYPE_CHECKING:
    from flwr.serverapp import Grid

OF_THE_SERVER = frozenset(
    {
        *("run.import_from", "run.rounds", "run.stop_at", "run.eval_every", "run.checkpoint_seconds", "run.patience"),
        *("run.stop_after_seconds", "run.keep", "run.track", "run.on_divergence", "run.client_seconds", "run.start"),
    }
)
"""Keys that decide nothing of what a site does. What `run.start` names is compared as the model's first values."""


def require_deployable(spec: Spec) -> None:
    """Refuse what needs all clients' data in one place, with the reason."""
    options = spec.options
    reasons = {
        "train_loss": options.train_loss
        and "the loss on the whole training set needs all clients' examples in one place",
        "diagnose": options.diagnose and "it compares clients' gradients on all their examples, in one place",
        "validation": (options.validation is not None or options.folds is not None)
        and "the server cannot evaluate models on what sites hold out; use its test set",
    }
    for key, reason in reasons.items():
        if reason:
            raise SpecError(f"{spec.source}: [run] {key}: is not possible with real sites: {reason}")


def server_data(spec: Spec) -> Data:
    """Load what the server has: its test set, and examples of its own, if any."""
    require_deployable(spec)
    data = site_data(spec, None)
    with naming(spec, "data"):
        require_sound(data, parts=("train", "test") if len(data.train) else ("test",))
    return data


def server_of(spec: Spec, data: Data, made: Made, sizes: Sequence[int]) -> Server:
    """Make the server's view of a run from how many examples its sites have."""
    assert isinstance(made.engine, FlowerEngine)
    with naming(spec, "method"):
        require_state_at_sites(made.algorithm)
    with naming(spec, "model"):
        server = make_server(
            made.module,
            data,
            sizes,
            made.algorithm,
            spec.options.seed,
            [site.name for site in spec.sites],
            metrics=made.metrics,
            simulation=made.engine.simulation,
            client_seconds=spec.options.client_seconds or DEADLINE,
        )
    with naming(spec, "run"):
        require_accuracy(spec.options, server)
    return server


def first_broadcast_made(grid: Grid, spec: Spec, server: Server, seconds: float, poll: float) -> Server:
    """Return the server once it has what its first broadcast is made from."""
    if not waits_for_clients(server.algorithm):
        return server
    classes = any(exchange.needs_classes for exchange in server.algorithm.exchanges)
    return collect_first(grid, spec.sites, server, classes, seconds, poll)


def own_hello(spec: Spec, made: Made, data: Data, name: str, examples: int, differs: str | None = None) -> Hello:
    """Return what a site, or the server, says of itself."""
    frozen = hashlib.sha256()
    for key, parameter in made.module.named_parameters():
        if not parameter.requires_grad:
            frozen.update(key.encode() + parameter.detach().numpy().tobytes())
    same = model_fingerprint(spec.options.seed, made.algorithm, made.module, made.metrics)
    return Hello(name, examples, data.classes, same, frozen.hexdigest(), versions(), differs)


def settings_of(spec: Spec) -> dict[str, Any]:
    """Return what of a spec server and sites must have alike: not where data come from, nor how the server is run.

    Of the roster that is names and their order: a site may get a new key in the middle of a run.
    """
    tables: dict[str, Any] = plain(spec.resolved())
    tables["site"] = [{"name": site.name} for site in spec.sites]
    return {name: table for name, table in tables.items() if name not in ("data", "engine")}


def with_present_keys(begun: Spec, now: Spec, where: Path) -> Spec:
    """Return the spec of a run that goes on, with the keys that sites have now; one that was changed is refused."""
    for key, mine, before in differences(settings_of(now), settings_of(begun), OF_THE_SERVER):
        raise RunError(
            f"{now.source}: {key} is {short(mine)}, and was {short(before)} when {where} was begun: change it back, or "
            "begin another run with --run NAME"
        )
    return replace(begun, sites=now.sites)


def difference(here: Mapping[str, Any], there: Mapping[str, Any]) -> str | None:
    """Say in words what differs between a site's settings and the server's."""
    for where, mine, theirs in differences(here, there, OF_THE_SERVER):
        return f"{where} is {short(mine)} there, and {short(theirs)} at the server"
    return None


def site_of(spec: Spec, name: str, data: Data, made: Made, agreement: Agreement) -> Site:
    """Make a site's view of a run from its own examples; those to test on are not used."""
    client = [site.name for site in spec.sites].index(name)
    return make_site(
        made.module,
        replace(data, test=data.test.only(no_rows())),
        {client: np.arange(len(data.train))},
        made.algorithm,
        spec.options.seed,
        agreement,
        metrics=made.metrics,
    )


def as_json(hello: Hello) -> dict[str, Any]:
    """Return a hello as it is sent."""
    found: dict[str, Any] = json.loads(json.dumps(asdict(hello)))
    return found
