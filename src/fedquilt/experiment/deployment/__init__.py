"""Real federations from a folder: what `fedquilt deploy` writes, starts and runs, on Flower's own commands."""
