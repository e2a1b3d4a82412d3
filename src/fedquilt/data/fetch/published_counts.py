"""How many clients and examples are published of data sets whose clients are given.

- Shakespeare: McMahan et al. 2017, "Communication-Efficient Learning of Deep Networks from Decentralized Data", section 3.
- Federated EMNIST and Stack Overflow: TensorFlow Federated's documentation of its simulation.datasets.
- iNaturalist and Landmarks: Hsu, Qi and Brown 2020, "Federated Visual Classification with Real-World Data Distribution",
  section 4; iNaturalist's test images are those of the authors' split files. gld23k: TensorFlow Federated's documentation,
  which counts no test images.
"""

from __future__ import annotations

from dataclasses import dataclass

TFF, HSU = "TensorFlow Federated", "Hsu 2020"


@dataclass(frozen=True)
class Counts:
    """How many there are of each, where it is published; `of` is what is counted as an example.

    `source` says by whom, `when` for which arguments; by default for those of a bare name. Clients are those of the
    training part; where they are others in the test part, `test_clients`.
    """

    source: str
    clients: int | None = None
    train: int | None = None
    test: int | None = None
    classes: int | None = None
    of: str = "examples"
    test_clients: int | None = None
    when: str = ""

    def __str__(self) -> str:
        """Say them in a line.

        >>> str(COUNTS["femnist"][""])
        'published (TensorFlow Federated): 3,400 clients, 671,585 examples to train, 77,483 to test, 62 classes'
        """
        of_others = "" if self.test_clients is None else f" (of {self.test_clients:,} clients)"
        words = [
            (self.clients, "clients"),
            (self.train, f"{self.of} to train"),
            (self.test, f"{'' if self.train else f'{self.of} '}to test{of_others}"),
            (self.classes, "classes"),
        ]
        listed = ", ".join(f"{count:,} {word}" for count, word in words if count is not None)
        return f"published ({self.source}): {listed}" + (f" (with {self.when})" if self.when else "")


def _inaturalist(split: str, clients: int | None, train: int | None = None) -> Counts:
    when = "" if split == "user_120k" else f'split = "{split}"'
    return Counts(HSU, clients, train, 35_641, 1_203, of="images", when=when)


COUNTS: dict[str, dict[str, Counts]] = {
    "shakespeare": {"": Counts("McMahan 2017", 1_146, 3_564_579, 870_014, of="characters")},
    "femnist": {
        "": Counts(TFF, 3_400, 671_585, 77_483, 62),
        "only_digits": Counts(TFF, 3_383, 341_873, 40_832, 10, when="only_digits = true"),
    },
    "stack_overflow": {"": Counts(TFF, 342_477, 135_818_730, 16_586_035, of="sentences", test_clients=204_088)},
    "landmarks": {
        "160k": Counts(HSU, 1_262, 164_172, 19_526, 2_028, of="images"),
        "23k": Counts(TFF, 233, 23_080, None, 203, of="images", when='split = "23k"'),
    },
    "inaturalist": {
        "user_120k": _inaturalist("user_120k", 9_275, 120_300),
        "geo_100": _inaturalist("geo_100", 3_606),
        "geo_300": _inaturalist("geo_300", None),
        "geo_1k": _inaturalist("geo_1k", 368),
        "geo_3k": _inaturalist("geo_3k", 135),
        "geo_10k": _inaturalist("geo_10k", None),
        "geo_30k": _inaturalist("geo_30k", 11),
    },
}
"""By data set, and by the value of the argument that chooses one. The paper has no clients for two of the splits."""
