"""Fashion-MNIST: 70,000 pictures of clothes of 28×28 pixels, made to take MNIST's place.

Xiao et al. 2017, "Fashion-MNIST: a Novel Image Dataset for Benchmarking Machine Learning Algorithms". Four idx files by
the same names as MNIST's, in a folder `fashion-mnist`, packed or unpacked; torchvision's `FashionMNIST/raw` is found as
well.
"""

from __future__ import annotations

from fedquilt.base.registry import datasets
from fedquilt.data.data import Data
from fedquilt.data.fetch.published import DownloadSource, publish
from fedquilt.data.preprocess import Pixels, pixels_as
from fedquilt.data.sets.mnist import idx_published, read_idx_data

FILES = publish(
    idx_published(
        "fashion_mnist",
        about="Clothes, 28×28 (Xiao 2017).",
        licence="MIT",
        digests=(
            "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        ),
        folders=("fashion-mnist", "FashionMNIST/raw"),
        sources=(
            DownloadSource("files", "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/", ending=".gz"),
            DownloadSource(
                "files",
                "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
                ending=".gz",
            ),
            DownloadSource("debian", "dataset-fashion-mnist", size=2**26),
        ),
    )
)


@datasets.register
def fashion_mnist(preprocess: Pixels = "none", check: bool = True) -> Data:
    """Fashion-MNIST's 60,000 training and 10,000 test pictures of clothes of 28×28 pixels (Xiao 2017).

    `preprocess` is as in `mnist`: `none` (pixels scaled to [0, 1]), `centre` (to [−0.5, 0.5]) or `standardise` (less their
    mean, 0.2860, divided by their standard deviation, 0.3530).

    `check` refuses files whose digests differ from the published ones.

    >>> data = fashion_mnist()  # doctest: +SKIP
    >>> data.train.x.shape, data.test.x.dtype  # doctest: +SKIP
    (torch.Size([60000, 1, 28, 28]), torch.uint8)
    """
    return read_idx_data(FILES, pixels_as(preprocess, mean=0.2860, std=0.3530), check)
