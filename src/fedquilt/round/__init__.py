"""One round, from top to bottom: plan, client, local step, merge, evaluation, and the loop over rounds.

May import `simulate`, `algorithm`, `compute`, `partition`, `data` and `base`. It does not know which engine runs it.
"""
