"""Small things that everything else may use.

Errors, text for people, checked arguments, registries, keyed randomness, limits of memory.

Imports nothing of fedquilt but itself.
"""
