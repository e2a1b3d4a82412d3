# Written by tools/stubs.py: do not edit.

from fedquilt.partition.class_blocks import class_blocks
from fedquilt.partition.dirichlet import dirichlet
from fedquilt.partition.dirichlet_per_class import dirichlet_per_class
from fedquilt.partition.feature_skew import feature_skew
from fedquilt.partition.geo import geo
from fedquilt.partition.iid import iid
from fedquilt.partition.natural import natural
from fedquilt.partition.partition import Partition
from fedquilt.partition.power_law import power_law
from fedquilt.partition.quantity_skew import quantity_skew
from fedquilt.partition.shards import shards
from fedquilt.partition.stored import stored
from fedquilt.partition.stratified import stratified

__all__ = [
    "Partition",
    "class_blocks",
    "dirichlet",
    "dirichlet_per_class",
    "feature_skew",
    "geo",
    "iid",
    "natural",
    "power_law",
    "quantity_skew",
    "shards",
    "stored",
    "stratified",
]
