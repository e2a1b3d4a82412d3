"""Published files of data sets: where they lie, where they can be had, and whether they are the published ones.

May import `data.formats` and `base`.
"""
