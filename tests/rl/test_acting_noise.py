"""benchmarks/acting_noise.py: one row for each run and noise, the same layouts for all, and where it came from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from untrained import untrained_run

from benchmarks import acting_noise
from rl import cli
from rl.agent.acting import ActingPolicy
from rl.config import ConfigError
from rl.runtime.run_dir import RunDir
from rl.statistics import wilson_interval
from robot.types import Float32, Observation


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    return untrained_run(tmp_path_factory.mktemp("runs") / "run")


class OneStep:
    """A cell whose episodes last one step and succeed where the action is large enough."""

    def __init__(self) -> None:
        self.layouts: list[int] = []

    def reset(self, *, seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
        self.layouts.append(seed)
        return {"proprio": np.zeros(1, np.float32)}, self._info(False)

    def step(self, action: Float32) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        done = bool(abs(action[0]) > 0.3)
        return {"proprio": np.zeros(1, np.float32)}, float(done), done, not done, self._info(done)

    def close(self) -> None:
        pass

    def _info(self, success: bool) -> dict[str, Any]:
        return {"timestamp": 0.0, "image_timestamps": {}, "intervened": False, "success": success}


def noisy(_: ActingPolicy, observation: Observation, *, noise: Float32) -> Float32:
    """The noise itself as the action."""
    return noise


def test_each_noise_acts_on_the_same_layouts_and_its_interval_is_told(
    run: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = [OneStep() for _ in range(3)]
    made = iter(cells)
    monkeypatch.setattr(acting_noise, "make_env", lambda *_, **__: next(made))
    monkeypatch.setattr(ActingPolicy, "act", noisy)
    out = tmp_path / "acting_noise.json"
    asked = [str(run.path), "--noises", "0", "0.5", "1", "--episodes", "40"]
    assert acting_noise.main([*asked, "--out", str(out)]) == 0
    result = json.loads(out.read_text())
    assert {"commit", "machine", "versions"} <= result.keys() and "--episodes 40" in result["command"]
    rows = result["rows"]
    assert [(row["run"], row["noise"], row["policy_version"], row["updates"]) for row in rows] == [
        ("run", 0.0, 0, 1),
        ("run", 0.5, 0, 1),
        ("run", 1.0, 0, 1),
    ]
    assert rows[0]["success"] == 0.0 and rows[0]["cycle_steps"] is None
    assert 0.0 < rows[1]["success"] < rows[2]["success"] < 1.0, "larger draws succeed more often"
    for row in rows:
        low, high = wilson_interval(round(40 * row["success"]), 40)
        assert (row["wilson_low"], row["wilson_high"]) == pytest.approx((low, high))
    assert cells[0].layouts == cells[1].layouts == cells[2].layouts and len(set(cells[0].layouts)) == 40


def test_a_row_is_what_evaluate_says(run: RunDir, tmp_path: Path) -> None:
    out, single = tmp_path / "acting_noise.json", tmp_path / "evaluation.json"
    asked = [str(run.path), "--noises", "0.5", "--episodes", "2", "--out", str(out)]
    assert acting_noise.main(asked) == 0
    assert cli.main(["evaluate", f"run={run.path}", "noise=0.5", "episodes=2", f"out={single}"]) == 0
    (row,), said = json.loads(out.read_text())["rows"], json.loads(single.read_text())
    evaluated = {name.removeprefix("eval/"): value for name, value in said.items() if "eval/" in name}
    assert {name: row[name] for name in evaluated} == evaluated


def test_bad_input_is_named_before_anything_is_measured(
    run: RunDir, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acting_noise, "make_env", lambda *_, **__: pytest.fail("it started"))
    with pytest.raises(SystemExit):
        acting_noise.main([str(run.path), "--noises", "1.5"])
    assert "--noises in [0, 1]" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="no such file"):
        acting_noise.main([str(run.path), str(tmp_path / "nowhere")])
