"""Specs that are changed at random: each is a function of one seed, so that what one finds can be looked at again.

A spec is held as text, table by table and key by key: some of what is tried is more than TOML's writers can write.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from fedquilt.base import registry
from fedquilt.experiment.options import Options
from fedquilt.experiment.tables import REGISTRIES

Tables = list[tuple[str, dict[str, str]]]
"""The tables of a spec, each a header such as `[run]` and its keys; headers may come twice."""


@dataclass(frozen=True)
class Mutation:
    """A changed spec and how to call the program on it."""

    seed: int
    command: str
    spec: bytes
    sets: list[str] = field(default_factory=list)


BASES = [
    """
    [run] rounds = 1000000
    [data] name = "digits"
    [partition] name = "iid" | clients = 10
    [model] name = "softmax_regression" | inputs = 64
    [method] name = "fed_avg" | fraction = 0.2 | lr = 0.1 | epochs = 1 | batch = 10
    [engine] name = "inline"
    """,
    """
    [run] rounds = 1000000 | seed = 1 | eval_every = 1000 | metrics = ["accuracy"] | loss = "cross_entropy"
    [data] name = "digits" | test_fraction = 0.2
    [partition] name = "dirichlet" | clients = 10 | alpha = 0.5
    [model] name = "mnist_2nn" | inputs = 64 | hidden = 10
    [method] name = "fed_avg_m" | fraction = 0.2 | lr = { initial = 0.1, factor = 0.99 }
    [[wrap]] name = "fed_prox" | mu = 0.1
    [engine] name = "processes" | workers = 1
    """,
    """
    [run] rounds = 1000000 | stop_at = 0.9 | train_loss = true | checkpoint_seconds = 60
    [data] name = "synthetic" | clients = 5 | minimum = 10 | features = 5 | classes = 3
    [partition] name = "natural"
    [model] name = "random_fourier" | inputs = 5 | features = 10 | classes = 3
    [method] name = "local_only" | lr = 0.1
    [engine] name = "inline"
    """,
    """
    [run] rounds = 1000000 | trainable = 1
    [data] name = "table" | path = "people.csv" | label = "kind" | client = "who"
    [partition] name = "shards" | clients = 4 | shards = 2
    [model] name = "softmax_regression" | inputs = 2 | classes = 2
    [method] name = "fed_avg" | lr = { stages = [[1, 0.1], [10, 0.01]] }
    [[wrap]] name = "fed_adam" | server_lr = 0.01
    [[wrap]] name = "own_test" | holdout = 0.2
    [engine] name = "vectorised" | block = 4 | workers = 1
    """,
]

FILES = {"people.csv": "a,b,kind,who\n" + "".join(f"{n % 7},{n % 3}.5,{'xy'[n % 2]},c{n % 4}\n" for n in range(40))}
"""What lies beside the specs."""

_NUMBERS = [
    *("0", "-1", "1", "2", "3", "17", "1000", "1000000", "1000000000", "1000000000000", "0x7fffffff", "2147483648"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775809", "18446744073709551616", "1" + "0" * 30),
    *("9" * 5000, "-" + "7" * 5000, "0x" + "f" * 5000, "1" + "_0" * 500),
    *("0.0", "-0.0", "0.5", "1.0", "1.5", "-0.5", "1e-400", "1e400", "-1e400", "1e308", "-1e308", "5e-324", "1e30"),
    *("1e18", "inf", "-inf", "+inf", "nan", "-nan", "3." + "1" * 4000, "1e" + "9" * 50),
]
_MODEST = [
    "1",
    "2",
    "3",
    "5",
    "10",
    "20",
    "64",
    "0.1",
    "0.25",
    "0.5",
    "0.9",
    "1.0",
    "2.0",
    "1e-3",
    "true",
    "false",
    "inf",
]
"""What many keys take: so that some of what is changed is trained, and not all is refused at the door."""

_TEXTS = [
    *('""', '" "', '"a"', '"x.csv"', '"people.csv"', '"."', '".."', '"/"', '"../../.."', '"~"', '"~nosuchuser"'),
    *('"~nosuchuser/data.csv"', '"/dev/null"', '"/proc/self/mem"', '"\\u0000"', '"a\\u0000b"'),
    *('"\\u001b[31mred\\u001b]0;t\\u0007"', '"\\U0001F600"', '"é"'),
    *('"\\u202eabc"', '"\\n\\n\\n"', '"\\r"', '"\\u007f\\u0080\\u009b2J"', '"\\ud7ff\\ue000\\uffff"', '"名前"'),
    *('"[red]x[/red]"', '"{0}{key}%s%n"', '"nan"', '"inf"', '"1"', '"true"', '"None"', '"math:sqrt"', '"builtins:print"'),
    *('"no_such_module:thing"', '"math:nothing"', '":"', '"a:"', '":b"', '"a:b:c"', '"..:x"', '"x.py:y"', '"math:pi"'),
    f'"{"a" * 100_000}"', f'"{"ab/" * 3000}"', f'"{"é" * 300}"', f'"{chr(92)}u001b"', f'"{"m" * 5000}:{"f" * 5000}"',
    "'''\nlines\n'''", '"cuda"', '"mps"', '"bf16"', '"cpu"', '"spawn"', '"train"', '"label"', '"kind"',
]  # fmt: skip
_OTHERS = [
    *("true", "false", "1979-05-27", "1979-05-27T07:32:00Z", "07:32:00", "0001-01-01", "9999-12-31T23:59:59-23:59"),
    *("[]", "[[]]", "[[], []]", "[1]", '["a"]', '["", ""]', "[1, 2.5, true]", "[nan]", "[inf]", "[[1, 2], [3]]", "[{}]"),
    *(f"[{'1, ' * 20_000}]", f"[{'[' * 90}{']' * 90}]", "[" * 2000 + "]" * 2000, "[" * 100_000, '["a", "a", "b"]'),
    *("{}", "{ a = 1 }", "{ a = { b = { c = 1 } } }", "{ a = " * 300 + "1" + " }" * 300, '{ name = "fed_avg" }'),
    *("{ initial = inf }", "{ initial = 0.1, factor = 1e308 }", "{ initial = 0.1, every = 0 }", "{ initial = [1] }"),
    *("{ initial = 1e400 }", "{ initial = nan, factor = nan }", f"{{ initial = 0.1, every = {'9' * 4000} }}"),
    *("{ initial = 1, every = 1.5 }", "{ initial = 0.1, least = inf, most = inf }", '{ initial = "1" }', "{ factor = 1 }"),
    *("{ initial = 0.1, most = 1e-300 }", "{ initial = 1000000000000, factor = 2 }", "{ stages = [] }", "{ stages = 3 }"),
    *("{ stages = [[inf, 0.1]] }", "{ stages = [[1, inf]] }", "{ stages = [[1, nan], [nan, 1]] }", "{ stages = [[1]] }"),
    *('{ stages = [["1", "2"]] }', "{ stages = [[1, 0.1], [1e400, 0.1]] }", "{ stages = [[1.5, 0.1]] }", "{ stages = {} }"),
    *(f"{{ stages = [[1, {'9' * 400}]] }}", "{ stages = [[true, true]] }", "{ stages = [[1, 1e30]] }"),
    "{ initial = true }",
    *("{ initial = 0.1, stages = [[1, 1]] }", "{ stages = [[[1], [2]]] }", "{ stages = [[1, 0.1], [2]] , x = 1 }"),
]  # fmt: skip
_KEYS = [
    *("x", '""', '"a b"', '"a.b"', "a.b.c", '"\\u001b[2J"', '"\\n"', '"é"', "k" * 20_000, "name", "labels", "data"),
    *("algorithm", "self", "args", "kwargs", "key_lr", "__class__", "model_config", "copy"),
]
_HEADERS = [
    *("[x]", '["\\u001b[31m"]', "[run.run]", "[wrap]", "[[run]]", "[[wrap.wrap]]", f"[{'a' * 5000}]"),
    *(f"[{'a.' * 500}a]", "[sweep]", "[published]", "[python]"),
]
_VARYING = [
    "[grid]",
    "[repeat]",
    "[tune]\nby = 'test'",
    "[zip.size]",
    "[case.a.b]",
    "[[when]]",
    "[derive]",
    "[scale.small]",
]
_BYTES = [b"\xff", b"\x00", b"\xef\xbb\xbf", b"\x1b[31m", b"=", b"[", b'"""', b"\r"]


def mutation(seed: int) -> Mutation:
    """Return the changed spec of a seed."""
    rng = random.Random(seed)
    tables = _base(rng.choice(BASES))
    for _ in range(rng.choice([1, 1, 1, 1, 1, 2, 2, 3, 5])):
        rng.choice(_CHANGES)(tables, rng)
    command = rng.choices(["run", "partition", "sweep"], [8, 1, 1])[0]
    if command == "sweep" and rng.random() < 0.9:
        for header in rng.sample(_VARYING, rng.choice([1, 1, 2, 3])):
            tables.append((header, {f'"{_place(rng)}"': _list(rng) for _ in range(rng.choice([1, 1, 2, 3]))}))
    sets = [_set(tables, rng) for _ in range(rng.choice([0, 0, 0, 0, 1, 2]))]
    text = "\n".join(
        "\n".join([header, *(f"{key} = {value}" for key, value in keys.items())]) for header, keys in tables
    )
    return Mutation(seed, command, _damaged(text.encode(), rng), sets)


def _base(text: str) -> Tables:
    tables: Tables = []
    for line in text.strip().splitlines():
        header, _, rest = line.strip().partition("] ")
        header += "]"
        pairs = (pair.partition(" = ") for pair in rest.split(" | "))
        tables.append((header.replace("]]]", "]]"), {key.strip(): value.strip() for key, _, value in pairs}))
    return tables


def value(rng: random.Random) -> str:
    return rng.choice(rng.choice([_MODEST, _MODEST, _NUMBERS, _NUMBERS, _TEXTS, _OTHERS]))


def _table(tables: Tables, rng: random.Random) -> dict[str, str]:
    return rng.choice(tables)[1] if tables else {}


def _changed_key(tables: Tables, rng: random.Random) -> None:
    keys = _table(tables, rng)
    if keys:
        keys[rng.choice(list(keys))] = value(rng)


def _known_key(tables: Tables, rng: random.Random) -> None:
    """Set a key that the table's function takes."""
    if not tables:
        return
    header, keys = rng.choice(tables)
    keys[rng.choice(_parameters(header, keys.get("name", "")) or ["x"])] = value(rng)


def _parameters(header: str, name: str) -> list[str]:
    kind = header.strip("[]")
    if kind == "run":
        return list(inspect.signature(Options).parameters)
    known = registry.wrappers if kind == "wrap" else REGISTRIES.get(kind)
    name = name.strip('"')
    if known is None or name not in known:
        return []
    return [key for key in inspect.signature(known[name]).parameters if key not in ("algorithm", "labels", "data")]


def _other_name(tables: Tables, rng: random.Random) -> None:
    known = rng.choice([*REGISTRIES.values(), registry.wrappers, registry.losses, registry.metrics])
    _table(tables, rng)["name"] = f'"{rng.choice(list(known))}"'


def _other_part(tables: Tables, rng: random.Random) -> None:
    """Name another part of the right kind, and leave it few keys."""
    if not tables:
        return
    header, keys = rng.choice(tables)
    known = registry.wrappers if header == "[[wrap]]" else REGISTRIES.get(header.strip("[]"))
    if known is not None:
        kept = {key: text for key, text in keys.items() if rng.random() < 0.5}
        keys.clear()
        keys.update(kept, name=f'"{rng.choice(list(known))}"')


def _wrapped(tables: Tables, rng: random.Random) -> None:
    for _ in range(rng.choice([1, 1, 1, 2, 3, 12, 40])):
        name = rng.choice(list(registry.wrappers))
        keys = {"name": f'"{name}"'}
        if rng.random() < 0.3:
            parameters = _parameters("[[wrap]]", name)
            keys |= {rng.choice(parameters): value(rng)} if parameters else {}
        tables.append(("[[wrap]]", keys))


def _many_wraps(tables: Tables, rng: random.Random) -> None:
    name = rng.choice(["fed_prox", "gradient_noise", "projected", "fed_ir"])
    tables.extend(("[[wrap]]", {"name": f'"{name}"'}) for _ in range(rng.choice([2, 12, 500, 3000])))


def _without_key(tables: Tables, rng: random.Random) -> None:
    keys = _table(tables, rng)
    if keys:
        del keys[rng.choice(list(keys))]


def _without_table(tables: Tables, rng: random.Random) -> None:
    if tables:
        del tables[rng.randrange(len(tables))]


def _table_twice(tables: Tables, rng: random.Random) -> None:
    if tables:
        header, keys = rng.choice(tables)
        tables.append((header, dict(keys)))


def _unknown_key(tables: Tables, rng: random.Random) -> None:
    _table(tables, rng)[rng.choice(_KEYS)] = value(rng)


def _many_keys(tables: Tables, rng: random.Random) -> None:
    _table(tables, rng).update({f"{rng.choice('xyz')}{number}": value(rng) for number in range(rng.choice([5, 300]))})


def _unknown_table(tables: Tables, rng: random.Random) -> None:
    tables.insert(rng.randrange(len(tables) + 1), (rng.choice(_HEADERS), {"x": value(rng)}))


def _table_as_value(tables: Tables, rng: random.Random) -> None:
    """Write a value, in no table, where a table should be."""
    if tables:
        header, _ = tables.pop(rng.randrange(len(tables)))
        tables.insert(0, (f"{header.strip('[]')} = {value(rng)}", {}))


_CHANGES: list[Callable[[Tables, random.Random], None]] = [
    *[_changed_key] * 6,
    *[_known_key] * 12,
    *[_other_part] * 4,
    *[_wrapped] * 2,
    _other_name,
    _many_wraps,
    _without_key,
    _without_table,
    _table_twice,
    _unknown_key,
    _many_keys,
    _unknown_table,
    _table_as_value,
]


def _place(rng: random.Random) -> str:
    return rng.choice(
        [
            "method.lr",
            "method.name",
            "partition.clients",
            "run.seed",
            "model.inputs",
            "wrap.1.mu",
            "x",
            "run",
            "wrap.99.x",
        ]
    )


def _list(rng: random.Random) -> str:
    values = [value(rng) for _ in range(rng.choice([1, 2, 5]))]
    return rng.choice([value(rng), f"[{', '.join(values)}]", f"[{'0.1, 1, ' * 100}]"])


def _set(tables: Tables, rng: random.Random) -> str:
    keys = [f"{header.strip('[]')}.{key}" for header, known in tables for key in known]
    key = rng.choice([*keys[:100], _place(rng), "wrap.0.mu", "wrap.x.mu", "method.lr.initial", "", ".", "a" * 3000])
    return f"{key}={value(rng)}".replace("\0", "")


def _damaged(spec: bytes, rng: random.Random) -> bytes:
    chosen = rng.random()
    at = rng.randrange(len(spec) + 1)
    if chosen < 0.03:
        return spec[:at]
    if chosen < 0.06:
        return spec[:at] + rng.choice(_BYTES) + spec[at:]
    return spec
