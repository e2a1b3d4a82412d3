"""Runs the trials of an experiment: several at once, each in a process of its own, and resumable at any moment.

May import `design`, `results` and the modules of `experiment` itself.
"""
