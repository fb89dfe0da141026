"""ReplayActor: in the actor's place, shows the recorded env steps one by one, at the pace of the learner's updates."""

from __future__ import annotations

from typing import Protocol

from rl.ablation.stream import ShownEpisode
from rl.replay.writer import StoreWriter
from rl.workers.ports import (
    ACTOR_DONE,
    COLLECTED,
    ENV_STEPS,
    LEARNER_DONE,
    STOP,
    TARGET_ENV_STEPS,
    UPDATES,
    CountersPort,
    StepResult,
    WeightsPort,
)


class Episodes(Protocol):
    """What is shown, episode by episode."""

    @property
    def num_episodes(self) -> int: ...

    def episode(self, number: int) -> ShownEpisode: ...


class ReplayActor:
    """One recorded env step per `step()`, written to a store of its own: what is to come, no learner can see.

    The episodes keep their numbers; one that is hidden stands there as a discarded one with a single row. As on the
    robot no episode begins behind the target, and nothing moves before the first policy.
    """

    def __init__(
        self, stream: Episodes, writer: StoreWriter, weights: WeightsPort, counters: CountersPort
    ) -> None:
        self._stream, self._writer, self._weights, self._counters = stream, writer, weights, counters
        self._shown: ShownEpisode | None = None
        self._next_episode = 0
        self._step = 0

    def step(self) -> StepResult:
        """Show the next env step, or say what is waited for."""
        if self._counters.get(STOP):
            return StepResult(waiting="stop requested")
        if self._counters.get(ACTOR_DONE):
            return StepResult(finished=True)
        if self._weights.latest_version() < 0:
            return StepResult(waiting="learner: first policy (warm start)")
        env_steps = self._counters.get(ENV_STEPS)
        if self._shown is None:
            if self._next_episode == self._stream.num_episodes or env_steps >= self._counters.get(
                TARGET_ENV_STEPS
            ):
                return self._end()
            self._shown = self._begin(self._next_episode)
            self._next_episode += 1
            return StepResult()
        self._shown = self._reveal(self._shown, env_steps)
        return StepResult()

    def close(self) -> None:
        """Leave what was shown readable."""
        self._writer.close()

    def _begin(self, number: int) -> ShownEpisode | None:
        shown = self._stream.episode(number)
        self._writer.begin_episode(shown.first)
        if not shown.steps:
            self._writer.end_episode(shown.outcome)
        self._step = 0
        return shown if shown.length else None

    def _reveal(self, shown: ShownEpisode, env_steps: int) -> ShownEpisode | None:
        """One env step; the row first, since it is the count that makes the learner look."""
        if self._step < len(shown.steps):
            self._writer.add(shown.steps[self._step])
            if self._step + 1 == len(shown.steps):
                self._writer.end_episode(shown.outcome)
        self._step += 1
        self._counters.set(ENV_STEPS, env_steps + 1)
        return shown if self._step < shown.length else None

    def _end(self) -> StepResult:
        self._counters.set(COLLECTED, 1)
        if not self._counters.get(LEARNER_DONE):
            return StepResult(waiting=f"learner: update {self._counters.get(UPDATES)}")
        self._counters.set(ACTOR_DONE, 1)
        return StepResult(finished=True)
