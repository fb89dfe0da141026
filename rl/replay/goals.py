"""EpisodeGoals: where the arm next did what counts, for any row of an episode; the learner's hindsight labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from rl.replay.journal import EpisodeInfo
from rl.replay.rows import Records
from robot.types import Float32, Source

Rows = NDArray[np.int64]


class EpisodeGoals:
    """The proprio at the next change of the gripper, or behind the last one at success: where to grasp, where to put.

    Of finished episodes that succeeded and were neither discarded nor imagined. It is what the robot's own kinematics
    measured; nothing here was estimated or labelled by hand.
    """

    def __init__(self, proprio_dim: int) -> None:
        # The last entry stands for rows behind the finished episodes: nothing is known of those.
        self._ends: Rows = np.empty(0, np.int64)  # (G,) row behind each stretch of rows that share a goal
        self._proprio: Float32 = np.zeros((1, proprio_dim), np.float32)  # (G + 1, P)
        self._known = np.zeros(1, np.bool_)  # (G + 1,)

    def extend(self, finished: Sequence[EpisodeInfo], records: Callable[[Rows], Records]) -> None:
        """Take in the episodes `finished` since; `records` reads rows."""
        stretches = [_ends(info, records) for info in finished]
        known = np.repeat([_is_goal(info) for info in finished], [len(ends) for ends in stretches])
        ends = np.concatenate(stretches)
        goals = np.zeros((len(ends), self._proprio.shape[1]), np.float32)
        goals[known] = records(ends[known] - 1)["observation"]["proprio"]
        self._ends = np.concatenate([self._ends, ends])
        self._proprio = np.concatenate([self._proprio[:-1], goals, self._proprio[-1:]])
        self._known = np.concatenate([self._known[:-1], known, self._known[-1:]])

    def at(self, rows: Rows) -> tuple[Float32, NDArray[np.bool_]]:
        """goal_proprio (N, P) and goal_known (N,) of `rows`; zeros where unknown."""
        # Stretches lie one behind the other from row 0 on: a row's stretch is the first that ends behind it.
        stretch = np.searchsorted(self._ends, rows, side="right")
        return self._proprio[stretch], self._known[stretch]


def _is_goal(info: EpisodeInfo) -> bool:
    return info.success and not info.discarded and Source.SYNTHETIC not in info.sources


def _ends(info: EpisodeInfo, records: Callable[[Rows], Records]) -> Rows:
    """The rows behind an episode's stretches; a stretch ends with the observation in which the gripper was told."""
    if not _is_goal(info):
        return np.array([info.end_row], np.int64)
    rows = np.arange(info.first_row, info.end_row - 1)
    changed = rows[records(rows)["transition"]["gripper_changed"]]
    return np.append(changed + 1, info.end_row)
