"""One file per data set, registered by name, and a few for what two of them share.

May import the rest of `data`, and `base`.
"""
