"""The command line: one file per command; `app.py` finds them. Everything that it does is callable from Python.

May import everything.
"""
