"""Dirichlet draws as logarithms, which keep what underflows where the concentration is small."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

# Below this, log(U)/(α·p) may leave the range of floating point; no draw can tell such an α from 0.
_ZERO = 1e-250


def log_dirichlet(count: int, p: Floats, alpha: float, rng: np.random.Generator) -> Floats:
    """Draw the logarithms of `count` vectors of Dir(α·p), each up to a constant; α may be 0 and infinite.

    log Gamma(a) = log Gamma(a + 1) + log(U)/a gives them. For α → 0 the terms log(U)/(α·p) decide alone.

    >>> draws = log_dirichlet(2, np.array([0.5, 0.5]), 1e-300, np.random.default_rng(0))
    >>> bool(np.isfinite(draws).all())
    True
    """
    if alpha == np.inf:
        return np.broadcast_to(np.log(p), (count, len(p)))
    race = -rng.standard_exponential((count, len(p))) / p
    if alpha < _ZERO:
        return race / _ZERO
    return np.log(rng.standard_gamma(1 + alpha * p, race.shape)) + race / alpha


def shares(log_q: Floats) -> Floats:
    """Turn logarithms, known up to a constant, into shares that sum to 1.

    >>> shares(np.array([-1e300, -2e300])).tolist()
    [1.0, 0.0]
    """
    q: Floats = np.exp(log_q - log_q.max())
    return q / float(q.sum())
