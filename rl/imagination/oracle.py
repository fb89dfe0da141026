"""OracleImaginer: the simulator itself as world model, the ceiling of what imagination can be worth."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from rl.imagination.clip import Futures, Origin, Start
from rl.replay.reader import StoreReader
from robot.env import RobotEnv
from robot.sim.branch import Moment, capture, restore
from robot.types import Float32, Label, Observation

REPLAY_TOLERANCE = 5e-3  # of any proprio entry; contacts amplify the rounding of stored actions


class OracleError(ValueError):
    """A recorded episode cannot be re-enacted; the message says where it parts from what was recorded."""


class OracleImaginer:
    """Re-enacts a recorded episode once, from its layout seed and its executed actions, and keeps its moments.

    Where contacts have amplified the rounding of stored actions, so that it parts from what was recorded or is over
    before it was, the moments end, and a branch from a later one is lost at once. env: an environment of its own,
    configured as the one that recorded. layout_seed: of an episode of a store.
    """

    version = 0

    def __init__(
        self,
        env: RobotEnv,
        readers: Mapping[Origin, StoreReader],
        layout_seed: Callable[[Origin, int], int],
        *,
        keep: int = 200,
    ) -> None:
        self._env, self._readers, self._layout_seed, self._keep = env, readers, layout_seed, keep
        self._moments: dict[tuple[Origin, int], list[Moment]] = {}

    def begin(self, starts: Sequence[Start], seed: int) -> _OracleSession:
        """Branches from real states; `seed` is of no use here, physics has none. Raises OracleError."""
        return _OracleSession(self._env, [self._moment(start) for start in starts])

    def _moment(self, start: Start) -> tuple[Moment, bool]:
        """The moment of a start, or else the last that is certain, and False."""
        key = (start.origin, start.episode)
        if key not in self._moments:
            self._moments[key] = self._re_enact(*key)
            while len(self._moments) > self._keep:
                self._moments.pop(next(iter(self._moments)))
        certain = self._moments[key]
        return certain[min(start.step, len(certain) - 1)], start.step < len(certain)

    def _re_enact(self, origin: Origin, number: int) -> list[Moment]:
        episode = self._readers[origin].episode(number)
        self._env.reset(seed=self._layout_seed(origin, number))
        moments: list[Moment] = []
        for t in range(len(episode)):
            if t:
                _, _, terminated, truncated, _ = self._env.step(episode.action[t - 1])
                if terminated or truncated:
                    break
            moment = capture(self._env)
            gap = float(np.abs(moment.observation.proprio - episode.proprio[t]).max())
            if not gap <= REPLAY_TOLERANCE:
                break
            moments.append(moment)
        if not moments:
            raise OracleError(
                f"{origin.name.lower()} episode {number}: re-enacted in the simulator it begins {gap:.4f} off; the "
                "oracle needs episodes that this very run recorded on its simulated arm"
            )
        return moments


class _OracleSession:
    """Branches that take turns in one environment."""

    def __init__(self, env: RobotEnv, starts: Sequence[tuple[Moment, bool]]) -> None:
        self._env = env
        self._moments = [moment for moment, _ in starts]
        self._lost = [not certain for _, certain in starts]
        self._over = list(self._lost)

    @property
    def observations(self) -> Sequence[Observation]:
        return [moment.observation for moment in self._moments]

    def step(self, actions: Float32) -> Futures:
        """One control step of each branch that is not over."""
        executed, truth = actions.copy(), [Label.UNKNOWN] * len(actions)
        for index, action in enumerate(actions):
            if self._over[index]:
                continue
            restore(self._env, self._moments[index])
            _, _, terminated, truncated, info = self._env.step(action)
            executed[index] = info["action"]
            truth[index] = Label.SUCCESS if info["success"] else Label.FAILURE
            self._over[index] = bool(terminated or truncated)
            self._moments[index] = capture(self._env)
        risk = np.zeros(len(actions), np.float32)
        return Futures(self.observations, executed, risk, truth, over=list(self._over), lost=list(self._lost))
