"""A site's side: reads a message, does what it asks for on the site's own examples, and answers.

Nothing leaves a site but what is written here: the answer to a hello, first uploads, and replies to tasks. Whatever is
raised is caught: the server is told in a few words of ours what failed, and the site's own log has the details. Texts of
exceptions may quote data or name files, and stay where they are.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

from fedquilt.algorithm.updates import ClientUpdate, Fault
from fedquilt.base.errors import FedquiltError
from fedquilt.compute.interrupts import noting_signals
from fedquilt.compute.pinned import pinned
from fedquilt.compute.tensors import to_bytes as tensor_bytes
from fedquilt.engines.encoding import ProtocolError, decode_model, decode_task, encode_reply, read
from fedquilt.engines.flower.client_state import MissingError, Shelf, pick_up, put_down
from fedquilt.engines.flower.wire import Sent
from fedquilt.engines.perform import perform
from fedquilt.engines.tasks import Reply, TaskResult
from fedquilt.round.agreement import Agreement
from fedquilt.round.hosting import SpoiledError
from fedquilt.round.site import Site

log = logging.getLogger("fedquilt.site")

Kind = Literal["hello", "first", "task"]
"""What a message is: a hello, a request for first uploads, or a task of a round."""

HelloTable = Mapping[str, Any]
"""What a site says of itself: see `greeting.py`."""


class RefusalError(FedquiltError):
    """A site does not do what it was asked for; the server is told why, in these words."""


@dataclass(frozen=True, eq=False)
class Host:
    """What a site brings: what it says of itself, its view of a run, and whether it shares its class counts.

    `hello` is given the server's settings. `site` makes the view from what the server has found out about the run. What
    clients keep from round to round lies on the `shelf`.
    """

    hello: Callable[[Mapping[str, Any]], HelloTable]
    site: Callable[[Agreement], Site]
    shelf: Shelf
    shares_class_counts: bool = False


def answer(host: Host, kind: Kind, sent: Sent) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Do what a message asks for; return what is said, and its parts as bytes. Nothing is raised."""
    token = {"token": sent.said.get("token")}
    try:
        with pinned(), noting_signals():
            said, parts = _DO[kind](host, sent)
        return token | said, parts
    except RefusalError as error:
        log.warning("refused: %s", error)
        return token | {"failed": str(error)}, {}
    except ProtocolError as error:
        log.error("the server's message cannot be read: %s", error)
        return token | {"failed": f"could not read the server's message: {error}"}, {}
    except BaseException as error:
        log.exception("failed")
        if isinstance(error, KeyboardInterrupt):
            raise
        return token | {"failed": f"failed ({type(error).__name__}); the site's log says why"}, {}


def _hello(host: Host, sent: Sent) -> tuple[dict[str, Any], dict[str, bytes]]:
    settings = sent.said.get("settings")
    return {"hello": dict(host.hello(settings if isinstance(settings, dict) else {}))}, {}


def _first(host: Host, sent: Sent) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Upload what the first broadcast is made from; class counts only if the site agrees to that."""
    counts_asked = bool(sent.said.get("class_counts"))
    if counts_asked and not host.shares_class_counts:
        raise RefusalError(
            "does not share how many examples of each class it has: it would have to be started with "
            '--share-class-counts; or give fed_ir a target, as a list or "uniform"'
        )
    site = host.site(_agreement(sent))
    uploads = site.first_uploads()
    counts = {str(client): each.tolist() for client, each in site.class_counts().items()} if counts_asked else {}
    nested: Any = {str(client): {name: dict(table) for name, table in each.items()} for client, each in uploads.items()}
    return {"class_counts": counts}, {"uploads": tensor_bytes(nested)} if nested else {}


def _task(host: Host, sent: Sent) -> tuple[dict[str, Any], dict[str, bytes]]:
    task = decode_task(sent.said.get("task"), sent.parts.get("client_states", b""))
    try:
        task = replace(task, client_states=[pick_up(each, host.shelf) for each in task.client_states])
    except MissingError as error:
        raise RefusalError(str(error)) from None
    site = host.site(_agreement(sent))
    state = decode_model(sent.parts.get("model", b""), task.round, site.layout)
    try:
        reply = perform(site, None, task, state)
    except SpoiledError:  # every message has a process of its own: nobody else is hurt
        raise RefusalError("its code changed settings of the process for good") from None
    said, tensors = encode_reply(_discreet(reply, host.shelf))
    return {"reply": read(said)}, {"tensors": tensors} if tensors else {}


_DO: dict[Kind, Callable[[Host, Sent], tuple[dict[str, Any], dict[str, bytes]]]] = {
    "hello": _hello,
    "first": _first,
    "task": _task,
}


def _agreement(sent: Sent) -> Agreement:
    said = sent.said.get("agreement")
    whole, flags = ("clients", "largest"), ("channels_last", "two_examples")
    if not isinstance(said, dict) or said.keys() != {*whole, *flags}:
        raise ProtocolError("it does not say what was agreed on")
    if not all(type(said[key]) is int and 0 <= said[key] < 2**53 for key in whole):
        raise ProtocolError("it does not say what was agreed on")
    if not all(type(said[key]) is bool for key in flags):
        raise ProtocolError("it does not say what was agreed on")
    return Agreement(**said)


def _discreet(reply: Reply, shelf: Shelf) -> Reply:
    """Return a reply without what stays here: what clients keep, and texts of exceptions, which go into the site's log."""
    results = [_without_private(result, shelf) for result in reply.results]
    if reply.error is not None:
        log.error("the test failed: %s", reply.error)
    return Reply(results, None if reply.error is None else "the test failed at the site, whose log says why")


def _without_private(result: TaskResult, shelf: Shelf) -> TaskResult:
    if isinstance(result, ClientUpdate):
        return replace(result, client_state=put_down(result.client_state, shelf))
    if not isinstance(result, Fault):
        return result
    log.error("client %d was left out of the round: %s", result.client, result.reason)
    if result.kind == "error":
        return Fault(result.client, result.slot, "failed at the site, whose log says why", kind="error")
    return Fault(result.client, result.slot, result.reason.partition(":")[0], kind=result.kind)


def versions() -> dict[str, str]:
    """Return what decides the last bits of a result at a site.

    >>> sorted(versions())
    ['fedquilt', 'instruction_set', 'machine', 'python', 'torch']
    """
    import platform

    import fedquilt

    return {
        "fedquilt": fedquilt.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "machine": platform.machine(),
        "instruction_set": torch.backends.cpu.get_cpu_capability(),
    }


def plain(value: object) -> Any:
    """Return a value as JSON would give it back, so that both sides compare the same."""
    return json.loads(json.dumps(value, default=str))
