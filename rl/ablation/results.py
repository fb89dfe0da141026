"""Results of an ablation as they lie on the disk, and one row per arm of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl.ablation.config import AblateConfig
from rl.ablation.ranking import Measured, at, mean_over_seeds
from rl.ablation.recording import Recording
from rl.bench_runs import read_results
from rl.config import ConfigError
from rl.statistics import pooled


@dataclass(frozen=True)
class ArmResults:
    """All seeds of an arm. online: success of the same arm on the robot, None where nobody ran it."""

    arm: str
    results: Sequence[Mapping[str, Any]]
    online: Mapping[str, float] | None

    @property
    def measured(self) -> list[Measured]:
        return [result["measured"] for result in self.results]


def read_result(path: Path) -> dict[str, Any]:
    """Raises ConfigError, naming the file and the remedy, where it is torn."""
    try:
        result = json.loads(path.read_text())
        if not isinstance(result, dict) or "identity" not in result:
            raise ValueError("no result of an ablation")
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path}: cannot be read ({error}); delete it and call `groundhog ablate` again"
        ) from error
    return result


def collect(found: Iterable[tuple[str, Path]], online: Mapping[str, Mapping[str, float]]) -> list[ArmResults]:
    """found: arm and place of every result that may be there."""
    results: dict[str, list[Mapping[str, Any]]] = {}
    for arm, path in found:
        if path.exists():
            results.setdefault(arm, []).append(read_result(path))
    return [ArmResults(arm, of, online.get(arm)) for arm, of in results.items()]


def online_success(config: AblateConfig, recording: Recording) -> dict[str, dict[str, float]]:
    """Success of the bench's arms on this task and kind of observation, all their seeds pooled."""
    if config.online is None:
        return {}
    robot = recording.config.robot
    found: dict[str, list[Mapping[str, Any]]] = {}
    for result in read_results(Path(config.online)):
        if (result["task"], result["obs"]) == (robot.task, robot.obs.value):
            found.setdefault(result["arm"], []).append(result)
    if not found:
        raise ConfigError(
            f"online={config.online}: no result of {robot.task} from {robot.obs.value} there; expected the "
            "results_dir of `groundhog bench`"
        )
    return {arm: _success(results) for arm, results in found.items()}


def _success(results: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    success = pooled((result["final_success"], result["eval_episodes"]) for result in results)
    return {
        "success": success.rate,
        "low": success.low,
        "high": success.high,
        "episodes": success.trials,
        "seeds": len(results),
        "minutes": sum(float(result["minutes"]) for result in results) / len(results),
    }


def row_of(arm: ArmResults) -> dict[str, Any]:
    """One arm, its seeds' mean; success is pooled over the evaluation episodes of all seeds."""
    measured = arm.measured

    def mean(*keys: str) -> float | None:
        return mean_over_seeds(measured, at(*keys))

    return {
        "arm": arm.arm,
        "seeds": len(arm.results),
        "minutes": sum(result["minutes"] for result in arm.results),
        "cpu_minutes": sum(result["cpu_minutes"] for result in arm.results),
        "updates": mean("updates"),
        "real_transitions": mean("shown", "real_transitions"),
        "td_error": mean("td_error"),
        "q_bias": mean("q_bias"),
        "q_rank": mean("q_rank"),
        "overestimation": mean("overestimation"),
        "impossible_share": mean("impossible_share"),
        "corrections_error": mean("corrections", "error"),
        "successes_error": mean("successes", "error"),
        "corrections_gripper": mean("corrections", "gripper_accuracy"),
        "successes_gripper": mean("successes", "gripper_accuracy"),
        "fqe": mean("fqe", "value"),
        "fqe_low": mean("fqe", "low"),
        "fqe_high": mean("fqe", "high"),
        "label_precision": mean("labels", "precision"),
        "label_recall": mean("labels", "recall"),
        "admitted": mean("synthetic", "admitted"),
        "used": mean("synthetic", "used"),
        "ratio_mean": mean("synthetic", "ratio_mean"),
        **_true_success(measured),
        "online": arm.online,
        "policies": [result["policy"] for result in measured],
    }


def _true_success(measured: Sequence[Measured]) -> dict[str, Any]:
    known = [result["success"] for result in measured if result["success"] is not None]
    if not known:
        return {"true_success": None, "wilson_low": None, "wilson_high": None, "eval_episodes": 0}
    success = pooled((one["success"], one["episodes"]) for one in known)
    return {
        "true_success": success.rate,
        "wilson_low": success.low,
        "wilson_high": success.high,
        "eval_episodes": success.trials,
    }
