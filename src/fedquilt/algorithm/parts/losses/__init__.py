"""Losses for an algorithm's `loss` part: one file each, registered by name."""
