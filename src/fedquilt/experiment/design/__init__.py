"""Experiments as files: what varies, what is tuned and repeated, and the runs that follow from it.

May import the modules of `experiment` itself, and none of the folders beside it: it reads files, and runs nothing.
"""
