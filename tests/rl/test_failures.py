"""Failed evaluation episodes: counted by class, handed over as they end, drawn on a contact sheet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from PIL import Image as PilImage

from rl.diagnostics.failures import TITLE_HEIGHT, FailureSheet
from rl.evaluation import Evaluation, FailedEpisode
from rl.pictures import TILE
from robot.types import Float32, Observation

OUTCOMES: list[dict[str, Any]] = [
    {"success": True},
    {"failure": "dropped"},
    {},  # cut off, and the cell has no word for it
    {"terminated": True},  # a person's verdict
    {"failure": "dropped"},
]


class ScriptedEnv(gym.Env[Any, Any]):
    """Episode k lasts k + 1 steps and ends as OUTCOMES[k]; every image is filled with 10 * k + its step."""

    def __init__(self) -> None:
        self.episode, self.t = -1, 0

    def _observe(self) -> tuple[dict[str, Any], dict[str, Any]]:
        image = np.full((8, 8, 3), 10 * self.episode + self.t, np.uint8)
        values = {"proprio": np.zeros(1, np.float32), "images": {"wrist": image, "side": image}}
        return values, {"timestamp": 0.0, "image_timestamps": {}}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.episode, self.t = self.episode + 1, 0
        return self._observe()

    def step(self, action: Float32) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        self.t += 1
        values, info = self._observe()
        outcome = OUTCOMES[self.episode] if self.t > self.episode else None
        info |= {"intervened": False, "success": False}
        if outcome is None:
            return values, 0.0, False, False, info
        terminated = bool(outcome.get("success") or outcome.get("terminated"))
        info |= {name: word for name, word in outcome.items() if name != "terminated"}
        return values, 0.0, terminated, not terminated, info


class Still:
    def __init__(self) -> None:
        self.noise: list[Float32] = []

    def act(self, observation: Observation, *, noise: Float32) -> Float32:
        self.noise.append(noise)
        return np.zeros(7, np.float32)


def test_failures_are_counted_by_class_and_handed_over_with_their_frames() -> None:
    seen: list[FailedEpisode] = []
    evaluation = Evaluation(ScriptedEnv(), Still(), len(OUTCOMES), on_failure=seen.append)
    while not evaluation.finished:
        evaluation.step()
    result = evaluation.result()
    assert result.successes == 1
    assert result.failures == {"dropped": 2, "timeout": 1, "failure": 1}
    assert result.as_metrics("final")["final/failures/dropped"] == 2
    assert [episode.index for episode in seen] == [1, 2, 3, 4]
    assert [int(frame["side"][0, 0, 0]) for frame in seen[1].frames] == [20, 21, 22, 23]


def noise_of(share: float, seed: int = 5) -> list[Float32]:
    actor = Still()
    evaluation = Evaluation(ScriptedEnv(), actor, len(OUTCOMES), share, seed=seed)
    while not evaluation.finished:
        evaluation.step()
    return actor.noise


def test_the_noise_of_an_episode_follows_from_its_layout_alone() -> None:
    assert not np.any(noise_of(0.0))
    half, full, later = noise_of(0.5), noise_of(1.0), noise_of(1.0, seed=6)
    np.testing.assert_array_equal(half, noise_of(0.5))
    np.testing.assert_allclose(2.0 * np.array(half), full, rtol=1e-6)
    # Episode k of ScriptedEnv has k + 1 steps: layout 6 is the second one here and the first one there.
    np.testing.assert_array_equal(full[1], later[0])
    with pytest.raises(ValueError, match=r"noise: expected a share in \[0, 1\], got 2"):
        noise_of(2.0)


def test_a_fault_is_a_class_of_its_own() -> None:
    evaluation = Evaluation(ScriptedEnv(), Still(), 2)
    evaluation.step()
    evaluation.fault()
    assert evaluation.result().failures == {"fault": 1}


def failed(index: int, steps: int) -> FailedEpisode:
    frames = [{"wrist": np.full((8, 8, 3), 255, np.uint8)} for _ in range(steps + 1)]
    return FailedEpisode(index, "jammed", frames)


def test_the_sheet_shows_the_first_failures_under_each_other(tmp_path: Path) -> None:
    sheet, path = FailureSheet(limit=2), tmp_path / "diagnostics" / "failures.png"
    sheet.add(FailedEpisode(0, "timeout", [{}]))  # no cameras, no picture
    sheet.save(path)
    assert not path.exists()
    for index, steps in enumerate((2, 4, 9)):
        sheet.add(failed(index, steps))
    sheet.save(path)
    picture = np.asarray(PilImage.open(path))
    assert picture.shape == (2 * (TILE + TITLE_HEIGHT), 5 * TILE, 3)
    assert picture[TITLE_HEIGHT:, : 3 * TILE].any() and not picture[: TILE + TITLE_HEIGHT, 3 * TILE :].any()
