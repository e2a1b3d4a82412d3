"""What can be said of runs and populations: learning curves, skew, conflicts, excess risk, divergence, advice.

May import everything but `experiment` and `cli`.
"""
