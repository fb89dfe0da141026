"""EpisodeGoals: where the arm was when an episode succeeded, for any of its rows; the learner's hindsight labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from rl.replay.journal import EpisodeInfo
from robot.types import Float32, Source

Rows = NDArray[np.int64]


class EpisodeGoals:
    """The last proprio of every finished episode that succeeded and was neither discarded nor imagined.

    It is what the robot's own kinematics measured; nothing here was estimated or labelled by hand.
    """

    def __init__(self, proprio_dim: int) -> None:
        # The last entry stands for rows behind the finished episodes: nothing is known of those.
        self._ends: Rows = np.empty(0, np.int64)  # (E,) row behind each finished episode
        self._proprio: Float32 = np.zeros((1, proprio_dim), np.float32)  # (E + 1, P)
        self._known = np.zeros(1, np.bool_)  # (E + 1,)

    def extend(self, finished: Sequence[EpisodeInfo], proprio: Callable[[Rows], Float32]) -> None:
        """Take in the episodes `finished` since; `proprio` reads that of rows (N,) as (N, P)."""
        known = np.array([_is_goal(info) for info in finished], np.bool_)
        ends = np.array([info.end_row for info in finished], np.int64)
        goals = np.zeros((len(finished), self._proprio.shape[1]), np.float32)
        goals[known] = proprio(ends[known] - 1)
        self._ends = np.concatenate([self._ends, ends])
        self._proprio = np.concatenate([self._proprio[:-1], goals, self._proprio[-1:]])
        self._known = np.concatenate([self._known[:-1], known, self._known[-1:]])

    def at(self, rows: Rows) -> tuple[Float32, NDArray[np.bool_]]:
        """goal_proprio (N, P) and goal_known (N,) of the episodes in which `rows` lie; zeros where unknown."""
        # Episodes lie one behind the other from row 0 on: a row's episode is the first that ends behind it.
        episode = np.searchsorted(self._ends, rows, side="right")
        return self._proprio[episode], self._known[episode]


def _is_goal(info: EpisodeInfo) -> bool:
    return info.success and not info.discarded and Source.SYNTHETIC not in info.sources
