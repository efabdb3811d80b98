# Each target makes .venv if there is none, installs into it when pyproject.toml or constraints.txt changed, and runs.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/installed

.PHONY: demo test check bench

demo: $(INSTALLED)
	$(BIN)/capreward demo

test: $(INSTALLED)
	$(BIN)/python -m pytest

check: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(INSTALLED)
	@set -e; for script in tests/benchmarks/bench_*.py; do echo "== $$script"; $(BIN)/python "$$script"; done

$(INSTALLED): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --no-input -c constraints.txt -e ".[dev,judges,ngrams,report]"
	touch $@
