"""ProprioModel: what the arm's own sensors would have read, fitted on real transitions; video shows no joints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.neural_network import MLPRegressor
from threadpoolctl import threadpool_limits

from rl.replay.reader import Rows, StoreReader
from robot.tasks import PROPRIO_NAMES
from robot.types import Array, Float32

GRIPPER_THRESHOLD = 0.5  # of the action entry, as the governor has it
GRIPPER_COMMAND = PROPRIO_NAMES.index("gripper_command")
FAR = 8.0  # standard deviations, beyond which a feature is no farther off
BATCH = 128  # transitions
APART = 5  # of the episodes of recordings every so manieth is not learned from


@dataclass(frozen=True)
class ProprioConfig:
    """ridge: of the regression, in units of the features' variance. newest: of the run's transitions, so many are used.

    trees, leaf: of the forest that finds transitions alike, and the fewest of them in a leaf. folds: of episodes, each
    imagined by a fit on the others. refit_episodes: fitted anew after so many further ones. noise: readings scatter as
    those of alike transitions do; without it a critic could tell imagined states by their smoothness.
    hidden, epochs: layers and training of the network, where there are recordings to fit one on. draws: of readings for
    every imagined path, by all of which a reward model judges it: one may sink through a table by chance.
    """

    ridge: float = 1e-4
    hidden: tuple[int, ...] = (256, 128)
    epochs: int = 20
    draws: int = 5
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
        if not self.hidden or min(*self.hidden, self.epochs, self.draws) < 1:
            raise ValueError(
                f"proprio: expected hidden layers, epochs and draws >= 1, got {list(self.hidden)}, {self.epochs}, "
                f"{self.draws}"
            )
        if self.folds < 2:
            raise ValueError(f"proprio.folds: expected >= 2, got {self.folds}")


class TooFewTransitionsError(ValueError):
    """There is too little to fit the arm's readings on; the message says how much is needed."""


class Ridge:
    """Change of the readings: W [p, a, |a|, p a_gripper, 1], by ridge regression. Knows free space."""

    def __init__(self, proprio: Float32, action: Float32, following: Float32, config: ProprioConfig) -> None:
        """proprio, following: (N, P) before and after action (N, A)."""
        features = _features(proprio, action)
        self._mean, self._scale = features.mean(axis=0), features.std(axis=0) + 1e-9
        x, change = self.inputs(proprio, action), following.astype(np.float64) - proprio
        self._offset = change.mean(axis=0)
        gram = x.T @ x / len(x) + config.ridge * np.eye(x.shape[1])
        self._weights: Array = np.linalg.solve(gram, x.T @ (change - self._offset) / len(x))

    def inputs(self, proprio: Float32, action: Float32) -> Array:
        """(N, F) features, standardised."""
        x: Array = (_features(proprio, action) - self._mean) / self._scale
        return x

    def change(self, proprio: Float32, action: Float32) -> Array:
        """(N, P) that `action` (N, A) adds to `proprio`."""
        change: Array = self._offset + self.inputs(proprio, action) @ self._weights
        return change


class Network:
    """As Ridge, and a network on what that leaves: with thousands of recorded transitions it knows contact as well.

    apart: transitions of recordings that it has not learned from; what it leaves of them it will leave of others.
    """

    def __init__(
        self, proprio: Float32, action: Float32, following: Float32, episode: Rows, config: ProprioConfig
    ) -> None:
        """As Ridge; episode: (N,) numbers, every APART-th of them is kept apart. Same transitions, same network.

        Raises TooFewTransitionsError.
        """
        _check_count(proprio, action)
        _, order = np.unique(episode, return_inverse=True)  # numbers of discarded episodes are missing
        apart = order % APART == APART - 1
        self.apart = proprio[apart], action[apart], following[apart]
        proprio, action, following = proprio[~apart], action[~apart], following[~apart]
        self._ridge = Ridge(proprio, action, following, config)
        left = following - proprio - self._ridge.change(proprio, action)
        self._unit = left.std(axis=0) + 1e-12
        self._net = MLPRegressor(
            hidden_layer_sizes=config.hidden, batch_size=min(BATCH, len(left)), random_state=0
        )
        x, y = self._inputs(proprio, action), left / self._unit
        # Products this small gain nothing by threads, which wait for each other where the run keeps all cores busy.
        with threadpool_limits(1):
            for _ in range(config.epochs):
                self._net.partial_fit(x, y)

    def change(self, proprio: Float32, action: Float32) -> Array:
        """(N, P) that `action` (N, A) adds to `proprio`."""
        left: Array = self._net.predict(self._inputs(proprio, action)) * self._unit
        return self._ridge.change(proprio, action) + left

    def _inputs(self, proprio: Float32, action: Float32) -> Array:
        return self._ridge.inputs(proprio, action).clip(-FAR, FAR)


class ProprioModel:
    """p' = p + change(p, a) + residual, on real transitions.

    The change is that of a `Network` on recordings where one is given, else that of a `Ridge`. In free space either is
    exact to a millimetre; in contact, where commands move nothing, a ridge is no better than an arm that stays, and
    what a network cannot see either, as where the object is, scatters. So the residual is one of a real transition
    alike: extremely randomised trees (Geurts et al. 2006) part the features by what they say of the residual, and a
    leaf of one of them is drawn from. Whatever holds exactly among readings, as that the lag is what is left of the
    commanded way, holds for the ridge and for drawn residuals too.

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
        network: Network | None = None,
        command_index: int | None = None,
    ) -> None:
        """proprio, following: (N, P) before and after action (N, A); command_index: of the held gripper command.

        Raises TooFewTransitionsError.
        """
        self._command = command_index
        newest = slice(-config.newest, None)
        proprio, action, following = proprio[newest], action[newest], following[newest]
        if network is not None:
            apart = zip(network.apart, (proprio, action, following), strict=True)
            proprio, action, following = (np.concatenate(both) for both in apart)
        _check_count(proprio, action)
        self._ridge = Ridge(proprio, action, following, config)
        self._change = (network or self._ridge).change
        left = following - proprio - self._change(proprio, action)
        self._alike = _Alike(self._ridge.inputs(proprio, action), left, config)
        self._lower, self._upper = following.min(axis=0), following.max(axis=0)

    def step(self, proprio: Float32, action: Float32, rng: np.random.Generator) -> Float32:
        """Readings (B, P) behind `action` (B, A), within the range of real ones."""
        left = self._alike.residuals(self._ridge.inputs(proprio, action), rng)
        following = proprio + self._change(proprio, action) + left
        # A regression runs away where it is far from all that was measured.
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
        trees = rng.integers(len(self._forest.estimators_), size=len(x))
        share = rng.random(len(x))
        drawn = np.empty(len(x), np.int64)
        # Each row asks the tree that it draws from only: all trees for all rows is most of what a step costs.
        for tree in np.unique(trees):
            rows = np.flatnonzero(trees == tree)
            leaves = self._forest.estimators_[tree].apply(x[rows].astype(np.float32), check_input=False)
            drawn[rows] = [self._draw(tree, leaf, share[row]) for row, leaf in zip(rows, leaves, strict=True)]
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
        network: Network | None = None,
        command_index: int | None = None,
    ) -> None:
        """As ProprioModel; episode: (N,) numbers. A fold beside which there is too little is fitted on all; what
        recordings keep apart counts.

        Raises TooFewTransitionsError.
        """
        newest = slice(-config.newest, None)
        fold = episode[newest] % config.folds
        needed = fewest_transitions(proprio.shape[1], action.shape[1])
        needed -= 0 if network is None else len(network.apart[0])
        self._models, kept_out = [], []
        for left_out in range(config.folds):
            others = fold != left_out
            kept_out.append(bool(others.sum() >= needed))
            parts = [part[newest][others] for part in (proprio, action, following)]
            before, acted, after = parts if kept_out[-1] else (proprio, action, following)
            self._models.append(
                ProprioModel(before, acted, after, config, network=network, command_index=command_index)
            )
        self._kept_out = np.array(kept_out)

    def unseen(self, episode: Rows) -> NDArray[np.bool_]:
        """For each of the episodes `episode` (N,), whether the fit that imagines it was fitted on others alone."""
        kept_out: NDArray[np.bool_] = self._kept_out[episode % len(self._models)]
        return kept_out

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


def fit_network(recordings: str | Path | None, config: ProprioConfig) -> Network | None:
    """Fitted on all of the store there, None where there are no recordings; raises TooFewTransitionsError."""
    return None if recordings is None else Network(*transitions(StoreReader(Path(recordings))), config)


def fit_proprio(
    readers: Sequence[StoreReader], config: ProprioConfig, network: Network | None = None
) -> CrossFittedProprio:
    """Fitted on the newest real transitions of some stores; raises TooFewTransitionsError."""
    columns = [transitions(reader, config.newest) for reader in readers]
    before, action, after, episode = (np.concatenate(parts) for parts in zip(*columns, strict=True))
    return CrossFittedProprio(
        before, action, after, episode, config, network=network, command_index=GRIPPER_COMMAND
    )


def transitions(reader: StoreReader, newest: int | None = None) -> tuple[Float32, Float32, Float32, Rows]:
    """Of the newest transitions, None: of all: readings (N, P), actions (N, A), readings after them, episodes (N,)."""
    rows = reader.valid_starts[: reader.num_settled][-newest if newest else None :]
    records = reader.records(rows)
    seen = records["observation"]
    after = reader.records(rows + 1)["observation"]["proprio"]
    return seen["proprio"], records["transition"]["action"], after, seen["episode"].astype(np.int64)


def fewest_transitions(readings: int, actions: int) -> int:
    """Without which nothing is fitted, of an arm of so many readings and action entries."""
    return 2 * (readings + actions)


def _check_count(proprio: Float32, action: Float32) -> None:
    if len(proprio) < (fewest := fewest_transitions(proprio.shape[1], action.shape[1])):
        raise TooFewTransitionsError(
            f"proprio model: expected at least {fewest} transitions to fit, got {len(proprio)}; record more "
            "demonstrations"
        )


def _features(proprio: Float32, action: Float32) -> NDArray[np.float64]:
    """(N, F). The gripper moves differently by the command it is given and by how far it is open."""
    p, a = proprio.astype(np.float64), action.astype(np.float64)
    return np.concatenate((p, a, np.abs(a), p * a[:, -1:]), axis=1)
