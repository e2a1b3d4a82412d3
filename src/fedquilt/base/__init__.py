"""Small things that everything else may use.

Errors, text for people, checked arguments, registries, keyed randomness, limits of memory, addresses.

Imports nothing of fedquilt but itself.
"""
