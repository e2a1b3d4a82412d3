"""Layers in C++ of our own, compiled on demand.

May import `base`.
"""
