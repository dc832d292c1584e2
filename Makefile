# From a fresh clone: `make demo` shows it working, `make test` proves it. Both make .venv and install what they need;
# a second run installs nothing unless pyproject.toml or a requirements file changed.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet
PYTEST := $(BIN)/python -m pytest

# The same settings as tests/conftest.py: idle OpenMP threads must not spin, and nobody prints banners.
export OMP_WAIT_POLICY      := PASSIVE
export RAY_AUTH_MODE        := disabled
export RAY_USAGE_STATS_ENABLED := 0
export TF_CPP_MIN_LOG_LEVEL := 3
export TF_ENABLE_ONEDNN_OPTS := 0
export KERAS_BACKEND        := tensorflow

# A stamp carries the checksum of what decides an installation, so that a checkout that only touches files costs nothing.
SUM       := $(shell cat pyproject.toml requirements/*.txt | cksum | tr ' ' '-')
BASE_DONE := $(VENV)/.base-$(SUM)
TEST_DONE := $(VENV)/.test-$(SUM)

.PHONY: demo test lint format pytest test-slow test-gpu bench docs clean

demo: $(BASE_DONE)
	$(BIN)/penstock demo --output demo

# Side by side: type checking keeps one core busy, and most tests do not need two.
test: $(TEST_DONE)
	@$(MAKE) --no-print-directory -j2 lint pytest

lint: $(TEST_DONE)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(TEST_DONE)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

pytest: $(TEST_DONE)
	$(PYTEST)

# Exit status 5 says that no test carries the mark: nothing failed.
test-slow: $(TEST_DONE)
	$(PYTEST) -m slow || [ $$? -eq 5 ]

test-gpu: $(TEST_DONE)
	$(PYTEST) -m gpu || [ $$? -eq 5 ]

bench: $(TEST_DONE)
	$(BIN)/penstock bench

docs: $(TEST_DONE)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "site/index.html"

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# torch first and by itself: the others then settle around it.
$(BASE_DONE): | $(BIN)/python
	$(PIP) install --constraint requirements/constraints.txt torch
	$(PIP) install --constraint requirements/constraints.txt --requirement requirements/base.txt
	$(PIP) install --no-deps --editable .
	rm -f $(VENV)/.base-* && touch $@

$(TEST_DONE): $(BASE_DONE)
	$(PIP) install --constraint requirements/constraints.txt --requirement requirements/test.txt
	$(PIP) install --no-deps --requirement requirements/test-no-deps.txt
	rm -f $(VENV)/.test-* && touch $@

clean:
	rm -rf $(VENV) demo site build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
