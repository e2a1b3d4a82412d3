"""The pages of everything that a spec can name."""

from __future__ import annotations

import subprocess
import sys
import tomllib

import pytest

from fedquilt.base import registry
from fedquilt.base.arguments import check
from fedquilt.base.errors import SpecError
from fedquilt.base.registry import KINDS
from fedquilt.cli import app as cli
from fedquilt.experiment.explain import explain
from fedquilt.experiment.tables import ARRAYS, GIVEN, REGISTRIES

PLACES = {kind: known.where.strip("[]") for kind, known in KINDS.items()}
NAMES = [(kind, name) for kind in KINDS for name in getattr(registry, kind)]


def test_every_registry_is_explained() -> None:
    assert {*KINDS} == {name for name, value in vars(registry).items() if isinstance(value, registry.Registry)}
    assert len({name for _, name in NAMES}) == len(NAMES), "a name alone says which page is meant"


@pytest.mark.parametrize(("kind", "name"), NAMES)
def test_page(kind: str, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    known: registry.Registry = getattr(registry, kind)
    page = explain(name)
    assert page.text.startswith(known.summary(name))
    monkeypatch.setattr(sys, "argv", ["fedquilt", "explain", name])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    out = capsys.readouterr().out
    assert ended.value.code == 0
    assert max(map(len, out.splitlines())) <= 80
    assert ">>>" not in out
    assert known.summary(name).split()[0] in out
    for line in page.example.splitlines():
        assert f"    {line}".rstrip() in out
    tables = tomllib.loads(page.example)
    place = PLACES[kind]
    if place not in REGISTRIES and place not in ARRAYS:  # a loss or a metric
        assert name in str(tables["run"])
        return
    table = tables[place][0] if place in ARRAYS else tables[place]
    given = GIVEN.get(place, frozenset())
    assert table.pop("name") == name
    assert check(known[name], table, given).keys() >= table.keys(), "the example can be run"
    named = known.parameters(name) or ()
    assert [each.name for each in page.arguments] == [each for each in named if each not in given]
    for each in page.arguments:
        assert f" {each.name} " in out
        assert not each.takes[0].isupper(), f"{each.name}: {each.takes} is no type in words"


def test_a_typo_is_answered_with_the_nearest_name_and_without_pytorch() -> None:
    with pytest.raises(SpecError, match=r"nothing is called 'fed_avgm'; did you mean 'fed_avg_m'\?"):
        explain("fed_avgm")
    loaded = "import sys; from fedquilt.cli import app; sys.argv = ['fedquilt', 'explain', 'dirichlt']\n"
    loaded += "try:\n    app.main()\nfinally:\n    assert 'torch' not in sys.modules\n"
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "did you mean 'dirichlet'?" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_function_of_the_users_own_is_explained() -> None:
    own = registry.Registry("method")
    own.register(my_method)
    found = own.home("my_method")
    from fedquilt.base.source import read_source

    assert [each.takes for each in read_source(found, "my_method").arguments] == ["number"]


def my_method(lr: float = 0.1) -> None:
    """A method of the user's own."""
