"""Partitions: who holds which example. One file a partitioner, registered by name."""

from fedquilt.partition.dirichlet import dirichlet
from fedquilt.partition.geo import geo
from fedquilt.partition.iid import iid
from fedquilt.partition.partition import Partition
from fedquilt.partition.shards import shards

__all__ = ["Partition", "dirichlet", "geo", "iid", "shards"]
