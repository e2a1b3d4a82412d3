"""The `[run]` table of a spec: how long to train, what to measure, when to stop, what to keep."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from fedquilt.base.arguments import Count, NonNegative, Positive, Seed


@dataclass(frozen=True)
class Options:
    """The `[run]` table.

    - `rounds`: rounds to run; `seed`: of everything but the population, which has its own.
    - `eval_every`: rounds between evaluations; the last round is always evaluated.
    - `train_loss`: also measure the loss on the whole training set.
    - `diagnose`: also measure why clients disagree: conflicts, divergence, the terms of the excess-risk bound.
    - `validation`: hold out this share of every client's training examples, and measure accuracy and loss there too;
      `folds`, `fold`: hold out one of so many parts instead, for cross-validation.
    - `stop_at`: stop once test accuracy reaches this.
    - `patience`: stop once the model has not improved for so many rounds; `stop_after_seconds`: once that long has passed.
    - `keep`: keep the "last" model, or the "best" one beside it: by validation accuracy if there is a validation split,
      else by test accuracy.
    - `checkpoint_seconds`: save at the end of a round if this long has passed; what a crash can cost.
    - `client_seconds`: how long a client may take, by the clock, before it is left out of the round; unset, for ever.
    - `on_divergence`: what to do once the run has diverged: "stop", or "go_on" to the last round.
    - `track`: tools that keep the run's curves too, by name or import path.
    - `import_from`: a folder to import the user's own functions from.
    - `loss`: what is minimised; unset, the method's own. `metrics`: what is measured besides it; unset, accuracy where
      there are classes.
    - `start`: a safetensors file with the model's first values; those of `start_skip` are drawn all the same.
    - `trainable`: train only so many of the last layers, or the parts that are named; the rest is frozen and not sent.
    """

    rounds: Count
    seed: Seed = 0
    eval_every: Count = 1
    train_loss: bool = False
    diagnose: bool = False
    stop_at: Annotated[float, Field(gt=0, le=1)] | None = None
    validation: Annotated[float, Field(gt=0, lt=1)] | None = None
    folds: Annotated[int, Field(ge=2)] | None = None
    fold: Annotated[int, Field(ge=0)] | None = None
    patience: Count | None = None
    stop_after_seconds: Positive | None = None
    keep: Literal["last", "best"] = "last"
    checkpoint_seconds: NonNegative = 10.0
    client_seconds: Positive | None = None
    on_divergence: Literal["stop", "go_on"] = "stop"
    track: list[str] | None = None
    import_from: str | None = None
    loss: str | None = None
    metrics: list[str] | None = None
    start: str | None = None
    start_skip: list[str] | None = None
    trainable: Count | Annotated[list[str], Field(min_length=1)] | None = None
