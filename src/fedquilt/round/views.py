"""A view of a run, the server's, a site's or the whole federation, with its model elsewhere or computed in another way."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from fedquilt.compute.device import Placement
from fedquilt.round.federation import Federation
from fedquilt.round.rehearsal import Rehearsal
from fedquilt.round.server import Server
from fedquilt.round.site import Site

View = TypeVar("View", Federation, Server, Site)


def placed(view: View, placement: Placement) -> View:
    """Return the view with its model elsewhere, or itself if it is there already."""
    replica = view.replica.placed(placement)
    return view if replica is view.replica else replace(view, replica=replica)


def apart(view: View) -> View:
    """Return the view with a model that no other process works on."""
    return replace(view, replica=view.replica.apart())


def with_kernels(view: View) -> View:
    """Return the view with a model whose layers are computed by kernels."""
    changed = replace(view, replica=view.replica.with_kernels(channels_last=True))
    if Rehearsal.of(changed).runs():
        return changed
    return replace(view, replica=view.replica.with_kernels(channels_last=False))
