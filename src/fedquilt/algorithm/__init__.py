"""What a federated method is made of: the kit for people who write methods.

`Algorithm`, `Transform`, `Exchange`, `Loss`, `Penalty`, exact sums, the state of a run, and `parts/` that fill them.

May import `compute`, `partition`, `data` and `base`.
"""
