"""Layers in C++ of our own, compiled at installation or on first use.

May import `base`.
"""
