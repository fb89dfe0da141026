"""What versions of a world model compete by: clips of the run, and as many of the anchors."""

from __future__ import annotations

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
from rl.replay.sampler import Holdout
from rl.world_models.data import ClipData
from robot.factory import RobotConfig
from worldmodel.evaluate import evaluate
from worldmodel.interface import WorldModelError

HELD_OUT = Holdout(every=3)


def test_half_of_the_clips_are_of_the_anchors_where_some_are_long_enough(tmp_path: Path) -> None:
    store = record(tmp_path / "anchors", RobotConfig(task="press", image_px=32), 6, 1, {Kind.RANDOM: 1.0})
    anchors = StoreReader(store)
    with recorded(tmp_path) as cell:
        data = ClipData([cell.pool.readers[Origin.DEMO]], [HELD_OUT])
        alone = HeldOutScores(data, None, clips=6, horizon=4, seed=0)(cell.model)
        both = HeldOutScores(data, anchors, clips=6, horizon=4, seed=0)(cell.model)
        every = ClipData([anchors], [Holdout(episodes=tuple(range(6)))])
        rng = np.random.default_rng([0, 9])
        theirs = evaluate(cell.model, every.held_out(6, 4, cell.model.spec.context_frames - 1, rng))
        assert both.psnr == pytest.approx((alone.psnr + theirs.mean("psnr", 4)) / 2)
        np.testing.assert_equal(both.following, alone.following)  # the run's own clips alone
        longest = max(info.rows for info in anchors.episodes())
        with pytest.raises(WorldModelError, match="no held-out episode"):
            HeldOutScores(data, anchors, clips=6, horizon=longest, seed=0)(cell.model)


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
            HeldOutScores(data, anchors, clips=6, horizon=4, seed=0)(cell.model) for anchors in (short, None)
        ]
    assert scores[0].psnr == scores[1].psnr
