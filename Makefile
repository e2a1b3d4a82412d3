# `make demo` and `make test` set up .venv by themselves.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO := runs/demo
# One test process a core: the tests take half as long on two.
SPREAD := -n auto --maxprocesses 8

# What is computed with numbers, apart from what is compiled at length.
NUMERICAL := tests/kernels tests/core tests/methods tests/metrics tests/parts tests/reference tests/contracts

.PHONY: demo test test-avx2 test-all lint setup clean

setup: $(STAMP)

# The stamp is written last, so that an installation that was interrupted is done again.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "fedquilt needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
	  { echo "Python's venv module is missing; on Debian and Ubuntu: apt install python3-venv"; exit 1; }
	@test -x $(BIN)/pip || { rm -rf $(VENV); $(PYTHON) -m venv $(VENV); }
	@echo "Installing fedquilt into $(VENV) (PyTorch is large: this takes a minute or more, once) ..."
	@$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: setup
	@rm -rf $(DEMO)
	@$(BIN)/fedquilt run experiments/demo/fedavg-identical.toml --out $(DEMO)/fedavg-identical
	@$(BIN)/fedquilt run experiments/demo/fedavg-skewed.toml --out $(DEMO)/fedavg-skewed
	@$(BIN)/fedquilt run experiments/demo/fedavgm-skewed.toml --out $(DEMO)/fedavgm-skewed
	@$(BIN)/fedquilt report $(DEMO)/fedavg-identical $(DEMO)/fedavg-skewed $(DEMO)/fedavgm-skewed --out $(DEMO)/report
	@echo "Who holds which digit: $(DEMO)/fedavg-skewed/clients.png"

test: setup
	@$(BIN)/python -m pytest $(SPREAD)

# As on an x86 processor without AVX-512: sums are taken in another order there, and some layers have no bfloat16.
test-avx2: export ATEN_CPU_CAPABILITY := avx2
test-avx2: export ONEDNN_MAX_CPU_ISA := AVX2
test-avx2: setup
	@$(BIN)/python -m pytest $(SPREAD) $(NUMERICAL)

# Every method in every way of computing: compiling takes a quarter of an hour or more.
test-all: setup
	@$(BIN)/python -m pytest $(SPREAD) -m "thorough or not thorough"

lint: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

clean:
	rm -rf $(VENV) runs
