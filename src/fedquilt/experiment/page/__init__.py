"""What is shown of runs: figures, the page of a report, and the server that keeps the page up to date.

May import `design`, `results` and the modules of `experiment` itself.
"""
