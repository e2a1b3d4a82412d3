"""What data sets are made of; the data sets themselves are in `fedquilt.datasets`.

`sets/` has one file per data set, `fetch/` finds, fetches and checks files, `formats/` reads them, one file per format.
Below them are the types (`data.py`) and what both need: which files may be opened, unpacking, digests, scales, numbering.

May import `base`; `sets` may import all of `data`, `fetch` and `formats` neither each other nor `sets`.
"""

from fedquilt.base.namespace import namespace as _namespace

_namespace(__name__, defined={"fedquilt.data.data": ("Augment", "Data", "Prepare", "Split")})
