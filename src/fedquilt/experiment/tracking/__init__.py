"""Trackers: watchers that keep a run's curves in another tool. `[run] track` names them.

May import the modules of `experiment` itself. A tracker imports its library when it is used.
"""
