"""Champion and challenger: a worse model is never published, a refused one starts over, two versions stay."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from robot.types import Float32
from tests.worldmodel.world_model_cases import spec
from worldmodel.adapt import Champion, ChampionConfig, ScheduleConfig, Scores, Versions
from worldmodel.baselines import CopyLastFrame
from worldmodel.checkpoint import read
from worldmodel.interface import ClipSource, Context, Imagined, WorldModel, WorldModelError


class Scripted(CopyLastFrame):
    """A model whose held-out scores the test decides; `grade` survives save and load by the version's number."""

    grade = 0.0

    def adapt(self, clips: ClipSource, steps: int, rng: np.random.Generator) -> dict[str, float]:
        self.grade += steps
        return {}

    def rollout(self, context: Context, actions: Float32, seed: int = 0) -> Imagined:
        raise AssertionError("the judge decides")


class Arena:
    def __init__(self, directory: Path, following_enough: float = 1.0) -> None:
        self.versions = Versions(directory)
        self.grades: dict[int, float] = {}
        self.scores: Mapping[float, Scores] = {}
        self.champion = Champion(
            Scripted(spec()), self.versions, self.judge, self.load, following_enough=following_enough
        )

    def judge(self, model: WorldModel) -> Scores:
        assert isinstance(model, Scripted)
        return self.scores[model.grade]

    def load(self, path: Path) -> WorldModel:
        stored = read(path)
        model = Scripted(stored.spec, stored.version)
        model.grade = self.grades[stored.version]
        return model

    def round(self, steps: int) -> tuple[bool, str]:
        self.champion.train(NOTHING, steps, np.random.default_rng(0))
        trained = self.champion.challenger
        assert isinstance(trained, Scripted)
        grade = trained.grade
        verdict = self.champion.compete()
        if verdict.published:
            self.grades[verdict.version] = grade
        return verdict.published, verdict.objection


class Nothing:
    size = 0

    def sample(self, n: int, length: int, rng: np.random.Generator, history: int = 0):  # type: ignore[no-untyped-def]
        raise AssertionError


NOTHING = Nothing()


@pytest.fixture
def arena(tmp_path: Path) -> Arena:
    return Arena(tmp_path / "versions")


def test_a_better_challenger_becomes_the_next_version_and_carries_its_scores(arena: Arena) -> None:
    arena.scores = {1.0: Scores(20.0, 0.8), 2.0: Scores(21.0, 0.9, {"ssim": 0.7})}
    assert arena.round(1) == (True, "") and arena.round(1) == (True, "")
    stored = read(arena.versions.newest_path())
    assert stored.version == 2 and stored.scores == {"psnr": 21.0, "following": 0.9, "ssim": 0.7}


@pytest.mark.parametrize(
    ("worse", "reason"),
    [
        (Scores(19.69, 0.8), "psnr fell from 20.00 to 19.69"),
        (Scores(25.0, 0.749), "action following fell from 0.800 to 0.749"),
        (Scores(25.0, None), "was not measured"),
        (Scores(float("nan"), 0.8), "not finite"),
        (Scores(25.0, float("nan")), "not finite"),
    ],
)
def test_a_worse_challenger_is_refused_and_starts_over(arena: Arena, worse: Scores, reason: str) -> None:
    arena.scores = {1.0: Scores(20.0, 0.8), 6.0: worse, 3.0: Scores(20.5, 0.8)}
    arena.round(1)
    published, objection = arena.round(5)
    assert not published and reason in objection and arena.versions.all() == [1]
    assert arena.round(2) == (True, "")  # 1 + 2 steps: those of the refused one are gone
    assert arena.versions.all() == [1, 2]


def test_small_losses_pass(arena: Arena) -> None:
    arena.scores = {1.0: Scores(20.0, 0.8), 2.0: Scores(19.71, 0.751)}
    arena.round(1)
    assert arena.round(1) == (True, "")


def test_following_beyond_enough_need_not_be_matched(tmp_path: Path) -> None:
    arena = Arena(tmp_path / "versions", following_enough=0.4)
    arena.scores = {1.0: Scores(20.0, 0.75), 2.0: Scores(21.5, 0.46), 3.0: Scores(21.5, 0.34)}
    arena.round(1)
    assert arena.round(1) == (True, "")
    published, objection = arena.round(1)
    assert not published and "below 0.400" in objection


def test_two_versions_stay_and_numbers_never_repeat(arena: Arena) -> None:
    arena.scores = {float(k): Scores(20.0 + k) for k in range(1, 5)}
    for _ in range(4):
        arena.round(1)
    assert arena.versions.all() == [3, 4] and arena.versions.latest() == 4


def test_a_first_version_that_is_not_finite_is_an_error(arena: Arena) -> None:
    arena.scores = {1.0: Scores(float("nan"))}
    with pytest.raises(WorldModelError, match="first version was not published"):
        arena.round(1)
    with pytest.raises(WorldModelError, match="no world model was published here"):
        arena.versions.newest_path()


def test_the_schedule_fits_first_then_adapts_with_the_episodes() -> None:
    schedule = ScheduleConfig(fit_steps=100, every_episodes=5, steps=20)
    assert [schedule.due(n, u) for n, u in ((0, 0), (7, 40), (4, 100), (5, 100), (9, 120), (10, 120))] == [
        100, 60, 0, 20, 0, 20,
    ]  # fmt: skip
    assert schedule.due(50, 100) == 20  # behind by ten rounds: one is done


def test_settings_that_cannot_be_are_refused(tmp_path: Path) -> None:
    for build in (
        lambda: ScheduleConfig(steps=0),
        lambda: ChampionConfig(max_psnr_drop=-1.0),
        lambda: Versions(tmp_path, keep=0),
    ):
        with pytest.raises(ValueError, match="expected"):
            build()
