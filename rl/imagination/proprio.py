"""ProprioModel: what the arm's own sensors would have read, fitted on real transitions; video shows no joints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rl.replay.reader import StoreReader
from robot.tasks import PROPRIO_NAMES
from robot.types import Array, Float32

GRIPPER_THRESHOLD = 0.5  # of the action entry, as the governor has it
GRIPPER_COMMAND = PROPRIO_NAMES.index("gripper_command")


@dataclass(frozen=True)
class ProprioConfig:
    """ridge: of the regression, in units of the features' variance. newest: transitions that it is fitted on.

    noise: readings scatter around the regression as real ones do; without it a critic could tell imagined states by
    their smoothness.
    """

    ridge: float = 1e-4
    newest: int = 2000
    noise: bool = True

    def __post_init__(self) -> None:
        if not self.ridge > 0 or self.newest < 1:
            raise ValueError(f"proprio: expected ridge > 0 and newest >= 1, got {self.ridge}, {self.newest}")


class TooFewTransitionsError(ValueError):
    """There is too little to fit the arm's readings on; the message says how much is needed."""


class ProprioModel:
    """p' = p + W [p, a, |a|, p a_gripper, 1] + residual, by ridge regression on real transitions.

    The residual is drawn from those of the fit. The held gripper command is no measurement: it is what was commanded
    last. Force and torque cannot be had this way; this proprio has none.
    """

    def __init__(
        self,
        proprio: Float32,
        action: Float32,
        following: Float32,
        config: ProprioConfig,
        *,
        command_index: int | None = None,
    ) -> None:
        """proprio, following: (N, P) before and after action (N, A); command_index: of the held gripper command.

        Raises TooFewTransitionsError.
        """
        self._command = command_index
        if len(proprio) < 2 * (proprio.shape[1] + action.shape[1]):
            raise TooFewTransitionsError(
                f"proprio model: expected at least {2 * (proprio.shape[1] + action.shape[1])} transitions to fit, got "
                f"{len(proprio)}; record more demonstrations"
            )
        newest = slice(-config.newest, None)
        proprio, action, following = proprio[newest], action[newest], following[newest]
        features = _features(proprio, action)
        self._mean, self._scale = features.mean(axis=0), features.std(axis=0) + 1e-9
        x = (features - self._mean) / self._scale
        change = following.astype(np.float64) - proprio
        self._offset = change.mean(axis=0)
        gram = x.T @ x / len(x) + config.ridge * np.eye(x.shape[1])
        self._weights: Array = np.linalg.solve(gram, x.T @ (change - self._offset) / len(x))
        self._residuals: Array = (
            change - self._offset - x @ self._weights if config.noise else np.zeros((1, 1))
        )
        self._lower, self._upper = following.min(axis=0), following.max(axis=0)

    @property
    def error(self) -> Array:
        """Root mean square residual of each entry, (P,), in its own unit."""
        rms: Array = np.sqrt(np.square(self._residuals).mean(axis=0))
        return rms

    def step(self, proprio: Float32, action: Float32, rng: np.random.Generator) -> Float32:
        """Readings (B, P) behind `action` (B, A), within the range of real ones."""
        x = (_features(proprio, action) - self._mean) / self._scale
        drawn = self._residuals[rng.integers(len(self._residuals), size=len(proprio))]
        following = proprio + self._offset + x @ self._weights + drawn
        # A linear model runs away where it is far from all that was measured.
        margin = self._upper - self._lower
        clipped: Float32 = np.clip(following, self._lower - margin, self._upper + margin).astype(np.float32)
        if self._command is not None:
            wish = action[:, -1]
            held = np.where(np.abs(wish) >= GRIPPER_THRESHOLD, np.sign(wish), proprio[:, self._command])
            clipped[:, self._command] = held
        return clipped


def fit_proprio(readers: Sequence[StoreReader], config: ProprioConfig) -> ProprioModel:
    """Fitted on the newest real transitions of some stores; raises TooFewTransitionsError."""
    columns = [_transitions(reader, config.newest) for reader in readers]
    before, action, after = (np.concatenate(parts) for parts in zip(*columns, strict=True))
    return ProprioModel(before, action, after, config, command_index=GRIPPER_COMMAND)


def _transitions(reader: StoreReader, newest: int) -> tuple[Float32, Float32, Float32]:
    rows = reader.valid_starts[: reader.num_settled][-newest:]
    records = reader.records(rows)
    after = reader.records(rows + 1)["observation"]["proprio"]
    return records["observation"]["proprio"], records["transition"]["action"], after


def _features(proprio: Float32, action: Float32) -> NDArray[np.float64]:
    """(N, F). The gripper moves differently by the command it is given and by how far it is open."""
    p, a = proprio.astype(np.float64), action.astype(np.float64)
    return np.concatenate((p, a, np.abs(a), p * a[:, -1:]), axis=1)
