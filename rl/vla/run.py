"""VLARun: steps, evaluations and checkpoints of a post-training run, continued bit by bit after a stop."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rl import checkpoint
from rl.checkpoint import CheckpointError
from rl.evaluation import EvaluationResult
from rl.metrics import MetricsLog
from rl.vla.acting import evaluate_policy
from rl.vla.assemble import Assembled
from rl.vla.config import PostTrainVLAConfig
from rl.vla.policy import PolicyError

WORKER = "vla"  # in metrics.jsonl


class VLARun:
    """Runs a trainer to its last step. A step that was cut short is done again, and so are its robot's episodes."""

    def __init__(
        self,
        root: Path,
        config: PostTrainVLAConfig,
        parts: Assembled,
        log: MetricsLog,
        *,
        monotonic: Callable[[], float],
        say: Callable[[str], None],
    ) -> None:
        self._root, self._config, self._parts, self._log = root, config, parts, log
        self._monotonic, self._say = monotonic, say
        self._curve: dict[str, list[dict[str, float]]] = {task: [] for task in config.tasks}
        self._seconds = 0.0  # of earlier sessions
        self._started = monotonic()

    def resume(self) -> None:
        """Continue from the newest whole checkpoint, if there is one; raises CheckpointError, PolicyError."""
        found = checkpoint.load_latest(self._root / "checkpoints")
        if found is None:
            return
        try:
            self._parts.trainer.load(found.tensors, found.meta["trainer"])
            self._curve, self._seconds = found.meta["curve"], found.meta["seconds"]
        except (KeyError, PolicyError) as error:
            raise CheckpointError(
                f"{found.path}: does not fit this run ({error}); resume with the settings it was started with"
            ) from error
        self._say(f"continuing behind step {self._parts.trainer.steps}")

    def run(self) -> dict[str, Any]:
        """All steps that are left; returns the result, which is also in result.json."""
        loop, trainer = self._config.loop, self._parts.trainer
        if trainer.steps == 0 and not any(self._curve.values()) and loop.eval_episodes and loop.steps:
            self._evaluate(loop.eval_episodes)
        while trainer.steps < loop.steps:
            metrics = trainer.step()
            self._write(metrics)
            if trainer.steps % loop.save_every == 0 or trainer.steps == loop.steps:
                self._save()
            if loop.eval_every and trainer.steps % loop.eval_every == 0 and trainer.steps < loop.steps:
                self._evaluate(loop.eval_episodes)
                self._save()
            self._say(
                f"step {trainer.steps} of {loop.steps}: {metrics['vla/robot_executions']:.0f} executions, "
                f"{metrics['vla/groups_imagined']:.0f} groups imagined, {metrics['vla/groups_teaching']:.0f} teach"
            )
        results = self._evaluate(loop.final_eval_episodes)
        return self._result(results)

    def _evaluate(self, episodes: int) -> dict[str, EvaluationResult]:
        parts, results = self._parts, {}
        for task, env in parts.envs.items():
            result = results[task] = evaluate_policy(parts.policy, parts.builder, env, task, episodes)
            metrics = result.as_metrics()
            point = {name: metrics[f"eval/{name}"] for name in ("success", "wilson_low", "wilson_high")}
            self._curve[task].append({**self._counts(), "episodes": float(episodes), **point})
            self._write({name.replace("eval/", f"eval/{task}/"): value for name, value in metrics.items()})
            self._say(
                f"{task}: success {result.success:.0%} of {episodes} "
                f"(95% interval {point['wilson_low']:.0%}-{point['wilson_high']:.0%})"
            )
        return results

    def _counts(self) -> dict[str, float]:
        """What was paid so far."""
        trainer = self._parts.trainer
        return {
            "step": trainer.steps,
            "updates": trainer.updates,
            "robot_executions": trainer.robot.executions,
            "robot_seconds": round(trainer.robot.seconds, 3),
            "minutes": round(self._elapsed() / 60.0, 3),
        }

    def _elapsed(self) -> float:
        return self._seconds + self._monotonic() - self._started

    def _write(self, values: dict[str, float]) -> None:
        trainer = self._parts.trainer
        self._log.write(WORKER, trainer.robot.steps, trainer.updates, values)

    def _save(self) -> None:
        trainer = self._parts.trainer
        meta = {
            "updates": trainer.updates,
            "trainer": trainer.state(),
            "curve": self._curve,
            "seconds": self._elapsed(),
        }
        checkpoint.save(self._root / "checkpoints", trainer.tensors(), meta)

    def _result(self, results: dict[str, EvaluationResult]) -> dict[str, Any]:
        """One row per task, as benchmarks/results/vla.json has them."""
        rows = []
        for task, result in results.items():
            *_, last = self._curve[task]
            rows.append(
                {
                    "task": task,
                    "arm": self._config.arm,
                    "seed": self._config.seed,
                    "success": result.success,
                    "wilson_low": last["wilson_low"],
                    "wilson_high": last["wilson_high"],
                    "episodes": result.episodes,
                    **self._counts(),
                    "curve": self._curve[task],
                }
            )
        return {"rows": rows}
