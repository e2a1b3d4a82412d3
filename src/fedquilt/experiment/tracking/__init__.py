"""Trackers: watchers that keep a run's curves in another tool. `[run] track` names them."""
