# All that a developer does here. Every target builds what it needs, and is quick when nothing changed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.DEFAULT_GOAL := help
.PHONY: help venv demo check test test-all bench docs stubs clean

help:  ## Show this
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: $(VENV)/.dev  ## Make .venv with everything that development needs

$(VENV)/.base: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("coterie needs Python 3.11 or later" if sys.version_info < (3, 11) else 0)'
	@test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	@$(PIP) -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.base
	@$(PIP) -e '.[dev,torch]'
	@touch $@

$(VENV)/.docs: $(VENV)/.dev
	@$(PIP) -e '.[docs]'
	@touch $@

demo: $(VENV)/.base  ## Cluster two data sets where they are, and write a report
	@$(BIN)/coterie demo

check: $(VENV)/.dev  ## Lint, types, the arrows between packages, spelling, what the docs say
	$(BIN)/ruff check
	$(BIN)/ruff format --check --quiet
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell
	$(BIN)/python tools/stubs.py --check
	$(BIN)/python tools/check_docs.py

test: $(VENV)/.dev  ## The tests, but for the slow ones
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto -m 'not slow'

test-all: $(VENV)/.dev  ## All tests
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto

bench: $(VENV)/.dev  ## Benchmarks: a table, and JSON in benchmarks/results
	@$(BIN)/python -m benchmarks

docs: $(VENV)/.docs  ## The documentation, in docs/_build
	@$(BIN)/sphinx-build -q -W -b html docs docs/_build
	@echo docs/_build/index.html

stubs: $(VENV)/.dev  ## Write the signatures of the estimators for editors
	@$(BIN)/python tools/stubs.py

clean:  ## Remove what was built
	rm -rf $(VENV) docs/_build build dist .mypy_cache .ruff_cache .pytest_cache
