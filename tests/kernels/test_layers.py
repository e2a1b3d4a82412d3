"""Which models have kernels, and what happens where they cannot be compiled."""

import subprocess
import sys

import pytest
from torch import nn

from fedquilt.kernels.layers import kernels_of
from fedquilt.models import mnist_2nn, mnist_cnn
from fedquilt.models.peephole_lstm import PeepholeLSTM


@pytest.mark.parametrize(
    ("module", "kernels"),
    [
        (nn.LSTM(2, 3, 2), ("lstm",)),
        (nn.LSTM(2, 3, 2, dropout=0.5), ()),
        (nn.LSTM(2, 3, proj_size=2), ()),
        (nn.GRU(2, 3), ()),
        (nn.Sequential(nn.LSTM(2, 3), nn.GRU(2, 3)), ()),
        (PeepholeLSTM(2, 3), ("lstm",)),
        (mnist_cnn(), ("max_pool",)),
        (nn.MaxPool2d(2, padding=1), ()),
        (nn.MaxPool2d(2, return_indices=True), ()),
        (nn.Sequential(nn.MaxPool2d(2), nn.LSTM(2, 3)), ("lstm", "max_pool")),
        (mnist_2nn(), ()),
    ],
)
def test_which_models_have_kernels(module, kernels):
    assert kernels_of(module) == kernels


def test_a_missing_or_broken_compiler_is_named(tmp_path):
    """In a process of its own: what was compiled once is remembered."""
    broken = tmp_path / "c++"
    broken.write_text("#!/bin/sh\ncase $1 in --version) echo broken 1;; *) echo cannot work >&2; exit 1;; esac\n")
    broken.chmod(0o755)
    code = "from fedquilt.kernels import build; print(build.trouble('lstm'))"
    for path, said in ((tmp_path, "cannot work"), (tmp_path / "nothing", "no C++ compiler was found")):
        environment = {"PATH": str(path), "HOME": str(tmp_path)}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        assert said in done.stdout
