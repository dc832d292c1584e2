# From a fresh clone: `make demo` shows it working, `make test` proves it. Both make .venv and install what they need;
# a second run installs nothing unless pyproject.toml or a requirements file changed.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet
PYTEST := $(BIN)/python -m pytest
# Processes that run tests, for two cores: while one waits for what it started, the others have something to do.
# A file's tests stay together, since they share fixtures; tests/conftest.py has the order.
JOBS   ?= 3
SPREAD := --numprocesses $(JOBS) --dist loadfile --no-loadscope-reorder
# A test that hangs says where, ends its process and counts as failed; the others go on in a new one. Slow ones may take
# as long as they like.
LIMIT  := -o faulthandler_timeout=240 -o faulthandler_exit_on_timeout=true

# The same settings as tests/conftest.py: idle OpenMP threads must not spin, and nobody prints banners.
export OMP_WAIT_POLICY      := PASSIVE
export RAY_AUTH_MODE        := disabled
export RAY_USAGE_STATS_ENABLED := 0
export TF_CPP_MIN_LOG_LEVEL := 3
export TF_ENABLE_ONEDNN_OPTS := 0
export KERAS_BACKEND        := tensorflow
# Types that were checked are kept for the next clone too, as compiled kernels are: mypy goes by what a file says.
export MYPY_CACHE_DIR       ?= $(or $(PENSTOCK_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/penstock)/mypy
# Tests start many processes: what they import should be compiled once.
unexport PYTHONDONTWRITEBYTECODE
# Some virtual machines name AMX and do not give it: bfloat16 on the CPU would end the process.
export ONEDNN_MAX_CPU_ISA   := AVX512_CORE_FP16

# A stamp carries the checksum of what decides an installation, so that a checkout that only touches files costs nothing.
SUM       := $(shell cat pyproject.toml requirements/*.txt | cksum | tr ' ' '-')
BASE_DONE := $(VENV)/.base-$(SUM)
DEV_DONE  := $(VENV)/.dev-$(SUM)

.PHONY: demo test check lint format pytest retest changed coverage test-slow test-gpu bench docs wheel test-wheel lock audit clean

demo: $(BASE_DONE)
	$(BIN)/penstock demo --output demo

# Side by side: type checking is done long before the tests are.
test: $(DEV_DONE)
	@$(MAKE) --no-print-directory -j2 lint pytest

# While working: the tests of what changed since main, with what the style and the types have to say.
check: $(DEV_DONE)
	@$(MAKE) --no-print-directory -j2 lint changed

lint: $(DEV_DONE)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(DEV_DONE)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

pytest: $(DEV_DONE)
	$(PYTEST) $(SPREAD) $(LIMIT)

# What failed the last time, one test after another and nothing beside it: does it fail by itself, too?
retest: $(DEV_DONE)
	$(PYTEST) $(LIMIT) --last-failed --last-failed-no-failures none
	@$(MAKE) --no-print-directory lint

changed: $(DEV_DONE)
	@$(PYTEST) --maxfail 5 $(SPREAD) $(LIMIT) $$($(BIN)/python scripts/changed_tests.py)

# Slower than `make test`, and so apart from it.
coverage: $(DEV_DONE)
	$(PYTEST) $(SPREAD) --cov --cov-report=term:skip-covered --cov-report=xml

# Exit status 5 says that no test carries the mark: nothing failed.
test-slow: $(DEV_DONE)
	$(PYTEST) -m slow || [ $$? -eq 5 ]

test-gpu: $(DEV_DONE)
	$(PYTEST) -m gpu || [ $$? -eq 5 ]

bench: $(DEV_DONE)
	$(BIN)/penstock bench

docs: $(DEV_DONE)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "site/index.html"

wheel: $(BASE_DONE)
	rm -rf build dist
	$(PIP) wheel --no-deps --no-build-isolation --wheel-dir dist .

# The wheel by itself, with what it declares and nothing else, away from the sources.
test-wheel: wheel
	rm -rf build/empty && $(PYTHON) -m venv build/empty
	build/empty/bin/python -m pip --quiet install --require-hashes --no-deps --requirement requirements/base.txt
	build/empty/bin/python -m pip --quiet install dist/*.whl
	cd build/empty && bin/penstock synth day.tsv --rows 2000 && \
		bin/penstock etl day.tsv --preset criteo --output features && bin/penstock inspect features

# The files under requirements/ from the lists in pyproject.toml. Versions stay unless UPDATE=--upgrade.
lock: $(BIN)/python
	$(PIP) install uv
	$(BIN)/uv pip compile --quiet pyproject.toml --all-extras --group dev $(UPDATE) \
		--constraint requirements/torch.txt --output-file requirements/dev.txt
	$(BIN)/uv pip compile --quiet pyproject.toml --extra torch \
		--constraint requirements/torch.txt --constraint requirements/dev.txt --output-file requirements/base.txt

# Known weaknesses of what is locked; asks a public database over the network.
audit:
	$(PYTHON) -m venv $(VENV)-audit
	$(VENV)-audit/bin/python -m pip --quiet install pip-audit
	$(VENV)-audit/bin/pip-audit --disable-pip --require-hashes --requirement requirements/dev.txt

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# The locks name every package, so nothing is left to resolve. torch comes last and by itself, with what its build brings.
$(BASE_DONE): | $(BIN)/python
	$(PIP) install --require-hashes --no-deps --requirement requirements/base.txt
	$(PIP) install --requirement requirements/torch.txt
	$(PIP) install --no-deps --no-build-isolation --editable .
	$(BIN)/penstock doctor --compile
	rm -f $(VENV)/.base-* && touch $@

$(DEV_DONE): $(BASE_DONE)
	$(PIP) install --require-hashes --no-deps --requirement requirements/dev.txt
	rm -f $(VENV)/.dev-* && touch $@

clean:
	rm -rf $(VENV) $(VENV)-audit demo site build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage* coverage.xml
