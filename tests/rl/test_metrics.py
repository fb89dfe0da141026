"""Metrics file and success intervals."""

import sys
from pathlib import Path
from unittest.mock import MagicMock, call

import pytest

from rl.metrics import MetricsLog, MetricsTail, read_metrics
from rl.runtime.run_dir import RunDir
from rl.runtime.wandb_log import WandbLog
from rl.schemas import TrainConfig, WandbMode
from rl.statistics import wilson_interval


def test_records_come_back_and_a_cut_line_costs_only_itself(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    log = MetricsLog(path, lambda: 5.0)
    log.write("actor", 10, 20, {"env/success": 1.0, "bad": float("nan")})
    log.write("actor", 11, 20, {})
    with path.open("a") as file:
        file.write('{"env_steps": 12, "upda\n')
    log.write("learner", 12, 24, {"learner/q_mean": 0.5})
    records = read_metrics(path)
    assert [r["env_steps"] for r in records] == [10, 12]
    assert records[0]["bad"] is None
    assert records[1]["learner/q_mean"] == 0.5


def test_a_line_still_being_written_is_read_once_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    tail = MetricsTail(path)
    assert list(tail.read()) == []
    with path.open("a") as file:
        file.write('{"a": 1}\n{"a": 2')
        file.flush()
        assert [r["a"] for r in tail.read()] == [1]
        file.write("}\n")
    assert [r["a"] for r in tail.read()] == [2]


@pytest.mark.parametrize("line", [b"\xff\xfe{}", b"5", b"[1]", b"null", bytes(40), b"{"])
def test_a_damaged_line_costs_only_itself(line: bytes, tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"a": 1}\n' + line + b'\n{"a": 2}\n')
    assert [r["a"] for r in read_metrics(path)] == [1, 2]


def test_wandb_draws_everything_against_env_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = MagicMock()
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    log = WandbLog(RunDir(tmp_path), TrainConfig(wandb=WandbMode.OFFLINE))
    defined = wandb.init.return_value.define_metric
    assert defined.call_args_list == [call("env_steps"), call("*", step_metric="env_steps")]
    log.log({"env_steps": 3, "learner/q_mean": 0.5})
    wandb.init.return_value.log.assert_called_once_with({"env_steps": 3, "learner/q_mean": 0.5})


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [(0, 20, 0.0, 0.161), (50, 50, 0.929, 1.0), (42, 100, 0.328, 0.518)],
)
def test_wilson_interval_matches_published_values(
    successes: int, trials: int, low: float, high: float
) -> None:
    assert wilson_interval(successes, trials) == (pytest.approx(low, abs=2e-3), pytest.approx(high, abs=2e-3))


def test_wilson_interval_refuses_impossible_counts() -> None:
    with pytest.raises(ValueError, match="0 <= successes <= trials"):
        wilson_interval(5, 4)
