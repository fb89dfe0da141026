"""ProprioModel: what the arm's own sensors would have read, fitted on real transitions; video shows no joints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesRegressor

from rl.replay.reader import Rows, StoreReader
from robot.tasks import PROPRIO_NAMES
from robot.types import Array, Float32

GRIPPER_THRESHOLD = 0.5  # of the action entry, as the governor has it
GRIPPER_COMMAND = PROPRIO_NAMES.index("gripper_command")


@dataclass(frozen=True)
class ProprioConfig:
    """ridge: of the regression, in units of the features' variance. newest: transitions that it is fitted on.

    trees, leaf: of the forest that finds transitions alike, and the fewest of them in a leaf. folds: of episodes, each
    imagined by a fit on the others. refit_episodes: fitted anew after so many further ones. noise: readings scatter as
    those of alike transitions do; without it a critic could tell imagined states by their smoothness.
    """

    ridge: float = 1e-4
    newest: int = 2000
    trees: int = 30
    leaf: int = 3
    folds: int = 3
    refit_episodes: int = 5
    noise: bool = True

    def __post_init__(self) -> None:
        if not self.ridge > 0 or min(self.newest, self.trees, self.leaf, self.refit_episodes) < 1:
            raise ValueError(
                "proprio: expected ridge > 0 and newest, trees, leaf and refit_episodes >= 1, got "
                f"{self.ridge}, {self.newest}, {self.trees}, {self.leaf}, {self.refit_episodes}"
            )
        if self.folds < 2:
            raise ValueError(f"proprio.folds: expected >= 2, got {self.folds}")


class TooFewTransitionsError(ValueError):
    """There is too little to fit the arm's readings on; the message says how much is needed."""


class ProprioModel:
    """p' = p + W [p, a, |a|, p a_gripper, 1] + residual, by ridge regression on real transitions.

    In free space the regression is exact to a millimetre; in contact, where commands move nothing, it is no better
    than an arm that stays. So the residual is one of a real transition alike: extremely randomised trees (Geurts et al.
    2006) part the features by what they say of the residual, and a leaf of one of them is drawn from. Whatever holds
    exactly among readings, as that the lag is what is left of the commanded way, holds for drawn residuals too.

    The held gripper command is no measurement: it is what was commanded last. Force and torque cannot be had this way;
    this proprio has none.
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
        if len(proprio) < _fewest(proprio, action):
            raise TooFewTransitionsError(
                f"proprio model: expected at least {_fewest(proprio, action)} transitions to fit, got {len(proprio)}; "
                "record more demonstrations"
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
        self._alike = _Alike(x, change - self._offset - x @ self._weights, config)
        self._lower, self._upper = following.min(axis=0), following.max(axis=0)

    def step(self, proprio: Float32, action: Float32, rng: np.random.Generator) -> Float32:
        """Readings (B, P) behind `action` (B, A), within the range of real ones."""
        x = (_features(proprio, action) - self._mean) / self._scale
        following = proprio + self._offset + x @ self._weights + self._alike.residuals(x, rng)
        # A linear model runs away where it is far from all that was measured.
        margin = self._upper - self._lower
        clipped: Float32 = np.clip(following, self._lower - margin, self._upper + margin).astype(np.float32)
        if self._command is not None:
            wish = action[:, -1]
            held = np.where(np.abs(wish) >= GRIPPER_THRESHOLD, np.sign(wish), proprio[:, self._command])
            clipped[:, self._command] = held
        return clipped


class _Alike:
    """Residuals of a regression by the features behind them: drawn from a leaf, or without noise their mean."""

    def __init__(self, x: Array, residuals: Array, config: ProprioConfig) -> None:
        """x: (N, F) features; residuals: (N, P)."""
        self._all, self._noise = residuals, config.noise
        self._unit = residuals.std(axis=0) + 1e-12
        self._forest = ExtraTreesRegressor(config.trees, min_samples_leaf=config.leaf, random_state=0)
        self._forest.fit(x, residuals / self._unit)
        leaves = self._forest.apply(x)
        self._order = np.argsort(leaves, axis=0, kind="stable")  # samples by leaf, one column per tree
        self._sorted = np.take_along_axis(leaves, self._order, axis=0)

    def residuals(self, x: Array, rng: np.random.Generator) -> Array:
        """(B, P) for features (B, F)."""
        if not self._noise:
            mean: Array = self._forest.predict(x) * self._unit
            return mean
        leaves = self._forest.apply(x)
        trees = rng.integers(leaves.shape[1], size=len(x))
        share = rng.random(len(x))
        drawn = [self._draw(tree, leaves[row, tree], share[row]) for row, tree in enumerate(trees)]
        chosen: Array = self._all[drawn]
        return chosen

    def _draw(self, tree: int, leaf: int, share: float) -> int:
        """The sample at `share` in [0, 1) of those in a leaf."""
        first, end = np.searchsorted(self._sorted[:, tree], (leaf, leaf + 1))
        return int(self._order[first + int(share * (end - first)), tree])


class CrossFittedProprio:
    """A ProprioModel per fold of episodes, fitted on the others; it imagines what begins in that fold.

    The forest knows its own transitions: a replay of one would be told what really came of it, and what replays prove
    would not hold for actions that nobody has taken.
    """

    def __init__(
        self,
        proprio: Float32,
        action: Float32,
        following: Float32,
        episode: Rows,
        config: ProprioConfig,
        *,
        command_index: int | None = None,
    ) -> None:
        """As ProprioModel; episode: (N,) numbers. A fold beside which there is too little is fitted on all.

        Raises TooFewTransitionsError.
        """
        newest = slice(-config.newest, None)
        fold = episode[newest] % config.folds
        self._models = []
        for left_out in range(config.folds):
            others = fold != left_out
            kept = others if others.sum() >= _fewest(proprio, action) else slice(None)
            before, acted, after = (part[newest][kept] for part in (proprio, action, following))
            self._models.append(ProprioModel(before, acted, after, config, command_index=command_index))

    def step(self, proprio: Float32, action: Float32, rng: np.random.Generator, episode: Rows) -> Float32:
        """Readings (B, P) behind `action` (B, A) of branches that began in the episodes `episode` (B,)."""
        following, fold = np.empty_like(proprio), episode % len(self._models)
        for number in np.unique(fold):
            mine = fold == number
            following[mine] = self._models[number].step(proprio[mine], action[mine], rng)
        return following

    def rollout(self, proprio: Float32, actions: Float32, rng: np.random.Generator, episode: Rows) -> Float32:
        """(B, T + 1, P): `proprio` (B, P), and what follows `actions` (B, T, A) step by step; see `step`."""
        found = [proprio]
        for t in range(actions.shape[1]):
            found.append(self.step(found[-1], actions[:, t], rng, episode))
        return np.stack(found, axis=1)


def fit_proprio(readers: Sequence[StoreReader], config: ProprioConfig) -> CrossFittedProprio:
    """Fitted on the newest real transitions of some stores; raises TooFewTransitionsError."""
    columns = [transitions(reader, config.newest) for reader in readers]
    before, action, after, episode = (np.concatenate(parts) for parts in zip(*columns, strict=True))
    return CrossFittedProprio(before, action, after, episode, config, command_index=GRIPPER_COMMAND)


def transitions(reader: StoreReader, newest: int | None = None) -> tuple[Float32, Float32, Float32, Rows]:
    """Of the newest transitions, None: of all: readings (N, P), actions (N, A), readings after them, episodes (N,)."""
    rows = reader.valid_starts[: reader.num_settled][-newest if newest else None :]
    records = reader.records(rows)
    seen = records["observation"]
    after = reader.records(rows + 1)["observation"]["proprio"]
    return seen["proprio"], records["transition"]["action"], after, seen["episode"].astype(np.int64)


def _fewest(proprio: Float32, action: Float32) -> int:
    """Transitions without which nothing is fitted."""
    fewest: int = 2 * (proprio.shape[1] + action.shape[1])
    return fewest


def _features(proprio: Float32, action: Float32) -> NDArray[np.float64]:
    """(N, F). The gripper moves differently by the command it is given and by how far it is open."""
    p, a = proprio.astype(np.float64), action.astype(np.float64)
    return np.concatenate((p, a, np.abs(a), p * a[:, -1:]), axis=1)
