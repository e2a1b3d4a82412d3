"""How many trials run at once, and with how many workers each.

Measured with a small model (`python bench/sweep.py`, docs/fast.md): two trials with one worker each are done sooner than
the same two one after the other with two workers each, since no core waits for the server, or for the slowest of a round's
clients. Where clients train for long, nothing is gained or lost by it. So it is one trial per core; where there are fewer
trials than cores, they share the cores.

The one worker of a trial is the trial's own process, as in the engine `inline`: with small models, handing clients to
another process takes a fifth of the time. What ends that process, such as a client's code that crashes, ends the trial;
a separate worker process then continues it, finds the client and leaves it out, as in a run alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fedquilt.base.cores import cores
from fedquilt.base.errors import SpecError
from fedquilt.base.registry import engines
from fedquilt.experiment.spec import Spec, SpecTable
from fedquilt.experiment.tables import DEFAULT_ENGINE


@dataclass(frozen=True)
class Jobs:
    """`number` trials at once, each with so many `workers` where its spec does not say how many."""

    number: int
    workers: int

    def fitted(self, spec: Spec, apart: bool) -> Spec:
        """Return a trial's spec with its number of workers, which changes nothing of its result.

        Clients are trained `apart` from the trial's own process, or there, if it has one worker and no clock to keep.
        """
        part = spec.parts["engine"]
        if part.arguments.get("workers", 1) is not None:  # the spec says it, or the engine has none
            return spec
        engine = replace(part, arguments=part.arguments | {"workers": self.workers})
        here = self.workers == 1 and not apart and spec.options.client_seconds is None
        if here and part.name == DEFAULT_ENGINE:
            engine = replace(engine, arguments=engine.arguments | {"inline": True})
        if here and part.name == "processes":
            kept = {key: part.arguments[key] for key in ("compute", "precision", "device")}
            engine = SpecTable("inline", engines["inline"], kept)
        return replace(spec, parts=spec.parts | {"engine": engine})


def jobs_for(specs: Sequence[Spec], asked: int | None = None) -> Jobs:
    """Decide how many of these trials run at once: as many as asked for, or one per core.

    Trials whose spec has more `workers` take so many cores each, and of trials on another device than the CPU, one runs
    at a time, since they would share its memory.

    >>> jobs_for([], asked=0)
    Traceback (most recent call last):
    fedquilt.base.errors.SpecError: --jobs 0: must be 1 or more
    """
    if asked is not None and asked < 1:
        raise SpecError(f"--jobs {asked}: must be 1 or more")
    asks = [spec.parts["engine"].arguments for spec in specs]
    each = max((engine.get("workers") or 1 for engine in asks), default=1)
    on_device = any(engine.get("device", "cpu") != "cpu" for engine in asks)
    usual = 1 if on_device else max(cores() // each, 1)
    number = min(asked or usual, max(len(specs), 1))
    return Jobs(number, max(cores() // number, 1))
