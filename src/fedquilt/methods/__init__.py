"""Published methods, one file each."""

from fedquilt.methods.centralised import centralised
from fedquilt.methods.fed_avg import fed_avg
from fedquilt.methods.fed_avg_m import fed_avg_m
from fedquilt.methods.fed_ir import fed_ir
from fedquilt.methods.fed_prox import fed_prox
from fedquilt.methods.fed_sgd import fed_sgd
from fedquilt.methods.fed_vc import fed_vc
from fedquilt.methods.projected import gradient_noise, projected

__all__ = [
    "centralised",
    "fed_avg",
    "fed_avg_m",
    "fed_ir",
    "fed_prox",
    "fed_sgd",
    "fed_vc",
    "gradient_noise",
    "projected",
]
