# Written by tools/stubs.py: do not edit.

from fedquilt import algorithm as algorithm
from fedquilt import datasets as datasets
from fedquilt import engines as engines
from fedquilt import methods as methods
from fedquilt import models as models
from fedquilt import partition as partition
from fedquilt import simulate as simulate
from fedquilt.analysis.curves import History, rounds_to
from fedquilt.base.errors import FedquiltError
from fedquilt.data.data import Data, Split
from fedquilt.data.sets.arrays import arrays
from fedquilt.data.sets.cifar10 import cifar10
from fedquilt.data.sets.cifar100 import cifar100
from fedquilt.data.sets.digits import digits
from fedquilt.data.sets.fashion_mnist import fashion_mnist
from fedquilt.data.sets.femnist import femnist
from fedquilt.data.sets.hugging_face import hugging_face
from fedquilt.data.sets.image_folder import image_folder
from fedquilt.data.sets.inaturalist import inaturalist
from fedquilt.data.sets.landmarks import landmarks
from fedquilt.data.sets.leaf import leaf
from fedquilt.data.sets.libsvm import libsvm
from fedquilt.data.sets.mnist import mnist
from fedquilt.data.sets.mnist_5k import mnist_5k
from fedquilt.data.sets.posts import posts
from fedquilt.data.sets.shakespeare import shakespeare
from fedquilt.data.sets.stack_overflow import stack_overflow
from fedquilt.data.sets.synthetic import synthetic
from fedquilt.data.sets.table import table
from fedquilt.engines.default import auto
from fedquilt.engines.flower.engine import flower
from fedquilt.engines.inline import inline
from fedquilt.engines.processes import processes, vectorised
from fedquilt.engines.ray import ray
from fedquilt.experiment.design.experiment import Experiment, experiment
from fedquilt.experiment.evaluate import evaluate
from fedquilt.experiment.export import export
from fedquilt.experiment.imports import no_import
from fedquilt.experiment.population import Inspection, inspect_partition
from fedquilt.experiment.report import report
from fedquilt.experiment.result import Result
from fedquilt.experiment.run import Run, resume, run
from fedquilt.experiment.spec import load_spec
from fedquilt.experiment.summary import summary
from fedquilt.experiment.sweeping.sweep import SweepResult, sweep
from fedquilt.experiment.training import train
from fedquilt.experiment.watching import AboutRun, Watcher
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
from fedquilt.models.weights import load_weights
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
from fedquilt.simulate.availability import availability
from fedquilt.simulate.corrupt import corrupt
from fedquilt.simulate.dropout import dropout
from fedquilt.simulate.simulation import Simulation
from fedquilt.simulate.stragglers import stragglers

__version__: str

__all__ = [
    "AboutRun",
    "Data",
    "Experiment",
    "FedquiltError",
    "History",
    "Inspection",
    "Partition",
    "Result",
    "Run",
    "Simulation",
    "Split",
    "SweepResult",
    "Watcher",
    "arrays",
    "auto",
    "availability",
    "centralised",
    "cifar10",
    "cifar100",
    "class_blocks",
    "corrupt",
    "digits",
    "dirichlet",
    "dirichlet_per_class",
    "ditto",
    "dropout",
    "evaluate",
    "experiment",
    "export",
    "fashion_mnist",
    "feature_skew",
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
    "femnist",
    "fine_tuned",
    "fl_hc",
    "flower",
    "geo",
    "geometric_median",
    "gradient_noise",
    "hugging_face",
    "iid",
    "image_folder",
    "inaturalist",
    "inline",
    "inspect_partition",
    "krum",
    "landmarks",
    "leaf",
    "libsvm",
    "load_spec",
    "load_weights",
    "local_only",
    "median",
    "mnist",
    "mnist_5k",
    "natural",
    "no_import",
    "norm_bound",
    "one_shot",
    "own_test",
    "posts",
    "power_law",
    "processes",
    "projected",
    "quantity_skew",
    "ray",
    "report",
    "resume",
    "rounds_to",
    "run",
    "scaffold",
    "server_training",
    "shakespeare",
    "shards",
    "sign_agreement",
    "stack_overflow",
    "stored",
    "stragglers",
    "stratified",
    "summary",
    "sweep",
    "synthetic",
    "table",
    "train",
    "trimmed_mean",
    "vectorised",
]
