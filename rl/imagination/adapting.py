"""Adapting: the world model goes on learning beside the robot, and says how far its newest version is to be trusted."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from worldmodel.adapt import Champion, ScheduleConfig
from worldmodel.interface import ClipSource, WorldModel, WorldModelError


@dataclass(frozen=True)
class TrustConfig:
    """From held-out scores to the gate of the world model.

    gain_db: PSNR above that of the copied last frame at which the gate is fully open; at no gain it is shut.
    following_shut, following_open: action-following scores between which it opens. The smaller of both counts. A model
    that ignores its actions scores .02 with a deviation of .03; the truth itself scores .3 to .8, as not every action
    of another clip can be followed (benchmarks/following.py).
    """

    gain_db: float = 4.0
    following_shut: float = 0.1
    following_open: float = 0.4

    def __post_init__(self) -> None:
        if not (self.gain_db > 0.0 and 0.0 <= self.following_shut < self.following_open <= 1.0):
            raise ValueError(
                f"trust: expected gain_db > 0 and 0 <= following_shut < following_open <= 1, got {self}"
            )

    def gate(self, scores: Mapping[str, float]) -> float:
        """In [0, 1]; 0 where a score is missing or not finite: a model that was not measured is not trusted."""
        needed = [scores.get(name, math.nan) for name in ("psnr", "copy_psnr", "following")]
        if not all(math.isfinite(score) for score in needed):
            return 0.0
        gain = (scores["psnr"] - scores["copy_psnr"]) / self.gain_db
        span = self.following_open - self.following_shut
        followed = (scores["following"] - self.following_shut) / span
        return float(np.clip(min(gain, followed), 0.0, 1.0))


class Adapting:
    """A few updates of the challenger at a time; at the end of a round it competes for the place of the champion.

    What imagines is always a published version, never the challenger. new_episodes: finished since the run began.
    fitted: the first fit and the rounds of the episodes so far are behind it. publish: another version imagines from
    now on. trust: how the version that imagines does on held-out clips, measured where a session begins with one and
    after each contest, whoever won it.
    """

    def __init__(
        self,
        champion: Champion,
        schedule: ScheduleConfig,
        clips: ClipSource,
        *,
        fitted: bool,
        new_episodes: Callable[[], int],
        published: Callable[[int], WorldModel],
        publish: Callable[[WorldModel], None],
        trust: Callable[[Mapping[str, float]], None],
        rng: np.random.Generator,
        chunk: int = 4,
    ) -> None:
        self._champion, self._schedule, self._clips = champion, schedule, clips
        self._new_episodes, self._rng, self._chunk = new_episodes, rng, chunk
        self._updates = self._all_due() if fitted else 0
        self._published, self._publish, self._trust = published, publish, trust
        self._left = 0
        self._fitted = fitted
        self._measured = not fitted
        self._rests = False

    def step(self) -> dict[str, float]:
        """At most `chunk` updates, a contest, or once the scores of the version there is; {} where nothing is due.

        After the first fit every other step is left to imagination: a slow model learns slowly, and imagines.
        """
        if not self._measured:
            self._measured = True
            if scores := self._measure():
                return scores
        if self._rests:
            self._rests = False
            return {}
        if self._left == 0:
            self._left = self._schedule.due(self._new_episodes(), self._updates)
            if self._left == 0:
                return {}
        steps = min(self._chunk, self._left)
        metrics = self._champion.train(self._clips, steps, self._rng)
        self._updates += steps
        self._left -= steps
        self._rests = self._fitted
        if self._left:
            return metrics
        # Rounds that were missed meanwhile are not made up for: the newest episodes are what counts.
        self._updates = max(self._updates, self._all_due())
        return metrics | self._compete()

    def _measure(self) -> dict[str, float]:
        """Trust the newest version by this run's clips, whatever its file says; none where those are too short."""
        try:
            scores = self._champion.measure().named()
        except WorldModelError:
            scores = {}
        self._trust(scores)
        return _told(scores)

    def _all_due(self) -> int:
        """Updates that the schedule has asked for so far, the first fit included."""
        schedule = self._schedule
        return schedule.fit_steps + self._new_episodes() // schedule.every_episodes * schedule.steps

    def _compete(self) -> dict[str, float]:
        verdict = self._champion.compete()
        self._fitted = True
        if verdict.published:
            self._publish(self._published(verdict.version))
        imagines = verdict.challenger if verdict.published else verdict.champion
        self._trust({} if imagines is None else imagines.named())
        return _told(verdict.challenger.named()) | {
            "world_model/version": float(verdict.version),
            "world_model/published": float(verdict.published),
        }


def _told(scores: Mapping[str, float]) -> dict[str, float]:
    return {f"world_model/held_out_{name}": value for name, value in scores.items()}
