"""What data sets are made of; the data sets themselves are in `fedquilt.datasets`.

The types (`data.py`), `sets/` (one file per data set), `formats/` (one file per format) and `fetch/` (published files:
where they are looked for, fetched from and checked).

May import `base`.
"""

from fedquilt.base.namespace import namespace as _namespace

_namespace(__name__, defined={"fedquilt.data.data": ("Augment", "Data", "Prepare", "Split")})
