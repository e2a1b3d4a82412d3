"""Experiments as files: what varies, what is tuned and repeated, and the runs that follow from it."""
