"""Files of data sets: where they lie, where they can be had, and whether they are the published ones.

May import the modules of `data` itself, such as `files`, and `base`; not `formats`.
"""
