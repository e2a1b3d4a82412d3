"""Which methods to try first on a population, by what is measured of it; every line cites the table that says so.

The tables are those of the papers, with their own data and models, and those of fedquilt's benchmark: a line says what
helped there, not what will help here. The bounds are ours, except 1.7 and up for the distance of class distributions (Hsu
2020, section 6.1: "a substantial drop around an EMD of 1.7 to 2.0").
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from fedquilt.analysis.benchmark import Trials, most_similar
from fedquilt.analysis.skew import Skew
from fedquilt.base.text import listed

ALIKE, APART, FAR_APART = 0.5, 0.9, 1.7
UNEQUAL_GINI, UNEQUAL_RATIO = 0.2, 2.0
FEW = 10
NEAR = 2
"""Methods of the benchmark that are named beside the best, where they are not significantly worse."""


@dataclass(frozen=True)
class Advice:
    """What was found, the methods or keys to try, and what was measured with them; `used` are those in use already."""

    found: str
    methods: tuple[str, ...]
    source: str
    used: tuple[str, ...] = ()


def advice(skew: Skew, used: Collection[str] = ()) -> list[Advice]:
    """Return what to try first, the most promising first; what is `used` already is not advised again.

    >>> import numpy as np
    >>> from fedquilt.analysis.skew import skew
    >>> from fedquilt.partition import class_blocks
    >>> labels = np.repeat(np.arange(10), 50)
    >>> found = advice(skew(class_blocks(labels, clients=2, classes=5), labels))
    >>> [line.methods for line in found if "benchmark" not in line.source]
    [('fed_avg_m',), ('server_training', 'sign_agreement'), ('fed_avg_r',)]
    """
    return [
        replace(
            line,
            methods=tuple(name for name in line.methods if name not in used),
            used=tuple(name for name in line.methods if name in used),
        )
        for line in _advice(skew)
    ]


def _advice(skew: Skew) -> list[Advice]:
    about = skew.summary()
    lines = _classes(about["emd"], about["emd_by_chance"], len(skew.sizes)) if "emd" in about else []
    last = [lines.pop()] if lines and lines[-1].methods == ("fed_avg_r",) else []
    unequal = about["size_gini"] >= UNEQUAL_GINI or about["size_most_to_median"] >= UNEQUAL_RATIO
    if unequal:
        lines.append(
            Advice(
                f"sizes differ (Gini {about['size_gini']:.2f}, the largest is "
                f"{about['size_most_to_median']:.1f} times the median)",
                ("fed_vc",),
                "Hsu 2020, Table 2: with momentum, virtual clients gave 56.7% instead of 45.0% (iNaturalist-Geo-3k) and "
                "49.1% instead of 41.3% (iNaturalist-User-120k) after 5,000 rounds",
            )
        )
    if "emd" in about:
        lines += [_benchmark(trials) for trials in most_similar(about["emd"], equal_sizes=not unequal)]
    return lines + last


def _benchmark(trials: Trials) -> Advice:
    """Say which methods of the benchmark were best on the clients that are most like these, and what FedAvg reached."""
    best, *others = trials.methods
    plain = next(method for method in trials.methods if method.parts == ("fed_avg",))
    near = [method for method in others if method.not_worse and method is not plain][:NEAR]
    also = f"; not significantly worse: {listed([str(method) for method in near])}" if near else ""
    apart = " (not significantly worse)" if plain.not_worse else ""
    beside = "" if plain is best else f"; {plain}{apart}"
    return Advice(
        f"of the benchmark's clients, “{trials.setting}” is nearest (EMD {trials.emd:.2f})",
        tuple(dict.fromkeys(part for method in (best, *near) for part in method.parts)),
        f"fedquilt's benchmark, {trials.title}, {len(trials.methods)} methods, each with the same budget for tuning: "
        f"{best}{also}{beside}",
    )


def _classes(emd: float, by_chance: float, clients: int) -> list[Advice]:
    found = f"class distributions differ (EMD {emd:.2f})"
    if emd < ALIKE:
        return [
            Advice(
                f"class distributions are alike (EMD {emd:.2f})",
                ("fed_avg", "epochs"),
                "McMahan 2017, Table 2: on IID clients the MNIST CNN reached 99% in 20 rounds with E = 5 and B = 10, "
                "instead of 626 by FedSGD",
            )
        ]
    if emd <= 1.05 * by_chance:
        found += f"; as much as by chance, {by_chance:.2f}, since clients hold few examples"
    lines = [
        Advice(
            found,
            ("fed_avg_m",),
            "Hsu 2019, Figure 5 and abstract: from 30.1% to 76.9% on the most skewed CIFAR-10; Hsu 2020, Table 4: from "
            "53.4% to 65.0% on Landmarks-User-160k (EMD 1.94) with 100 clients per round",
        )
    ]
    if emd >= FAR_APART and clients > FEW:
        lines.append(
            Advice(
                f"most clients hold few of the classes (EMD {emd:.2f})",
                ("fed_ir", "fraction"),
                "Hsu 2020, Table 4: reweighting gave 65.9% instead of 65.0% on Landmarks-User-160k, and 100 clients a "
                "round 65.0% instead of 53.7% with 10; Table 3: on iNaturalist-User-120k (EMD 1.83) reweighting helped "
                "without momentum and 10 clients per round (47.5% instead of 43.9%), and not with 100",
            )
        )
    if emd >= APART and clients <= FEW:
        lines.append(
            Advice(
                f"few clients ({clients}) with different classes",
                ("server_training", "sign_agreement"),
                "Ozdayi 2020, Tables 2, 4 and 5: two clients of five CIFAR-10 classes each reached 73.0%; with 5% of the "
                "data at the server 83.7%, with momentum of 0.5 80.9%, with sign agreement 78.5%",
            )
        )
    if emd >= APART:
        lines.append(
            Advice(
                "where the model is a linear classifier on features",
                ("fed_avg_r",),
                "Wei 2022, Table 3: best on nine data sets cut into two shards per client, over FedAvg by up to 0.8 "
                "points (svmguide1, 91.77% instead of 90.95%)",
            )
        )
    return lines
