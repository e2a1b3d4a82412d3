"""Draws the pictures of the pages in this folder, and writes the numbers beside them.

    python docs/methods/plots.py [page ...]

Every page compares a few runs that differ in one thing. A run is a spec with three seeds; those that are finished, in
runs/methods, are not run again. Written are docs/images/methods/<page>.png (the mean over seeds and, shaded, from the
lowest to the highest) and docs/methods/results.json (means over the last 10 rounds); the rows of the pages' tables are
printed.
"""

from __future__ import annotations

import copy
import hashlib
import json
import sys
import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np

import fedquilt as fq
from fedquilt.experiment.folder import RunFolder
from fedquilt.experiment.page.figure import WIDTH, legend_columns, styled, write_spec
from fedquilt.experiment.page.palette import COLOURS

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "methods" / "results.json"
SEEDS = (1, 2, 3)
LAST = 10
MEASURES = {"accuracy": "test accuracy (%)", "per_client_accuracy": "per-client accuracy (%)"}
HEADER = "| run | accuracy % | seeds | MB up per round | MB down per round |"

Tables = dict[str, Any]

BASE: Tables = {
    "run": {"rounds": 60, "seed": 1},
    "data": {"name": "digits"},
    "partition": {"name": "dirichlet", "clients": 50, "alpha": 0.3, "seed": 1},
    "model": {"name": "mnist_2nn"},
    "method": {"name": "fed_avg", "lr": 0.3, "fraction": 0.2},
}


def wrap(name: str, **arguments: Any) -> dict[str, Any]:
    """Return a [[wrap]] or [[simulate]] table."""
    return {"name": name, **arguments}


@dataclass(frozen=True)
class Comparison:
    """Runs to compare: changes to BASE that all share, and changes by label. A table with a name is replaced.

    Where they are `paired`, each two have one colour: dashed without the method, solid with it.
    """

    runs: Mapping[str, Tables]
    shared: Tables = field(default_factory=dict)
    measure: str = "accuracy"
    over: str = "round"
    paired: bool = False

    def spec(self, label: str, seed: int = 1) -> Tables:
        """Return the spec of a label."""
        tables = copy.deepcopy(BASE)
        for changes in (self.shared, self.runs[label]):
            for name, table in changes.items():
                replaced = isinstance(table, list) or "name" in table
                tables[name] = copy.deepcopy(table) if replaced else {**tables[name], **table}
        tables["run"]["seed"] = tables["partition"]["seed"] = seed
        return tables


FOURIER = {"name": "random_fourier", "sigma": 0.3}
SOFTMAX = {"name": "softmax_regression"}
HALVES = {
    "partition": {"name": "shards", "clients": 2, "shards": 1},
    "run": {"rounds": 25},
}  # Ozdayi 2020: five classes each
UNEQUAL = {"name": "unequal_sizes:unequal", "clients": 40, "alpha": 1.0, "spread": 1.5}
WEI = {"partition": {"name": "shards", "clients": 10, "shards": 2}, "model": FOURIER}  # Wei 2022, with fewer rounds
OWN = {"partition": {"clients": 20, "alpha": 3.0}, "run": {"rounds": 30, "eval_every": 3}}


def fed_avg(**changes: Any) -> dict[str, Any]:
    """Return a [method] table: FedAvg with every client in every round."""
    return {"name": "fed_avg", "lr": 0.1, "fraction": 1.0, **changes}


MANY_STEPS = {
    "partition": {"clients": 20},
    "run": {"rounds": 40},
    "method": {"lr": 0.1, "fraction": 0.3, "epochs": 5, "batch": 20},
}
UNEQUAL_STEPS = {"partition": UNEQUAL, "run": {"rounds": 30}, "method": {"lr": 0.3, "epochs": 5, "batch": 20}}
FLIPPED = wrap("corrupt", share=0.2, kind="sign_flip", strength=5.0)
CORRUPT = {
    "partition": {"clients": 20, "alpha": 10.0},
    "run": {"rounds": 30},
    "method": fed_avg(lr=0.3, batch=20),
}
MOMENTUM = fed_avg(momentum=0.9, lr=0.03, batch=20)

COMPARISONS: dict[str, Comparison] = {
    "availability": Comparison(
        {
            "always there": {},
            "there at times": {"simulate": [wrap("availability", period=24, low=0.0, high=0.9)]},
            "there at times, FedAvgM": {
                "method": {"name": "fed_avg_m", "lr": 0.1, "fraction": 0.2, "server_momentum": 0.9},
                "simulate": [wrap("availability", period=24, low=0.0, high=0.9)],
            },
        },
        {"run": {"rounds": 96}},
    ),
    "centralised": Comparison(
        {
            "pooled SGD": {"method": {"name": "centralised", "lr": 0.3, "batch": 10, "steps": 29}},
            "FedAvg, clients alike": {"partition": {"alpha": 1000.0}},
            "FedAvg, clients skewed": {},
        }
    ),
    "corrupt": Comparison(
        {
            "none corrupt": {},
            "NaN": {"simulate": [wrap("corrupt", share=0.2, kind="nan")]},
            "wrong labels": {"simulate": [wrap("corrupt", share=0.2, kind="label_flip")]},
            "noise": {"simulate": [wrap("corrupt", share=0.2, kind="noise", strength=0.5)]},
            "sign flipped, 3 times": {"simulate": [wrap("corrupt", share=0.2, kind="sign_flip", strength=3.0)]},
        },
        CORRUPT,
    ),
    "ditto": Comparison(
        {
            "FedAvg, shared model": {"wrap": [wrap("own_test")]},
            "every client alone": {"method": {"name": "local_only", "lr": 0.3, "batch": 20}},
            "Ditto, λ = 0.1": {"wrap": [wrap("ditto", pull=0.1, lr=0.3, batch=20)]},
            "Ditto, λ = 1": {"wrap": [wrap("ditto", pull=1.0, lr=0.3, batch=20)]},
        },
        OWN | {"method": fed_avg(lr=0.3, batch=20)},
        "per_client_accuracy",
    ),
    "dropout": Comparison(
        {
            "nobody drops out": {},
            "half drop out": {"simulate": [wrap("dropout", probability=0.5)]},
            "nine in ten drop out": {"simulate": [wrap("dropout", probability=0.9)]},
        }
    ),
    "fed_avg": Comparison(
        {
            "FedSGD": {"method": {"name": "fed_sgd", "lr": 0.3, "fraction": 0.2}},
            "FedAvg, 1 epoch": {"method": {"epochs": 1}},
            "FedAvg, 5 epochs": {"method": {"epochs": 5}},
        },
        {"run": {"rounds": 40}},
    ),
    "fed_avg_m": Comparison(
        {
            "FedAvg, rate 0.1": {"method": {"lr": 0.1}},
            "FedAvg, rate 0.3": {"method": {"lr": 0.3}},
            "FedAvgM, rate 0.1": {"method": {"name": "fed_avg_m", "lr": 0.1, "fraction": 0.2}},
        }
    ),
    "fed_avg_r": Comparison(
        {
            "FedAvg": {},
            "FedAvgR, γ = 0.01": {"wrap": [wrap("fed_avg_r", gamma=0.01)]},
            "FedAvgR, γ = 0.1": {"wrap": [wrap("fed_avg_r", gamma=0.1)]},
            "FedAvgR, γ = 1": {"wrap": [wrap("fed_avg_r", gamma=1.0)]},
        },
        WEI | {"method": MOMENTUM, "run": {"rounds": 30}},
    ),
    "fed_dyn": Comparison(
        {
            "FedAvg, rate 0.1": {},
            "FedAvg, rate 0.3": {"method": {"lr": 0.3}},
            "FedProx, μ = 0.1, rate 0.1": {"wrap": [wrap("fed_prox", mu=0.1)]},
            "FedDyn, α = 0.1, rate 0.1": {"wrap": [wrap("fed_dyn", alpha=0.1)]},
        },
        MANY_STEPS,
    ),
    "fed_ir": Comparison(
        {
            "FedAvg, linear": {"model": SOFTMAX},
            "FedIR, linear": {"model": SOFTMAX, "wrap": [wrap("fed_ir")]},
            "FedAvg, 2NN": {},
            "FedIR, 2NN": {"wrap": [wrap("fed_ir")]},
            "FedAvg, linear, milder skew": {"model": SOFTMAX, "partition": {"alpha": 5.0}},
            "FedIR, linear, milder skew": {"model": SOFTMAX, "partition": {"alpha": 5.0}, "wrap": [wrap("fed_ir")]},
            "FedAvg, 2NN, milder skew": {"partition": {"alpha": 5.0}},
            "FedIR, 2NN, milder skew": {"partition": {"alpha": 5.0}, "wrap": [wrap("fed_ir")]},
        },
        {"partition": {"alpha": 1.0}, "method": {"fraction": 0.1}},
        paired=True,
    ),
    "fed_nova": Comparison(
        {"FedAvg": {}, "FedNova": {"wrap": [wrap("fed_nova")]}},
        {"partition": UNEQUAL | {"clients": 20}, "run": {"rounds": 25}, "method": fed_avg(epochs=2, batch=20)},
    ),
    "fed_opt": Comparison(
        {
            "FedAvg, rate 0.3": {"method": {"lr": 0.3}},
            "FedAvgM, rate 0.1": {"method": {"name": "fed_avg_m", "lr": 0.1, "fraction": 0.2}},
            "FedAdagrad, rate 0.1": {"wrap": [wrap("fed_adagrad", server_lr=0.1)]},
            "FedAdam, rate 0.1": {"wrap": [wrap("fed_adam", server_lr=0.03)]},
            "FedYogi, rate 0.1": {"wrap": [wrap("fed_yogi", server_lr=0.03)]},
        },
        {"method": {"lr": 0.1}},
    ),
    "fed_prox": Comparison(
        {
            "FedAvg": {},
            "FedProx, μ = 0.01": {"wrap": [wrap("fed_prox", mu=0.01)]},
            "FedProx, μ = 0.1": {"wrap": [wrap("fed_prox", mu=0.1)]},
            "FedProx, μ = 1": {"wrap": [wrap("fed_prox", mu=1.0)]},
        },
        UNEQUAL_STEPS,
    ),
    "fed_vc": Comparison(
        {
            "FedAvg, rate 0.1": {"method": {"lr": 0.1}},
            "FedVC, rate 0.1": {"method": {"lr": 0.1}, "wrap": [wrap("fed_vc", size=40)]},
            "FedAvg, rate 0.3": {},
            "FedVC, rate 0.3": {"wrap": [wrap("fed_vc", size=40)]},
        },
        {"partition": UNEQUAL, "run": {"rounds": 80}, "method": {"fraction": 0.125}},
        paired=True,
    ),
    "fine_tuned": Comparison(
        {
            "FedAvg as it is": {"wrap": [wrap("own_test")]},
            "1 epoch more, rate 0.3": {"wrap": [wrap("fine_tuned", epochs=1, lr=0.3, batch=20)]},
            "5 epochs more, rate 0.3": {"wrap": [wrap("fine_tuned", epochs=5, lr=0.3, batch=20)]},
            "1 epoch more, rate 0.05": {"wrap": [wrap("fine_tuned", epochs=1, lr=0.05, batch=20)]},
        },
        OWN | {"method": fed_avg(lr=0.3, batch=20)},
        "per_client_accuracy",
    ),
    "fl_hc": Comparison(
        {
            "FedAvg": {"wrap": [wrap("own_test")]},
            "FL+HC, 2 clusters": {"wrap": [wrap("fl_hc", rounds=10, clusters=2, holdout=0.2)]},
            "FL+HC, 4 clusters": {"wrap": [wrap("fl_hc", rounds=10, clusters=4, holdout=0.2)]},
        },
        WEI | {"method": MOMENTUM, "run": {"rounds": 30}},
        "per_client_accuracy",
    ),
    "geometric_median": Comparison(
        {
            "mean, none corrupt": {"simulate": []},
            "mean": {},
            "geometric median": {"wrap": [wrap("geometric_median")]},
            "geometric median, none corrupt": {"simulate": [], "wrap": [wrap("geometric_median")]},
        },
        CORRUPT | {"simulate": [FLIPPED]},
    ),
    "krum": Comparison(
        {
            "mean, none corrupt": {"simulate": []},
            "mean": {},
            "Krum": {"wrap": [wrap("krum", corrupt=4)]},
            "Multi-Krum, 12 selected": {"wrap": [wrap("krum", corrupt=4, selected=12)]},
        },
        CORRUPT | {"simulate": [FLIPPED]},
    ),
    "local_only": Comparison(
        {"FedAvg": {}, "every client alone": {"method": {"name": "local_only", "lr": 0.3, "batch": 20}}},
        OWN | {"method": fed_avg(lr=0.3, batch=20)},
    ),
    "median": Comparison(
        {
            "mean, none corrupt": {"simulate": []},
            "mean": {},
            "median": {"wrap": [wrap("median")]},
            "trimmed mean": {"wrap": [wrap("trimmed_mean", trim=0.2)]},
            "median, none corrupt": {"simulate": [], "wrap": [wrap("median")]},
        },
        CORRUPT | {"simulate": [FLIPPED]},
    ),
    "norm_bound": Comparison(
        {
            "mean, none corrupt": {"simulate": []},
            "mean": {},
            "norm bound": {"wrap": [wrap("norm_bound", limit=0.5)]},
            "norm bound and median": {"wrap": [wrap("median"), wrap("norm_bound", limit=0.5)]},
        },
        CORRUPT | {"simulate": [FLIPPED]},
    ),
    "one_shot": Comparison(
        {
            "FedAvg": {},
            "OneShot": {"run": {"rounds": 1}, "method": {"name": "one_shot", "lr": 0.03, "batch": 20, "momentum": 0.9}},
        },
        WEI | {"method": MOMENTUM, "run": {"rounds": 30}},
    ),
    "projected": Comparison(
        {
            "FedAvg": {},
            "projected, M = 8": {"wrap": [wrap("projected", radius=8.0)]},
            "projected, M = 12": {"wrap": [wrap("projected", radius=12.0)]},
            "M = 12, noise 0.0001": {"wrap": [wrap("projected", radius=12.0), wrap("gradient_noise", std=1e-4)]},
        },
        HALVES | {"method": fed_avg(batch=20)},
    ),
    "scaffold": Comparison(
        {
            "FedAvg, rate 0.1": {},
            "FedAvg, rate 0.3": {"method": {"lr": 0.3}},
            "SCAFFOLD, rate 0.1": {"wrap": [wrap("scaffold")]},
            "SCAFFOLD, rate 0.3": {"method": {"lr": 0.3}, "wrap": [wrap("scaffold")]},
        },
        MANY_STEPS,
    ),
    "server_training": Comparison(
        {"FedAvg": {}, "server training, 5%": {"wrap": [wrap("server_training", share=0.05)]}},
        HALVES | {"method": fed_avg(batch=20)},
    ),
    "sign_agreement": Comparison(
        {
            "FedAvg, batch 20": {},
            "FedAvg, batch 20, sign agreement": {"wrap": [wrap("sign_agreement")]},
            "FedAvgM, batch 20": {"method": fed_avg(name="fed_avg_m", batch=20)},
            "FedAvgM, batch 20, sign agreement": {
                "method": fed_avg(name="fed_avg_m", batch=20),
                "wrap": [wrap("sign_agreement")],
            },
            "FedAvgM, batch 10": {"method": fed_avg(name="fed_avg_m", batch=10)},
            "FedAvgM, batch 10, sign agreement": {
                "method": fed_avg(name="fed_avg_m", batch=10),
                "wrap": [wrap("sign_agreement")],
            },
        },
        HALVES | {"method": fed_avg(batch=20)},
        paired=True,
    ),
    "stragglers": Comparison(
        {
            "wait for all": {"simulate": [wrap("stragglers", spread=1.0)]},
            "deadline of 0.5 s": {"simulate": [wrap("stragglers", spread=1.0, deadline=0.5)]},
            "ask half as many again": {"simulate": [wrap("stragglers", spread=1.0, over_select=0.5)]},
        },
        over="simulated_seconds",
    ),
}


def folder_of(tables: Tables) -> Path:
    """Return the folder of a run: another spec has another folder."""
    text = json.dumps(tables, sort_keys=True)
    return ROOT / "runs" / "methods" / hashlib.sha256(text.encode()).hexdigest()[:16]


def finished(folder: Path) -> bool:
    """Say whether a run is there and complete."""
    return (folder / "spec.toml").exists() and fq.summary(folder)["state"] == "finished"


def run(tables: Tables) -> None:
    """Run a spec, or go on with it."""
    folder = folder_of(tables)
    here = copy.deepcopy(tables)
    here["run"] |= {"import_from": str(ROOT / "examples"), "on_divergence": "go_on"}  # as an attack may have it
    warnings.simplefilter("ignore", RuntimeWarning)  # a client that sends NaN on purpose
    if (folder / "spec.toml").exists():
        fq.resume(folder)
    else:
        fq.run({**here, "engine": {"name": "inline"}}, out=folder)


def curves(comparison: Comparison, label: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the rounds (or the mean seconds until their end) and the measure in percent, one row per seed."""
    places, values = [], []
    for seed in SEEDS:
        records = list(RunFolder(folder_of(comparison.spec(label, seed))).history())
        there = np.asarray([record.get(comparison.measure) is not None for record in records])
        along = [record[comparison.over] for record in records]
        places.append(np.asarray(along if comparison.over == "round" else np.cumsum(along))[there])
        values.append(
            [100 * record[comparison.measure] for record in records if record.get(comparison.measure) is not None]
        )
    return np.mean(places, axis=0), np.asarray(values)


def result(comparison: Comparison, label: str) -> dict[str, Any]:
    """Return what is written of a label: accuracy, and megabytes a round."""
    _, values = curves(comparison, label)
    records = list(RunFolder(folder_of(comparison.spec(label))).history())
    late = [record["round"] > len(records) - LAST for record in records if record.get(comparison.measure) is not None]
    seeds = values[:, late].mean(axis=1)
    up, down = (np.mean([record[key] for record in records]) / 1e6 for key in ("bytes_up", "bytes_down"))
    return {
        "accuracy": round(float(seeds.mean()), 1),
        "lowest": round(float(seeds.min()), 1),
        "highest": round(float(seeds.max()), 1),
        "MB up": round(float(up), 3),
        "MB down": round(float(down), 3),
    }


def row(label: str, result: Mapping[str, Any]) -> str:
    """Return a label's row of a page's table."""
    seeds = f"{result['lowest']:.1f} to {result['highest']:.1f}"
    return f"| {label} | {result['accuracy']:.1f} | {seeds} | {result['MB up']:.3f} | {result['MB down']:.3f} |"


def draw(page: str, comparison: Comparison) -> None:
    """Draw a page's picture: the mean over seeds, shaded from the lowest to the highest."""
    rows, levels, dashed = [], [], set()
    for place, label in enumerate(comparison.runs):
        rounds, values = curves(comparison, label)
        means, lows, highs = values.mean(axis=0), values.min(axis=0), values.max(axis=0)
        if len(rounds) == 1:  # a method of one round: its level
            levels.append({"run": label, "mean": float(values.mean())})
        else:
            points = zip(rounds, means, lows, highs, strict=True)
            rows += [
                {"run": label} | dict(zip(("at", "mean", "low", "high"), map(float, each), strict=True))
                for each in points
            ]
        if len(rounds) == 1 or (comparison.paired and place % 2 == 0):
            dashed.add(label)
    names = list(comparison.runs)
    shades = [COLOURS[(place // 2 if comparison.paired else place) % len(COLOURS)] for place in range(len(names))]
    shown = alt.Legend(
        orient="bottom", title=None, columns=legend_columns(names), symbolType="stroke", symbolSize=400, symbolOpacity=1
    )
    colour = alt.Color("run:N", scale=alt.Scale(domain=names, range=shades), legend=shown, sort=None)
    dashes = [[5, 3] if name in dashed else [1, 0] for name in names]
    dash = alt.StrokeDash("run:N", scale=alt.Scale(domain=names, range=dashes), legend=shown, sort=None)
    base = alt.Chart(alt.InlineData(values=rows)).encode(
        x=alt.X("at:Q", title=comparison.over.replace("_", " "), scale=alt.Scale(nice=False, zero=True)).axis(
            grid=False
        )
    )
    scale, title = alt.Scale(zero=False), MEASURES[comparison.measure]
    y = alt.Y("mean:Q", title=title, scale=scale)
    layers = [base.mark_line(strokeWidth=1.8).encode(y=y, color=colour, strokeDash=dash)]
    if not comparison.paired:
        band = base.mark_area(opacity=0.14).encode(y=alt.Y("low:Q", title=title, scale=scale), y2="high:Q")
        layers.insert(0, band.encode(color=colour))
    if levels:
        rule = alt.Chart(alt.InlineData(values=levels)).mark_rule(strokeWidth=1.8)
        layers.append(rule.encode(y=y, color=colour, strokeDash=dash))
    chart = alt.layer(*layers).properties(width=WIDTH, height=240)
    write_spec(styled(chart).to_dict(), ROOT / "docs" / "images" / "methods" / f"{page}.png")


def main(pages: list[str]) -> None:
    """Run, draw and write the results of some pages, or of all."""
    unknown = set(pages) - set(COMPARISONS)
    if unknown:
        sys.exit(f"no such page: {', '.join(sorted(unknown))}; there are {', '.join(COMPARISONS)}")
    chosen = {page: COMPARISONS[page] for page in pages or COMPARISONS}
    specs = {folder_of(tables): tables for comparison in chosen.values() for tables in specs_of(comparison)}
    missing = [tables for folder, tables in specs.items() if not finished(folder)]
    with ProcessPoolExecutor() as pool:
        for done, _ in enumerate(pool.map(run, missing), start=1):
            print(f"\rrun {done} of {len(missing)}", end="", file=sys.stderr, flush=True)
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    for page, comparison in chosen.items():
        draw(page, comparison)
        results[page] = {label: result(comparison, label) for label in comparison.runs}
        print(f"\n{page}", *(row(label, about) for label, about in results[page].items()), sep="\n")
    ordered = {page: results[page] for page in sorted(COMPARISONS) if page in results}
    RESULTS.write_text(json.dumps(ordered, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def specs_of(comparison: Comparison) -> Iterator[Tables]:
    """Iterate over all specs of a comparison."""
    return (comparison.spec(label, seed) for label in comparison.runs for seed in SEEDS)


if __name__ == "__main__":
    main(sys.argv[1:])
