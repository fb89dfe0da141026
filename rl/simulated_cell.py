"""SimulatedCell: episodes of the simulated arm that can be continued otherwise from any of their steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robot.env import RobotEnv
from robot.interfaces import RobotFault
from robot.sim.branch import Moment, capture, restore
from robot.types import ACTION_DIM, Clip, Float32, Observation
from worldmodel.audit import Executed

Lead = Callable[[Observation], Float32]  # what a policy or a demonstrator does next


@dataclass(frozen=True)
class PlayedEpisode:
    """moments: T+1, before each step and after the last. action: (T, A), as executed."""

    moments: Sequence[Moment]
    action: Float32


class SimulatedCell:
    """A Cell over the starts of `clip`: `index` counts its clips. One per environment; execution moves it."""

    def __init__(
        self, env: RobotEnv, episodes: Sequence[PlayedEpisode], starts: Sequence[tuple[int, int]]
    ) -> None:
        """starts: (episode, step) of each clip."""
        self._env = env
        self._episodes, self._starts = episodes, starts

    def clip(self, length: int, history: int) -> Clip:
        """What really happened around each start: `length` actions after and `history` before it, padded."""
        parts = [_window(self._episodes[episode], step, length, history) for episode, step in self._starts]
        rows = [
            [self._episodes[episode].moments[k].observation for k in index]
            for (episode, _), (index, _, _) in zip(self._starts, parts, strict=True)
        ]
        views = rows[0][0].images
        action = np.stack([p[1] for p in parts])
        valid = np.stack([p[2] for p in parts])
        return Clip(
            images={view: np.stack([[o.images[view] for o in row] for row in rows]) for view in views},
            proprio=np.stack([[o.proprio for o in row] for row in rows]),
            action=action,
            reward=np.zeros(valid.shape, np.float32),
            terminated=np.zeros(valid.shape, np.bool_),
            valid=valid,
            episode=np.array([episode for episode, _ in self._starts], np.int64),
            step=np.array([step for _, step in self._starts], np.int64),
            history=history,
        )

    def execute(self, index: int, actions: Float32) -> Executed:
        """Execute `actions` (n, A) from the start of clip `index`; the safety governor stays in front of the arm."""
        queue = iter(actions)
        return self.lead(index, lambda _: next(queue), len(actions))

    def lead(self, index: int, leader: Lead, steps: int) -> Executed:
        """Let `leader` act for `steps` steps from the start of clip `index`; `action` are its executed actions."""
        episode, step = self._starts[index]
        observation = restore(self._env, self._episodes[episode].moments[step])
        frames: dict[str, list[NDArray[np.uint8]]] = {view: [] for view in observation.images}
        executed = np.zeros((steps, ACTION_DIM), np.float32)
        valid, over = np.zeros(steps, np.bool_), False
        for t in range(steps):
            if not over:
                try:
                    _, _, terminated, truncated, info = self._env.step(leader(observation))
                    observation = capture(self._env).observation
                    executed[t], valid[t] = info["action"], True
                    over = terminated or truncated
                except RobotFault:  # the governor stopped the arm: nothing follows
                    over = True
            for view, image in observation.images.items():
                frames[view].append(image)
        return Executed({view: np.stack(images) for view, images in frames.items()}, executed, valid)


def play(env: RobotEnv, lead: Lead, seed: int) -> PlayedEpisode:
    """One episode led by `lead`, every moment of it kept; a fault ends it."""
    env.reset(seed=seed)
    moments, actions, over = [capture(env)], [], False
    while not over:
        try:
            _, _, terminated, truncated, info = env.step(lead(moments[-1].observation))
        except RobotFault:
            break
        moments.append(capture(env))
        actions.append(info["action"])
        over = terminated or truncated
    return PlayedEpisode(moments, np.array(actions, np.float32).reshape(-1, ACTION_DIM))


def _window(
    episode: PlayedEpisode, step: int, length: int, history: int
) -> tuple[NDArray[np.int64], Float32, NDArray[np.bool_]]:
    """Observations (h + n + 1,), actions (h + n, A) and which are real, around `step`."""
    last = len(episode.action)
    index = np.clip(np.arange(step - history, step + length + 1), 0, last)
    valid = np.diff(index) > 0
    action = np.zeros((len(valid), episode.action.shape[1]), np.float32)
    action[valid] = episode.action[index[:-1][valid]]
    return index, action, valid
