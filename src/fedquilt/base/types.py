"""Types that many modules share."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int64]
"""Positions in an array: of examples in a data set, or of clients in a population."""

Floats = npt.NDArray[np.float64]
"""Numbers in double precision."""
