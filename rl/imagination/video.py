"""VideoImaginer: a world model shows what would have been seen, a fitted model what the arm would have felt."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rl.imagination.clip import Futures, Start
from rl.imagination.proprio import CrossFittedProprio
from rl.imagination.starts import StartPool
from rl.replay.reader import Rows
from robot.types import Float32, Label, Observation
from worldmodel.clips import split
from worldmodel.counterfactual import Motion
from worldmodel.interface import Rollout, WorldModel, begin

NOT_FITTED = "video: nothing can be imagined before the arm's own readings are fitted"


class VideoImaginer:
    """Branches from real frames. Nobody knows their outcome: every truth is UNKNOWN.

    Actions are clipped to the workspace, as the governor would, before they are imagined. An imagined path ends before
    the model's risk exceeds `max_risk`; a risk that is no number exceeds it. proprio: None until there are transitions
    enough to fit it; nothing can be imagined before. draws: of the readings; one is what the policy sees.
    """

    def __init__(
        self,
        model: WorldModel,
        proprio: CrossFittedProprio | None,
        pool: StartPool,
        motion: Motion,
        *,
        control_period: float,
        max_risk: float,
        draws: int = 1,
    ) -> None:
        self.model, self.proprio = model, proprio
        self._pool, self._motion, self._period, self._max_risk = pool, motion, control_period, max_risk
        self._others = draws - 1

    @property
    def version(self) -> int:
        return self.model.version

    def begin(self, starts: Sequence[Start], seed: int) -> VideoSession:
        """Branches from real states, whose frames before them are the context."""
        if self.proprio is None:
            raise RuntimeError(NOT_FITTED)
        history = self.model.spec.context_frames - 1
        clips = [self._pool.clip(start, 1, history) for start in starts]
        contexts = [split(clip, self.model.spec)[0] for clip in clips]
        context = type(contexts[0])(
            {view: np.concatenate([c.images[view] for c in contexts]) for view in self.model.spec.views},
            np.concatenate([c.past_action for c in contexts]),
        )
        first = [
            Observation(
                images={view: frames[0, history] for view, frames in clip.images.items()},
                proprio=clip.proprio[0, history],
                timestamp=0.0,
            )
            for clip in clips
        ]
        return VideoSession(
            begin(self.model, context, seed),
            self.proprio,
            self._motion,
            first,
            np.array([start.episode for start in starts], np.int64),
            np.random.default_rng([seed, 1]),
            self._period,
            self._max_risk,
            self._others,
        )

    def readings(self, first: Float32, actions: Float32, seed: int) -> Float32:
        """(T + 1, P): `first` (P,) of an episode that nothing was fitted on, and what follows `actions` (T, A)."""
        if self.proprio is None:
            raise RuntimeError(NOT_FITTED)
        rng, elsewhere = np.random.default_rng([seed, 1]), np.zeros(1, np.int64)
        found: Float32 = self.proprio.rollout(first[None], actions[None], rng, elsewhere)[0]
        return found


class VideoSession:
    """Branches side by side, one rollout for all of them."""

    def __init__(
        self,
        rollout: Rollout,
        proprio: CrossFittedProprio,
        motion: Motion,
        first: Sequence[Observation],
        episode: Rows,
        rng: np.random.Generator,
        period: float,
        max_risk: float,
        others: int,
    ) -> None:
        self._rollout, self._proprio, self._motion = rollout, proprio, motion
        self._episode, self._rng = episode, rng
        self._observations = list(first)
        self._period, self._max_risk = period, max_risk
        readings = np.stack([observation.proprio for observation in first])
        self._others = np.repeat(readings[:, None], others, axis=1)  # (B, K, P)

    @property
    def observations(self) -> Sequence[Observation]:
        return self._observations

    def step(self, actions: Float32) -> Futures:
        """One control step of every branch."""
        readings = np.stack([observation.proprio for observation in self._observations])
        executed = actions.clip(-1.0, 1.0)
        for index, pose in enumerate(self._motion.commanded_poses(readings)):
            executed[index, :6] = self._motion.allowed(pose, actions[index, :6].astype(np.float64))
        imagined = self._rollout.step(executed)
        following = self._proprio.step(readings, executed, self._rng, self._episode)
        self._observations = [
            Observation(
                images={view: frames[index, 0] for view, frames in imagined.images.items()},
                proprio=following[index],
                timestamp=observation.timestamp + self._period,
            )
            for index, observation in enumerate(self._observations)
        ]
        self._step_others(executed)
        risk = imagined.risk[:, 0]
        return Futures(
            observations=self._observations,
            executed=executed,
            risk=risk,
            truth=[Label.UNKNOWN] * len(actions),
            over=[False] * len(actions),
            lost=(~(risk <= self._max_risk)).tolist(),
            others=self._others if self._others.size else None,
        )

    def _step_others(self, executed: Float32) -> None:
        """The other draws under the same actions, each on from where it was."""
        branches, others, entries = self._others.shape
        if others:
            following = self._proprio.step(
                self._others.reshape(-1, entries),
                np.repeat(executed, others, axis=0),
                self._rng,
                np.repeat(self._episode, others),
            )
            self._others = following.reshape(branches, others, entries)
