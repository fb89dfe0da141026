"""Whether imagined readings are good enough to be used, and from when on."""

from __future__ import annotations

from pathlib import Path

from video_cell import Cell, recorded

from benchmarks.reward_model_data import Kind, record
from rl.imagination.clip import Origin
from rl.imagination.proprio import ProprioConfig, fit_network
from rl.imagination.refitting import FEWEST_TRIED, Refitting
from rl.imagination.video import VideoImaginer
from robot.factory import RobotConfig
from worldmodel.counterfactual import Motion

PRESS = RobotConfig(task="press", image_px=32)


def refitting(cell: Cell, recordings: Path | None = None) -> tuple[Refitting, VideoImaginer]:
    motion = Motion.of(cell.env.robot.spec, cell.env.robot.frames.action)
    imaginer = VideoImaginer(cell.model, None, cell.pool, motion, control_period=0.1, max_risk=1.0)
    config = ProprioConfig()
    return Refitting(imaginer, cell.pool, config, fit_network(recordings, config)), imaginer


def anywhere(path: Path, episodes: int, seed: int = 0) -> Path:
    """Episodes of random motion, as a policy acts that knows nothing yet."""
    return record(path, PRESS, episodes, seed, {Kind.RANDOM: 1.0})


def test_a_fit_on_demonstrations_is_not_believed_before_the_run_has_proven_it(tmp_path: Path) -> None:
    with recorded(tmp_path) as cell:
        fit, imaginer = refitting(cell)
        assert f"0 of {FEWEST_TRIED} transitions of its own" in fit.lacks()
        first = imaginer.proprio
        assert first is not None and fit.lacks() and imaginer.proprio is first  # nothing new to fit on
        anywhere(tmp_path / "real", 8)
        cell.pool.refresh()
        assert fit.lacks() == "" and imaginer.proprio is not first


def test_an_episode_that_a_fit_has_seen_proves_nothing(tmp_path: Path) -> None:
    """Beside the first one there are not demonstrations enough to fit on, so it is fitted on what it is tried on."""
    with recorded(tmp_path, episodes=4) as cell:
        record(tmp_path / "real", PRESS, 1, 0, {Kind.RANDOM: 1.0}, extra_steps=FEWEST_TRIED)
        cell.pool.refresh()
        assert cell.pool.readers[Origin.ONLINE].num_settled >= FEWEST_TRIED
        fit, _ = refitting(cell)
        assert f"0 of {FEWEST_TRIED} transitions of its own" in fit.lacks()


def test_a_fit_that_errs_more_than_an_arm_that_stays_is_not_used(tmp_path: Path) -> None:
    """The first three episodes of a run: two thirds of them are all that a fit knows beside the demonstrations."""
    with recorded(tmp_path) as cell:
        anywhere(tmp_path / "real", 2)
        cell.pool.refresh()
        fit, _ = refitting(cell)
        assert "times as much as an arm that stays" in fit.lacks()


def test_with_recordings_readings_are_imagined_before_the_first_step(tmp_path: Path) -> None:
    store = anywhere(tmp_path / "recordings", 20, seed=1)
    with recorded(tmp_path) as cell:
        fit, imaginer = refitting(cell, store)
        assert fit.lacks() == "" and imaginer.proprio is not None
