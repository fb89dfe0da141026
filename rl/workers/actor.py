"""Actor: acts in the environment with the newest policy and writes every step to the replay store at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import gymnasium as gym
import numpy as np

from rl.evaluation import Evaluation, EvaluationResult, FailedEpisode, to_observation, to_transition
from rl.replay.journal import EndReason, EpisodeOutcome
from rl.replay.writer import StoreWriter
from rl.workers.pacing import ActorWaits, PacingConfig
from rl.workers.ports import (
    ACTOR_DONE,
    COLLECTED,
    ENV_STEPS,
    HOLD,
    HUMAN,
    LEARNER_DONE,
    OPERATOR_STOP,
    POLICY,
    STOP,
    TARGET_ENV_STEPS,
    UPDATES,
    CountersPort,
    StepResult,
    WeightsPort,
)
from robot.feedback import Reason
from robot.interfaces import RobotFault
from robot.types import Float32, Image, Label, Observation, Source


class ActingAgent(Protocol):
    """What the actor needs of an agent."""

    def act(self, observation: Observation, *, noise: Float32 | None = None) -> Float32: ...

    def load_tensors(self, tensors: Any) -> None: ...


@dataclass(frozen=True)
class ActorConfig:
    """Length of the run and its evaluations, in environment steps.

    max_env_steps: no episode begins after it; the one under way is finished, so a run may end a little later.
    eval_every_env_steps: 0 turns evaluation during training off (a real arm). stop_success, stop_count: end the
    run early after `stop_count` evaluations in a row at `stop_success` or better; 0 = never.
    eval_noise: share of the policy's own spread that acts in evaluations; 0 = its mode. A mode can stand still where
    every sample gets on.
    window: recent transitions over which the correction rate is reported.
    max_faults: named robot faults in a row, without an episode between them that ended by itself, after which the run
    ends with an error instead of trying another reset.
    """

    max_env_steps: int = 1000
    eval_every_env_steps: int = 250
    eval_episodes: int = 20
    final_eval_episodes: int = 50
    eval_noise: float = 0.0
    stop_success: float = 0.95
    stop_count: int = 0
    window: int = 250
    max_faults: int = 20

    def __post_init__(self) -> None:
        if self.max_env_steps < 0 or self.eval_every_env_steps < 0:
            raise ValueError("actor: max_env_steps and eval_every_env_steps must be >= 0")
        if self.stop_count < 0 or self.max_faults < 0:
            raise ValueError("actor: stop_count and max_faults must be >= 0")
        if self.eval_episodes < 1 or self.final_eval_episodes < 1 or self.window < 1:
            raise ValueError("actor: eval_episodes, final_eval_episodes and window must be >= 1")
        if not 0.0 <= self.eval_noise <= 1.0:
            raise ValueError(f"actor: eval_noise must lie in [0, 1], got {self.eval_noise}")
        if not 0 < self.stop_success <= 1:
            raise ValueError(f"actor: stop_success must lie in (0, 1], got {self.stop_success}")


class ActorWorker:
    """One environment step per `step()`; evaluates between episodes; holds the arm whenever it must not act.

    env: with corrections, for training. eval_env: the same robot without corrections. Training episode k of the
    run resets with `first_seed + k`, so a resumed run meets the layouts that the uninterrupted one would have met.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        eval_env: gym.Env[Any, Any],
        agent: ActingAgent,
        writer: StoreWriter,
        weights: WeightsPort,
        counters: CountersPort,
        config: ActorConfig,
        pacing: PacingConfig,
        *,
        warm_updates: int,
        first_seed: int,
        hold: Callable[[], None],
        save_state: Callable[[dict[str, Any]], None],
        before_done: Callable[[], None] = lambda: None,
        on_step: Callable[[Observation, dict[str, Any]], None] = lambda _o, _i: None,
        on_final_frame: Callable[[dict[str, Image]], None] | None = None,
        on_final_failure: Callable[[FailedEpisode], None] | None = None,
    ) -> None:
        self._env, self._eval_env, self._agent, self._writer = env, eval_env, agent, writer
        self._weights, self._counters, self._config, self._pacing = weights, counters, config, pacing
        self._warm_updates = warm_updates
        self._hold, self._save_state, self._before_done, self._on_step = (
            hold,
            save_state,
            before_done,
            on_step,
        )
        self._next_seed = first_seed
        self._on_final_frame, self._on_final_failure = on_final_frame, on_final_failure
        self._observation: Observation | None = None
        self._evaluation: Evaluation | None = None
        self._final = False
        self._version = -1
        self._next_eval = 0
        self._good_evals = 0
        self._return, self._length = 0.0, 0
        self._corrected: deque[bool] = deque(maxlen=config.window)
        self._train_success: deque[bool] = deque(maxlen=20)
        self._periods: deque[float] = deque(maxlen=config.window)
        self._overruns = 0
        self._faults = self._faults_in_a_row = 0
        self._holding = False
        self._state_changed = self._final_over = False
        self._stopped_early_at: int | None = None

    def step(self) -> StepResult:
        """Do the next thing the actor has to do: wait and hold, evaluate, reset, or act once."""
        if self._counters.get(HOLD) or self._counters.get(STOP):
            return self._interrupt()
        if self._counters.get(ACTOR_DONE):
            return StepResult(finished=True)
        if self._state_changed:
            self._save_state(self.state())  # a step later, when the metrics that belong to it are written
            self._state_changed = False
        if self._counters.get(OPERATOR_STOP):
            return self._interrupt()  # no reset may move the arm before the runtime has seen it
        if self._final_over:
            self._before_done()
            self._counters.set(ACTOR_DONE, 1)
            return StepResult(finished=True)
        if not self._apply_newest():
            return self._wait("learner: first policy (warm start)")
        try:
            return self._proceed(self._counters.get(ENV_STEPS))
        except RobotFault as fault:
            if fault.name == Reason.OPERATOR_STOP:
                self._counters.set(OPERATOR_STOP, 1)
            if fault.name in (Reason.OPERATOR_STOP, Reason.INTERRUPTED):
                return self._interrupt()  # on its way to an episode; nothing is wrong with the robot
            return self._end_by_fault(fault)

    def close(self) -> None:
        """Hold the arm, close the open episode, make everything durable; each of them even if one before fails."""
        try:
            self._interrupt()
        finally:
            self._writer.close()

    def state(self) -> dict[str, Any]:
        """Counters that outlive a restart; the random generators belong to the environment and the agent."""
        return {
            "next_eval": self._next_eval,
            "good_evals": self._good_evals,
            "stopped_early_at": self._stopped_early_at,
        }

    def load_state(self, state: dict[str, Any]) -> None:
        self._next_eval, self._good_evals = int(state["next_eval"]), int(state["good_evals"])
        stopped = state["stopped_early_at"]
        if stopped is not None and self._config.stop_count:
            self._stopped_early_at = int(stopped)
            self._counters.set(TARGET_ENV_STEPS, int(stopped))

    def _interrupt(self) -> StepResult:
        """Hold at once; an open episode ends here, truncated, since the arm will not be where the policy left it.

        One of an evaluation begins anew.
        """
        try:
            return self._wait(
                "supervisor: a worker is down" if self._counters.get(HOLD) else "stop requested"
            )
        finally:
            self._leave_episode()

    def _leave_episode(self) -> None:
        if self._evaluation is not None:
            self._evaluation.interrupt()
        if self._observation is not None:
            self._writer.end_episode(EpisodeOutcome(EndReason.STOPPED))
            self._observation = None

    def _proceed(self, env_steps: int) -> StepResult:
        if self._evaluation is not None:
            self._holding = False
            return self._evaluate()
        if self._observation is None:
            return self._between_episodes(env_steps)
        if self._pacing.actor_waits is ActorWaits.STEP and self._ahead(env_steps):
            # On a virtual clock nothing moves meanwhile: a hold would change the episode by the learner's speed.
            return StepResult(waiting=f"learner: update {self._counters.get(UPDATES)}")
        return self._act(self._observation, env_steps)

    def _wait(self, reason: str) -> StepResult:
        if not self._holding:
            self._hold()
            self._holding = True
        return StepResult(waiting=reason)

    def _ahead(self, env_steps: int) -> bool:
        return self._pacing.actor_ahead(env_steps, self._counters.get(UPDATES), self._warm_updates)

    def _apply_newest(self) -> bool:
        """Take over the newest policy, whole, between two steps; an evaluation keeps the one it began with."""
        if self._evaluation is not None:
            return True
        newest = self._weights.latest_version()
        if newest != self._version and newest >= 0:
            weights = self._weights.load(newest)
            self._agent.load_tensors(weights.tensors)
            self._version = weights.version
        return self._version >= 0

    def _between_episodes(self, env_steps: int) -> StepResult:
        if env_steps >= self._counters.get(TARGET_ENV_STEPS):
            self._counters.set(COLLECTED, 1)
            if not self._counters.get(LEARNER_DONE):
                return self._wait("learner: last updates")
            self._apply_newest()
            return self._begin_evaluation(self._config.final_eval_episodes, final=True)
        every = self._config.eval_every_env_steps
        if self._pacing.actor_waits is not ActorWaits.NEVER and self._ahead(env_steps):
            return self._wait(f"learner: update {self._counters.get(UPDATES)}")
        if every and env_steps >= self._next_eval:
            self._next_eval = (env_steps // every + 1) * every
            return self._begin_evaluation(self._config.eval_episodes, final=False)
        self._holding = False
        values, info = self._env.reset(seed=self._next_seed)
        self._next_seed += 1
        self._observation = to_observation(values, info)
        self._writer.begin_episode(self._observation)
        self._on_step(self._observation, info)
        self._return, self._length = 0.0, 0
        return StepResult()

    def _act(self, observation: Observation, env_steps: int) -> StepResult:
        requested = self._agent.act(observation)
        values, reward, terminated, truncated, info = self._env.step(requested)
        intervened = bool(info["intervened"])
        following = to_observation(values, info)
        self._writer.add(
            replace(
                to_transition(
                    observation,
                    following,
                    float(reward),
                    terminated,
                    truncated,
                    info,
                    Source.CORRECTION if intervened else Source.REAL,
                ),
                policy_version=self._version,
                label=_label(bool(terminated), bool(info["success"])),
            )
        )
        self._counters.set(ENV_STEPS, env_steps + 1)
        self._observation = following
        self._return += float(reward)
        self._corrected.append(intervened)
        self._periods.append(float(info["period"]))
        self._overruns += bool(info["overrun"])
        self._on_step(following, info)
        self._length += 1
        if terminated or truncated:
            return self._end_episode(info, terminated=bool(terminated))
        return StepResult(doing=HUMAN if intervened else POLICY)

    def _end_episode(self, info: dict[str, Any], *, terminated: bool) -> StepResult:
        success = bool(info["success"])
        if info.get("discard"):
            self._writer.discard_episode()
        else:
            self._writer.end_episode(_outcome(success, terminated))
        if info.get("stop"):
            self._counters.set(OPERATOR_STOP, 1)
        self._observation = None
        self._faults_in_a_row = 0
        self._train_success.append(success)
        self._state_changed = True
        return StepResult(
            metrics={
                "env/return": self._return,
                "env/episode_steps": self._length,
                "env/success": float(success),
                "env/train_success": float(np.mean(self._train_success)),
                "actor/correction_rate": float(np.mean(self._corrected)),
                "actor/policy_version": self._version,
                "actor/faults": self._faults,
                "time/period_p50_ms": 1e3 * float(np.percentile(self._periods, 50)),
                "time/period_p99_ms": 1e3 * float(np.percentile(self._periods, 99)),
                "time/overruns": self._overruns,
            }
        )

    def _end_by_fault(self, fault: RobotFault) -> StepResult:
        """A named fault ends the episode as truncated; what was recorded stays, and the next reset must clear it."""
        self._hold()
        self._faults += 1
        self._faults_in_a_row += 1
        if self._observation is not None:
            self._writer.end_episode(EpisodeOutcome(EndReason.FAULT, str(fault)))
        self._observation = None
        if self._evaluation is not None:
            self._evaluation.fault()
        if self._faults_in_a_row > self._config.max_faults:
            raise RobotFault(
                fault.name,
                f"more than {self._config.max_faults} faults in a row, the last: {fault.detail}",
            ) from fault
        return StepResult(metrics={"actor/faults": self._faults}, waiting=f"robot fault: {fault}")

    def _begin_evaluation(self, episodes: int, *, final: bool) -> StepResult:
        self._final = final
        self._evaluation = Evaluation(
            self._eval_env,
            self._agent,
            episodes,
            self._config.eval_noise,
            on_frame=self._on_final_frame if final else None,
            on_failure=self._on_final_failure if final else None,
            on_step=self._on_step,
        )
        return StepResult()

    def _evaluate(self) -> StepResult:
        assert self._evaluation is not None
        if not self._evaluation.finished:
            completed = self._evaluation.completed
            self._evaluation.step()
            if self._evaluation.completed > completed:
                self._faults_in_a_row = 0
        if not self._evaluation.finished:
            return StepResult(doing="evaluating: POLICY leads")
        if self._evaluation.stopped:
            self._counters.set(OPERATOR_STOP, 1)
            self._evaluation = None
            return self._interrupt()
        result, self._evaluation = self._evaluation.result(), None
        if self._final:
            self._final_over = True
            return StepResult(metrics=result.as_metrics("final") | {"final/policy_version": self._version})
        self._maybe_stop_early(result)
        self._state_changed = True
        return StepResult(metrics=result.as_metrics() | {"eval/policy_version": self._version})

    def _maybe_stop_early(self, result: EvaluationResult) -> None:
        good = result.success >= self._config.stop_success
        self._good_evals = self._good_evals + 1 if good else 0
        if self._config.stop_count and self._good_evals >= self._config.stop_count:
            self._stopped_early_at = self._counters.get(ENV_STEPS)
            self._counters.set(TARGET_ENV_STEPS, self._stopped_early_at)


def _label(terminated: bool, success: bool) -> Label:
    if success:
        return Label.SUCCESS
    return Label.FAILURE if terminated else Label.UNKNOWN


def _outcome(success: bool, terminated: bool) -> EpisodeOutcome:
    if success:
        return EpisodeOutcome(EndReason.SUCCESS)
    return EpisodeOutcome(EndReason.FAILURE if terminated else EndReason.TIMEOUT)
