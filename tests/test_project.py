"""What the project's files say of each other is true: versions, Pythons, targets and checks are the same everywhere."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import fedquilt

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
CHECKS: dict[str, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / "checks.yml").read_text(encoding="utf-8"))


def recipe(target: str) -> str:
    (found,) = re.findall(rf"^{target}:[^\n]*\n((?:\t[^\n]*\n)*)", MAKEFILE, re.MULTILINE)
    return str(found)


def test_the_citation_is_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == fedquilt.__version__
    assert citation["license"] == PROJECT["license"]
    assert citation["repository-code"] == PROJECT["urls"]["Homepage"]


def test_the_workflow_tests_the_pythons_that_the_metadata_name() -> None:
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert CHECKS["jobs"]["test"]["strategy"]["matrix"]["python"] == named
    assert PROJECT["requires-python"] == f">={named[0]}"


def test_the_workflow_runs_targets_that_exist() -> None:
    commands = [step["run"] for job in CHECKS["jobs"].values() for step in job["steps"] if "run" in step]
    assert all(command.startswith("make ") for command in commands)
    for target in ["test", *CHECKS["jobs"]["make"]["strategy"]["matrix"]["target"]]:
        assert recipe(target)


def test_commits_are_checked_as_make_lint_checks() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    assert [repo["repo"] for repo in config["repos"]] == ["local"]
    entries = [hook["entry"].replace(" --force-exclude", "") for hook in config["repos"][0]["hooks"]]
    lint = [line.removeprefix("\t@$(BIN)/") for line in recipe("lint").splitlines()]
    assert entries == [f".venv/bin/{command.removesuffix(' .')}" for command in lint]


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_targets_that_pages_name_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"(?:^|`)make ([a-z-]+)(?=`|\s|$)", text, re.MULTILINE):
        assert recipe(target) or f"{target}:" in MAKEFILE
