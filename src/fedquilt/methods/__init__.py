"""Published methods, one file each."""

from fedquilt.methods.centralised import centralised
from fedquilt.methods.fed_avg import fed_avg
from fedquilt.methods.fed_avg_m import fed_avg_m
from fedquilt.methods.fed_sgd import fed_sgd

__all__ = ["centralised", "fed_avg", "fed_avg_m", "fed_sgd"]
