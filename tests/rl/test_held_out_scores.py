"""What versions of a world model compete by: clips of the run, and as many of the anchors."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from video_cell import recorded

from benchmarks.reward_model_data import Kind, record
from rl.imagination.clip import Origin
from rl.imagination.held_out import HeldOutScores
from rl.replay.reader import StoreReader
from rl.replay.sampler import Holdout, Split
from rl.world_models.data import ClipData
from robot.factory import RobotConfig
from robot.types import Clip
from worldmodel.evaluate import evaluate
from worldmodel.interface import WorldModelError

HELD_OUT = Holdout(every=3)


def test_half_of_the_clips_are_of_the_anchors_where_some_are_long_enough(tmp_path: Path) -> None:
    store = record(tmp_path / "anchors", RobotConfig(task="press", image_px=32), 6, 1, {Kind.RANDOM: 1.0})
    anchors = StoreReader(store)
    with recorded(tmp_path) as cell:
        data = ClipData([cell.pool.readers[Origin.DEMO]], [HELD_OUT])
        alone = HeldOutScores(data, None, None, clips=6, horizon=4, seed=0)(cell.model)
        both = HeldOutScores(data, anchors, None, clips=6, horizon=4, seed=0)(cell.model)
        every = ClipData([anchors], [Holdout(episodes=tuple(range(6)))])
        rng = np.random.default_rng([0, 9])
        theirs = evaluate(cell.model, every.held_out(6, 4, cell.model.spec.context_frames - 1, rng))
        assert both.psnr == pytest.approx((alone.psnr + theirs.mean("psnr", 4)) / 2)
        np.testing.assert_equal(both.following, alone.following)  # the run's own clips alone
        longest = max(info.rows for info in anchors.episodes())
        with pytest.raises(WorldModelError, match="no held-out episode"):
            HeldOutScores(data, anchors, None, clips=6, horizon=longest, seed=0)(cell.model)


class Stuck(ClipData):
    """Clips in which nothing moves, whatever is commanded."""

    def sampler(self, split: Split) -> Any:
        drawn = super().sampler(split)
        return SimpleNamespace(sample=lambda *wanted: _frozen(drawn.sample(*wanted)))

    def held_out(self, count: int, length: int, history: int, rng: np.random.Generator) -> Clip:
        return _frozen(super().held_out(count, length, history, rng))


def _frozen(clip: Clip) -> Clip:
    return replace(clip, images={view: np.full_like(frames, 128) for view, frames in clip.images.items()})


def test_with_recordings_following_is_read_off_anchors_too(tmp_path: Path) -> None:
    """Clips of an arm that is stuck show no motion, and a probe that is fitted on them sees none in others."""
    robot = RobotConfig(task="press", image_px=32)
    anchors, recordings = (
        StoreReader(record(tmp_path / name, robot, 12, seed, {Kind.RANDOM: 1.0}))
        for seed, name in enumerate(("anchors", "recordings"))
    )
    with recorded(tmp_path) as cell:
        data = Stuck([cell.pool.readers[Origin.DEMO]], [HELD_OUT])

        def following(*stores: StoreReader | None) -> float | None:
            return HeldOutScores(data, *stores, clips=12, horizon=4, seed=0)(cell.model).following

        for unknown in (following(None, None), following(anchors, None), following(None, recordings)):
            assert unknown is not None and math.isnan(unknown)
        assert following(anchors, recordings) == 0.0  # a copied frame follows nothing: that is known


def test_anchors_that_are_all_too_short_or_discarded_do_not_count(tmp_path: Path) -> None:
    with recorded(tmp_path) as cell:
        demo = cell.pool.readers[Origin.DEMO]
        data = ClipData([demo], [HELD_OUT])
        infos = [
            SimpleNamespace(episode=number, rows=rows, discarded=rows > 4)
            for number, rows in enumerate((4, 40))
        ]
        short: Any = SimpleNamespace(episodes=lambda: infos)
        scores = [
            HeldOutScores(data, anchors, None, clips=6, horizon=4, seed=0)(cell.model)
            for anchors in (short, None)
        ]
    assert scores[0].psnr == scores[1].psnr
