"""One file per data set, registered by name.

May import the rest of `data`, and `base`.
"""
