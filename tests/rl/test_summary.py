"""The summary of a run: BC line, failures by class, value of the critic; and that its picture is drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl.metrics import MetricsLog
from rl.replay.schema import StoreSchema
from rl.replay.writer import StoreWriter
from rl.summary import bc_line, draw, summarise
from robot.types import ProprioSpec

FACTS: dict[str, Any] = {"task": "press", "bc_updates": 100}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Metrics and an empty store as a short run leaves them."""
    spec = ProprioSpec(("x",), *(np.ones(1, np.float32) for _ in range(3)))
    StoreWriter(tmp_path / "real", StoreSchema(task="press", views={}, proprio=spec)).close()
    log = MetricsLog(tmp_path / "metrics.jsonl", lambda: 0.0)
    for env_steps, success in ((0, 0.4), (50, 0.9)):
        log.write("actor", env_steps, 10, {"eval/success": success, "eval/mean_steps": 30 - env_steps / 5})
    log.write("learner", 30, 10, {"learner/q_mean": 0.1, "learner/entropy": 2.0, "learner/value_bias": 0.3})
    log.write("learner", 50, 20, {"learner/value_bias": -0.1, "learner/value_correlation": 0.7})
    final = {"final/success": 0.8, "final/wilson_low": 0.6, "final/wilson_high": 0.9, "final/episodes": 10}
    log.write("actor", 50, 20, final | {"final/failures/jammed": 2})
    log.close()
    return tmp_path


def test_the_numbers_of_the_diagnostics(run: Path) -> None:
    summary = summarise(run / "metrics.jsonl", run / "real", 10.0, FACTS)
    assert summary["bc_line"] == 0.4
    assert summary["failures"] == {"jammed": 2}
    assert (summary["value_bias"], summary["value_correlation"]) == (-0.1, 0.7)


def test_without_a_warm_start_there_is_no_bc_line(run: Path) -> None:
    summary = summarise(run / "metrics.jsonl", run / "real", 10.0, FACTS | {"bc_updates": 0})
    assert summary["bc_line"] is None


def test_a_run_without_robot_steps_is_its_own_bc_line() -> None:
    assert bc_line([{"env_steps": 0, "final/success": 0.6}]) == 0.6
    assert bc_line([{"env_steps": 20, "eval/success": 0.6}]) is None


def test_the_picture_is_drawn_with_and_without_data(run: Path) -> None:
    path = draw(run / "summary.png", "press", run / "metrics.jsonl", run / "real", {}, bc_line=0.4)
    assert path.stat().st_size > 1000
    empty = draw(run / "empty.png", "press", run / "nothing.jsonl", run / "real", {}, bc_line=None)
    assert empty.stat().st_size > 1000
