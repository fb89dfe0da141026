"""HeldOutScores: what versions of a run's world model compete by, and are trusted by."""

from __future__ import annotations

import numpy as np

from rl.replay.reader import StoreReader
from rl.replay.sampler import ClipSampler, Holdout, PartConfig, Split, concatenate_clips
from rl.world_models.data import ClipData
from robot.types import Clip
from worldmodel.adapt import Scores
from worldmodel.evaluate import evaluate
from worldmodel.following import action_following
from worldmodel.interface import WorldModel, WorldModelError

FOLLOWING_PAIRS = 256  # real steps of the run, and as many of recordings, to fit the probe on


class HeldOutScores:
    """Scores a world model on `clips` held-out clips of `horizon` steps; all contestants of one contest see the same.

    A run holds out few episodes, and early ones may be of an arm that is stuck, which a copied frame shows best. So
    `clips` of the anchors are added, where some last that long: also a version that forgets what they show scores less.
    Early in a run, which holds out fewer than that, they are the greater part.

    Action following is measured on the anchors too where there are recordings beside them: a probe that is fitted on
    the run alone reads no motion but the run's.
    """

    def __init__(
        self,
        data: ClipData,
        anchors: StoreReader | None,
        recordings: StoreReader | None,
        *,
        clips: int,
        horizon: int,
        seed: int,
    ) -> None:
        self._data, self._clips, self._horizon, self._seed = data, clips, horizon, seed
        self._anchors: ClipData | None = None
        self._recordings = None if recordings is None else ClipSampler([PartConfig(recordings)])
        if anchors is not None:
            kept = [info for info in anchors.episodes() if not info.discarded]
            long_enough = tuple(info.episode for info in kept if info.rows > horizon)
            self._anchors = ClipData([anchors], [Holdout(episodes=long_enough)]) if long_enough else None

    def __call__(self, model: WorldModel) -> Scores:
        """Raises WorldModelError where no held-out episode of the run lasts that long."""
        past = model.spec.context_frames - 1
        rng = np.random.default_rng([self._seed, 8])
        own = self._data.held_out(self._clips, self._horizon, past, rng)
        judged = self._with_anchors(own, past)
        report = evaluate(model, judged)
        extra = {"copy_psnr": report.mean("psnr", report.steps, copied=True)}
        following: float | None
        try:
            following = self._following(model, own, judged, rng)
        except WorldModelError:
            following = None  # too few clips to tell; the gate stays shut
        return Scores(report.mean("psnr", report.steps), following, extra)

    def _following(self, model: WorldModel, own: Clip, judged: Clip, rng: np.random.Generator) -> float:
        """Action following in `judged` where the probe has seen recordings, else in the run's `own` clips."""
        past = model.spec.context_frames - 1
        probe = self._data.sampler(Split.TRAIN).sample(FOLLOWING_PAIRS, 1, rng, past)
        if self._recordings is None:
            return action_following(model, probe, own, rng).score
        recorded = self._recordings.sample(FOLLOWING_PAIRS, 1, rng, past)
        return action_following(model, concatenate_clips([probe, recorded]), judged, rng).score

    def _with_anchors(self, own: Clip, past: int) -> Clip:
        if self._anchors is None:
            return own
        rng = np.random.default_rng([self._seed, 9])
        others = self._anchors.held_out(self._clips, self._horizon, past, rng)
        others.episode[...] = -1 - others.episode  # beside those of the run
        return concatenate_clips([own, others])
