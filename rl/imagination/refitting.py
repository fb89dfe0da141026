"""Refitting: keeps what imagines the arm's readings fitted on what the arm does, and says when it is no good yet."""

from __future__ import annotations

import numpy as np

from rl.imagination.clip import Origin
from rl.imagination.proprio import (
    CrossFittedProprio,
    Network,
    ProprioConfig,
    TooFewTransitionsError,
    fit_proprio,
    transitions,
)
from rl.imagination.starts import StartPool
from rl.imagination.video import VideoImaginer
from rl.replay.reader import Rows
from robot.tasks import POSITION_NAMES, PROPRIO_NAMES, ROTATION_NAMES
from robot.types import Float32

TRIED = 200  # newest online transitions, by which a fit is judged
DRAWS = 8
FEWEST_TRIED = 50  # of them, before which a fit on demonstrations alone is not believed
POSE = [PROPRIO_NAMES.index(name) for name in (*POSITION_NAMES, *ROTATION_NAMES)]


class Refitting:
    """Fits the readings of `imaginer` anew where that is due: what the arm has done since the last fit counts too.

    A regression on a few demonstrations may be wrong by several times what the arm moves as soon as a policy acts
    otherwise than the demonstrator. So nothing is imagined before the newest online transitions, of episodes that a fit
    has not seen, are told better by it than by an arm that stays; with a network on recordings, unless they are told
    worse.
    """

    def __init__(
        self, imaginer: VideoImaginer, pool: StartPool, config: ProprioConfig, network: Network | None
    ) -> None:
        self._imaginer, self._pool, self._config, self._network = imaginer, pool, config, network
        self._fitted_at, self._doubt = 0, ""

    def lacks(self) -> str:
        """What is missing before the arm's readings can be imagined, "" where nothing is."""
        episodes = self._pool.readers[Origin.ONLINE].num_episodes
        waits = 1 if self._doubt else self._config.refit_episodes
        if self._imaginer.proprio is None or episodes >= self._fitted_at + waits:
            try:
                fitted = fit_proprio(list(self._pool.readers.values()), self._config, self._network)
            except TooFewTransitionsError as error:
                return f"actor: {error}"
            self._imaginer.proprio, self._fitted_at = fitted, episodes
            self._doubt = self._doubt_of(fitted)
        return self._doubt

    def _doubt_of(self, fitted: CrossFittedProprio) -> str:
        before, action, after, episode = transitions(self._pool.readers[Origin.ONLINE], TRIED)
        unseen = fitted.unseen(episode)
        count = int(unseen.sum())
        if count < FEWEST_TRIED:
            if self._network is not None:
                return ""
            return (
                f"actor: {count} of {FEWEST_TRIED} transitions of its own that prove the imagined readings, beside "
                "enough to fit them on; with synthetic.video.recordings they are fitted before the first step"
            )
        gain = readings_gain(
            fitted, before[unseen], action[unseen], after[unseen], episode[unseen], np.random.default_rng(0)
        )
        if gain > 0.0:
            return ""
        return (
            f"actor: more of its own transitions; imagined readings err {1.0 - gain:.1f} times as much as an arm that "
            "stays"
        )


def readings_gain(
    model: CrossFittedProprio,
    proprio: Float32,
    action: Float32,
    following: Float32,
    episode: Rows,
    rng: np.random.Generator,
) -> float:
    """1 - root mean square error of the imagined pose over that of an arm that stays; 0: as bad, 1: exact.

    proprio, following: (N, P) before and after action (N, A), in episodes (N,). Each entry of the pose counts in units
    of its change. Imagined is the mean of DRAWS: one that scatters as it should errs by 1.4 times as much as its mean.
    An arm that has not moved at all proves nothing: 0.
    """
    change = (following - proprio)[:, POSE].astype(np.float64)
    moving = np.sqrt(np.square(change).mean(axis=0))
    if not (moves := moving > 1e-9).any():
        return 0.0
    imagined = np.mean([model.step(proprio, action, rng, episode) for _ in range(DRAWS)], axis=0)
    missed = (imagined - following)[:, POSE].astype(np.float64)
    relative = np.square(missed[:, moves] / moving[moves]).mean()
    return float(1.0 - np.sqrt(relative))
