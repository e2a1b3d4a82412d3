"""Real federations from a folder: what `fedquilt deploy` writes, starts and runs, on Flower's own commands.

May import the modules of `experiment` itself and what those may import; none of the folders beside it.
"""
