"""The command line: `app.py`, and one file a command. Everything that it does is callable from Python.

May import everything.
"""
