# Every target sets up what it needs of .venv by itself: the demo only what fedquilt runs with, the tests and linters all
# that a developer needs, the documentation only what builds it (PyTorch is not needed for that).

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Stamps are written last, so that an installation that was interrupted is done again.
RUNTIME := $(VENV)/.runtime
DEV := $(VENV)/.installed
DOCS := $(VENV)/.docs
PIP_INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt
# This makes commands start faster where Python does not keep bytecode by itself (PYTHONDONTWRITEBYTECODE).
BYTECODE = $(BIN)/python -m compileall -q src
# Where `fedquilt sweep experiments/demo/demo.toml` writes.
DEMO := runs/demo
# One test process a core. Each begins with a part of its own, so that what the tests of a file share is made once, and
# takes over some of another's when it has none left.
SPREAD := -n auto --maxprocesses 8 --dist worksteal

# What is computed with numbers, apart from what is compiled at length.
NUMERICAL := tests/compute tests/algorithm tests/methods tests/reference tests/contracts/test_wrappers.py tests/contracts/test_methods.py

.PHONY: demo test test-avx2 test-all coverage lint generated docs setup clean

setup: $(DEV)

$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "fedquilt needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
	  { echo "Python's venv module is missing; on Debian and Ubuntu: apt install python3-venv"; exit 1; }
	@rm -rf $(VENV)
	@$(PYTHON) -m venv $(VENV)

$(RUNTIME): pyproject.toml constraints.txt | $(BIN)/pip
	@echo "Installing fedquilt into $(VENV) (PyTorch is large: this takes a minute or more, once) ..."
	@$(PIP_INSTALL) -e '.[digits]'
	@$(BYTECODE)
	@touch $@

$(DEV): pyproject.toml constraints.txt | $(BIN)/pip
	@echo "Installing fedquilt and its developers' tools into $(VENV) (PyTorch is large: this takes a minute or more, once) ..."
	@$(PIP_INSTALL) -e '.[dev]'
	@$(BYTECODE)
	@touch $(RUNTIME) $(DOCS) $@

# The extra's requirements alone: with the package, pip would install PyTorch too.
$(DOCS): pyproject.toml | $(BIN)/pip
	@echo "Installing what builds the documentation into $(VENV) ..."
	@$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["docs"], sep="\n")' > $@.txt
	@$(PIP_INSTALL) -r $@.txt
	@touch $@

demo: $(RUNTIME)
	@$(BIN)/fedquilt sweep experiments/demo/demo.toml
	@$(BIN)/fedquilt report $(DEMO) > /dev/null
	@echo "Curves, the table and who holds which digit are on one page; open it in a browser:"
	@echo "  file://$(CURDIR)/$(DEMO)/report/index.html"

test: $(DEV)
	@$(BIN)/python -m pytest $(SPREAD)

# As on an x86 processor without AVX-512: sums are taken in another order there, and some layers have no bfloat16.
test-avx2: export ATEN_CPU_CAPABILITY := avx2
test-avx2: export ONEDNN_MAX_CPU_ISA := AVX2
test-avx2: $(DEV)
	@$(BIN)/python -m pytest $(SPREAD) $(NUMERICAL)

# Every method in every way of computing: compiling takes a quarter of an hour or more.
test-all: $(DEV)
	@$(BIN)/python -m pytest $(SPREAD) -m "thorough or not thorough"

# Which lines and branches of src the tests reach, the command line in processes of its own and an engine's forked workers
# included; a page for each file in htmlcov/. Not what only spawned workers run: they are killed before they report it.
coverage: $(DEV)
	@$(BIN)/python -m pytest $(SPREAD) --cov --cov-report=term:skip-covered --cov-report=html

lint: $(DEV)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

# Stubs of the public names, tables of them in README and docs, what the keys of a spec take, and what was measured of the
# papers' experiments. A test says when they are stale.
generated: $(DEV)
	@$(BIN)/python tools/stubs.py --write
	@$(BIN)/python tools/tables.py --write
	@$(BIN)/python tools/keys.py --write
	@$(BIN)/python tools/results.py --write

# Strict: a broken link, anchor or reference is an error. Into site/.
docs: $(DOCS)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "The documentation is in site/: open site/index.html, or read it as you write with $(BIN)/mkdocs serve"

clean:
	rm -rf $(VENV) runs site htmlcov .coverage .coverage.*
