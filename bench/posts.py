"""Time and memory of next-word data by author, at the scale of McMahan 2017's large LSTM: 500,000 clients.

    python bench/posts.py                          # 500,000 authors, 4 posts each
    python bench/posts.py --posts 20               # the paper's 10 million posts
    python bench/posts.py --clients 1000           # to try it

Writes generated posts to a temporary file (JSON Lines; words by Zipf's law), then loads them in a process of its own and
trains one round of the word LSTM with 20 clients.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil
import torch

import fedquilt
from fedquilt.models import word_lstm

WORDS = 12
COHORT = 20
DISTINCT = 100_000


def write(path: Path, clients: int, posts: int) -> None:
    """Write posts of 1 to 23 words; an author's posts stand far apart, as they would in a stream of time."""
    rng = np.random.default_rng(0)
    names = [f"word{number}" for number in range(DISTINCT)]
    with path.open("w", encoding="utf-8") as file:
        for _ in range(posts):
            for first in range(0, clients, 10_000):
                count = min(10_000, clients - first)
                sizes = rng.integers(1, 2 * WORDS, size=count)
                drawn = np.minimum(rng.zipf(1.3, size=int(sizes.sum())) - 1, DISTINCT - 1).tolist()
                begun = 0
                for author, size in enumerate(sizes.tolist(), start=first):
                    text = " ".join([names[word] for word in drawn[begun : begun + size]])
                    begun += size
                    file.write(f'{{"author": "author-{author}", "text": {json.dumps(text)}}}\n')


def memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def measure(path: Path) -> None:
    """Load, deal out by author, train a round, and print what each took."""
    before = memory()
    begun = time.perf_counter()
    data = fedquilt.posts(path)
    loaded = time.perf_counter()
    after = psutil.Process().memory_info().rss / 2**20
    assert data.train.ids is not None
    kept = (data.train.x.nbytes + data.train.y.nbytes + data.train.ids.nbytes) / 2**20
    print(f"loaded in {loaded - begun:.1f} s: {data}")
    print(
        f"memory: {before:.0f} MiB before, {memory():.0f} at most while loading, {after:.0f} after, {kept:.0f} of it data"
    )
    begun = time.perf_counter()
    held = fedquilt.natural(data, own_test=False)
    print(f"{held} in {time.perf_counter() - begun:.2f} s")
    torch.manual_seed(0)
    method = fedquilt.fed_avg(lr=1.0, fraction=COHORT / len(held), batch=8)
    begun = time.perf_counter()
    result = fedquilt.train(word_lstm(), data, held, method, rounds=1, eval_every=10**9)
    taken = time.perf_counter() - begun
    loss, worker = result.history.loss[-1], resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**10
    print(f"one round of {COHORT} clients, tested on {len(data.test):,} examples: {taken:.1f} s; loss {loss:.3f}")
    print(f"memory: {memory():.0f} MiB at most in all; a worker {worker:.0f}, which shares the data")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=500_000)
    parser.add_argument("--posts", type=int, default=4, help="posts per client")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        measure(arguments.one)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "posts.jsonl"
        begun = time.perf_counter()
        write(path, arguments.clients, arguments.posts)
        size = path.stat().st_size / 2**20
        total = arguments.clients * arguments.posts
        print(f"wrote {total:,} posts, {size:.0f} MiB, in {time.perf_counter() - begun:.0f} s", flush=True)
        subprocess.run([sys.executable, __file__, "--one", str(path)], check=True)


if __name__ == "__main__":
    main()
