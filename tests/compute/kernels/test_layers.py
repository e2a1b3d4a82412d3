"""Which models have kernels, and what happens where they cannot be compiled."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

import fedquilt
from fedquilt.base import registry
from fedquilt.compute.kernels import build
from fedquilt.compute.kernels.layers import kernels_of
from fedquilt.models import mnist_2nn, mnist_cnn, mobilenet_v2, resnet20_fixup
from fedquilt.models.lstm import PeepholeLSTM


@pytest.mark.parametrize(
    ("module", "kernels"),
    [
        (nn.LSTM(2, 3, 2), ("lstm",)),
        (nn.LSTM(2, 3, 2, dropout=0.5), ()),
        (nn.LSTM(2, 3, proj_size=2), ()),
        (nn.GRU(2, 3), ()),
        (nn.Sequential(nn.LSTM(2, 3), nn.GRU(2, 3)), ()),
        (PeepholeLSTM(2, 3), ("lstm",)),
        (mnist_cnn(), ("convolution", "max_pool")),
        (resnet20_fixup(), ("convolution", "rectified")),
        (nn.MaxPool2d(2, padding=1), ()),
        (nn.MaxPool2d(2, return_indices=True), ()),
        (nn.Sequential(nn.MaxPool2d(2), nn.LSTM(2, 3)), ("lstm", "max_pool")),
        (mobilenet_v2(classes=2, width=0.35), ("group_norm",)),
        (mnist_2nn(), ()),
    ],
)
def test_which_models_have_kernels(module, kernels):
    assert kernels_of(module) == kernels


NONE_INSTALLED = "build._installed = lambda name: []"


def test_a_missing_or_broken_compiler_is_named(tmp_path):
    """In a process of its own: what was compiled once is remembered."""
    broken = tmp_path / "c++"
    broken.write_text("#!/bin/sh\ncase $1 in --version) echo broken 1;; *) echo cannot work >&2; exit 1;; esac\n")
    broken.chmod(0o755)
    code = f"from fedquilt.compute.kernels import build; {NONE_INSTALLED}; print(build.trouble('lstm'))"
    for path, said in ((tmp_path, "cannot work"), (tmp_path / "nothing", "no C++ compiler was found")):
        environment = {"PATH": str(path), "HOME": str(tmp_path)}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        assert said in done.stdout


class Both(nn.Module):
    """Images, pooled, and their rows read one after the other: with every kernel there is."""

    classifier_layer = "judge"

    def __init__(self):
        super().__init__()
        self.see, self.pool = nn.Conv2d(1, 3, 3, padding=1), nn.MaxPool2d(2)
        self.read, self.judge = nn.LSTM(6, 5, batch_first=True), nn.Linear(5, 3)

    def forward(self, x):
        seen = self.pool(torch.tanh(self.see(x.reshape(len(x), 1, 4, 4))))
        states, _ = self.read(seen.permute(0, 2, 1, 3).reshape(len(x), 2, 6))
        return self.judge(states[:, -1])


@pytest.mark.skipif(build.trouble("lstm", "max_pool") is not None, reason="no kernels here")
@pytest.mark.filterwarnings("ignore:the run has .* rounds?, but its method has no effect:RuntimeWarning")
@pytest.mark.parametrize("name", [*registry.methods, *registry.wrappers])
def test_every_method_agrees_with_the_reference(name):
    """After two rounds, or one where ranks decide."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 16)).astype("float32"), np.arange(60) % 3
    data = fedquilt.arrays(x[:48], y[:48], x[48:], y[48:])
    who = fedquilt.Partition.of(np.array_split(np.arange(48), 6))
    base = fedquilt.fed_avg(lr=0.1, fraction=1.0, batch=4)
    method = registry.methods[name]() if name in registry.methods else registry.wrappers[name](base)
    ranks = {"krum", "median", "trimmed_mean", "fl_hc", "sign_agreement", "geometric_median"}

    def go(compute):
        torch.manual_seed(0)
        return fedquilt.train(Both(), data, who, method, 1 if name in ranks else 2, engine=fedquilt.inline(compute))

    plain, ours = go("eager"), go("compiled")
    for one, other in zip(plain.run.groups, ours.run.groups, strict=True):
        assert (one.state.model.vector - other.state.model.vector).abs().max() < 1e-5
    assert plain.history.records[-1]["dropped"] == ours.history.records[-1]["dropped"]


def test_a_damaged_library_is_made_again_and_a_folder_of_others_refused(tmp_path):
    code = f"from fedquilt.compute.kernels import build; {NONE_INSTALLED}; print(build.trouble('lstm'))"
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}

    def go():
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    if go() != "None":
        pytest.skip("no kernels here")
    (made,) = tmp_path.rglob("*.so")
    made.write_bytes(made.read_bytes()[:100])
    assert go() == "None"
    made.parent.chmod(0o777)
    assert "other users can write to this folder" in go()
