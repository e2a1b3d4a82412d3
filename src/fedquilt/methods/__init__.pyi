# Written by tools/stubs.py: do not edit.

from fedquilt.methods.centralised import centralised
from fedquilt.methods.ditto import ditto
from fedquilt.methods.fed_avg import fed_avg
from fedquilt.methods.fed_avg_m import fed_avg_m
from fedquilt.methods.fed_avg_r import fed_avg_r
from fedquilt.methods.fed_dyn import fed_dyn
from fedquilt.methods.fed_ir import fed_ir
from fedquilt.methods.fed_nova import fed_nova
from fedquilt.methods.fed_opt import fed_adagrad, fed_adam, fed_yogi
from fedquilt.methods.fed_prox import fed_prox
from fedquilt.methods.fed_sgd import fed_sgd
from fedquilt.methods.fed_vc import fed_vc
from fedquilt.methods.fine_tuned import fine_tuned, own_test
from fedquilt.methods.fl_hc import fl_hc
from fedquilt.methods.geometric_median import geometric_median
from fedquilt.methods.krum import krum
from fedquilt.methods.local_only import local_only
from fedquilt.methods.median import median
from fedquilt.methods.norm_bound import norm_bound
from fedquilt.methods.one_shot import one_shot
from fedquilt.methods.projected import gradient_noise, projected
from fedquilt.methods.scaffold import scaffold
from fedquilt.methods.server_training import server_training
from fedquilt.methods.sign_agreement import sign_agreement
from fedquilt.methods.trimmed_mean import trimmed_mean

__all__ = [
    "centralised",
    "ditto",
    "fed_adagrad",
    "fed_adam",
    "fed_avg",
    "fed_avg_m",
    "fed_avg_r",
    "fed_dyn",
    "fed_ir",
    "fed_nova",
    "fed_prox",
    "fed_sgd",
    "fed_vc",
    "fed_yogi",
    "fine_tuned",
    "fl_hc",
    "geometric_median",
    "gradient_noise",
    "krum",
    "local_only",
    "median",
    "norm_bound",
    "one_shot",
    "own_test",
    "projected",
    "scaffold",
    "server_training",
    "sign_agreement",
    "trimmed_mean",
]
