"""What a report takes and writes, and what it says of folders that it cannot use."""

from __future__ import annotations

import csv
import io
import shutil
from pathlib import Path

import pytest
from experiment.results.strict_latex import check_latex

import fedquilt
from fedquilt.base.errors import RunError
