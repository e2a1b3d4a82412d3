"""Whatever stands in an experiment's tables, it is read or refused with a message, and nothing else."""

from __future__ import annotations

from typing import Any

from experiment.design.test_design import DIGITS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fedquilt
from fedquilt.base.errors import FedquiltError
from fedquilt.experiment.tables import EXPERIMENT_TABLES

WORDS = [
    "method", "run", "wrap", "values", "method.lr", "wrap.1.mu", "run.seed", "lr", "name", "case", "tune", "skip", "keep",
    "by", "folds", "test", "validation", "a", "A", "small", "rounds_to", "target", "baseline", "relative_to", "across",
    "first", "second", "cell", "along", "interpolation", "features", "source", "value", "unit", "%", "fed_avg", "rows",
    "columns", "metric", "title", "grid", "1 + 1", "10^(a)", "method.batch", "batch", "0.1", "", "metric.a", "\n", "∞",
]  # fmt: skip
numbers = st.sampled_from([0, 1, 2, -1, 0.1, 0.5, float("inf"), float("nan"), 2**62, True, False])
words = st.sampled_from(WORDS)
junk = st.recursive(
    words | numbers,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)
sensible = {
    "grid": st.dictionaries(words, st.lists(junk, max_size=3), max_size=2),
    "tune": st.fixed_dictionaries({"by": words}, optional={"method.lr": st.lists(junk, max_size=3), "folds": junk}),
    "repeat": st.dictionaries(words, st.lists(junk, max_size=2), max_size=2),
    "case": st.dictionaries(
        words, st.dictionaries(words, st.dictionaries(words, junk, max_size=2), max_size=2), max_size=2
    ),
    "when": st.lists(
        st.fixed_dictionaries({"case": st.dictionaries(words, junk, max_size=2)}, optional={"skip": junk})
    ),
    "scale": st.dictionaries(st.just("small"), st.dictionaries(words, junk, max_size=3)),
    "derive": st.dictionaries(words, words | junk, max_size=2),
    "values": st.dictionaries(words, junk, max_size=2),
    "published": st.lists(st.dictionaries(words, junk, max_size=4), max_size=2),
    "metric": st.lists(st.dictionaries(words, junk, max_size=4), max_size=2),
    "figure": st.lists(st.dictionaries(words, junk, max_size=4), max_size=2),
}
tables = st.fixed_dictionaries(
    {}, optional={name: sensible.get(name, junk) | junk for name in (*EXPERIMENT_TABLES, "method", "wrap", "origin")}
)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(content=tables, scale=st.sampled_from([None, None, "small"]), grid=st.booleans())
def test_junk_is_refused_with_a_message(content: dict[str, Any], scale: str | None, grid: bool) -> None:
    given_tables = DIGITS | ({"grid": {"method.lr": [0.1, 0.2]}} if grid else {}) | content
    message = ""
    try:
        fedquilt.experiment(given_tables, scale=scale).to_toml()
    except FedquiltError as error:
        message = str(error) or "nothing is said" * 200
    assert len(message) < 2000
