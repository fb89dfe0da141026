"""The contract of every RewardModel: shapes, range, unknown, and refusal of what does not fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from reward_model.classifier import ClassifierConfig, SuccessClassifier
from reward_model.interface import RewardModel, RewardModelError
from reward_model.judge import Judge, JudgeConfig
from robot.tasks import PROPRIO_NAMES
from robot.types import Float32, Image
from tests.reward_model.frames import VIEWS


class Even:
    """A judge that finds everything as likely as not."""

    name = "even"

    def probability(self, question: str, images: Sequence[Image]) -> float:
        return 0.5


def classifier() -> RewardModel:
    config = ClassifierConfig(channels=(4,), width=4)
    return SuccessClassifier(config, "press", VIEWS, seed=0, device=torch.device("cpu"), version=2)


def feeling() -> RewardModel:
    config = ClassifierConfig(channels=(4,), width=4, readings=("ee_z", "lag_z"))
    return SuccessClassifier(config, "press", VIEWS, seed=0, device=torch.device("cpu"), version=2)


def judge() -> RewardModel:
    return Judge(Even(), JudgeConfig(), task="press", instruction="press", views=VIEWS, version=2)


MODELS = [classifier, feeling, judge]
Make = Callable[[], RewardModel]


def images(batch: int = 3, length: int = 5) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {v: rng.integers(0, 256, (batch, length, *s, 3), dtype=np.uint8) for v, s in VIEWS.items()}


def readings(batch: int = 3, length: int = 5) -> dict[str, Float32]:
    """More than any of the models needs."""
    rng = np.random.default_rng(1)
    return {name: rng.normal(size=(batch, length)).astype(np.float32) for name in PROPRIO_NAMES}


@pytest.mark.parametrize("make", MODELS)
def test_scores_are_probabilities_by_clip_and_frame(make: Make) -> None:
    model = make()
    prob = model.score(images(), readings())
    assert prob.shape == (3, 5) and prob.dtype == np.float32
    assert ((prob >= 0) & (prob <= 1)).all()
    assert (model.task, model.version, dict(model.views)) == ("press", 2, VIEWS)


@pytest.mark.parametrize("make", MODELS)
def test_no_clips_and_no_frames_give_no_scores(make: Make) -> None:
    assert make().score(images(batch=0), readings(batch=0)).shape == (0, 5)
    assert make().score(images(length=0), readings(length=0)).shape == (3, 0)


@pytest.mark.parametrize("make", MODELS)
def test_a_blank_picture_is_unknown(make: Make) -> None:
    dark = images()
    dark["wrist"][1, 4] = 0
    assert np.isnan(make().score(dark, readings())[1, 4])


@pytest.mark.parametrize("make", MODELS)
def test_scores_do_not_change_what_they_look_at(make: Make) -> None:
    given, kept = images(), images()
    make().score(given, readings())
    assert all((given[view] == kept[view]).all() for view in VIEWS)


@pytest.mark.parametrize("make", MODELS)
def test_wrong_views_sizes_and_types_are_refused(make: Make) -> None:
    model = make()
    with pytest.raises(RewardModelError, match="missing"):
        model.score({"wrist": images()["wrist"]})
    with pytest.raises(RewardModelError, match=r"one \(B, T\)"):
        model.score(images() | {"side": images(length=4)["side"]})
    with pytest.raises(RewardModelError, match=r"images\[side\]"):
        model.score(images() | {"side": images()["wrist"]})
    with pytest.raises(RewardModelError, match="uint8"):
        model.score({view: frames.astype(np.float32) for view, frames in images().items()})


@pytest.mark.parametrize("make", MODELS)
def test_only_the_readings_that_it_needs_are_looked_at(make: Make) -> None:
    model = make()
    needed = {name: readings()[name] for name in model.readings}
    np.testing.assert_array_equal(model.score(images(), needed), model.score(images(), readings()))
    assert set(model.readings) < set(PROPRIO_NAMES)


def test_readings_that_are_not_finite_are_unknown() -> None:
    torn = readings()
    torn["lag_z"][1, 4], torn["ee_z"][0, 0], torn["ee_x"][2, 2] = np.nan, np.inf, np.nan
    unknown = np.argwhere(np.isnan(feeling().score(images(), torn)))
    assert unknown.tolist() == [[0, 0], [1, 4]]


def test_missing_and_misshapen_readings_are_refused() -> None:
    model = feeling()
    for lacking in (None, {}, {"ee_z": readings()["ee_z"]}):
        with pytest.raises(RewardModelError, match=r"'lag_z'\] are missing .* classifier.readings"):
            model.score(images(), lacking)
    for wrong in (readings(length=4)["lag_z"], readings()["lag_z"].astype(np.float64)):
        with pytest.raises(RewardModelError, match=r"readings\[lag_z\]: expected \(3, 5\) float32"):
            model.score(images(), readings() | {"lag_z": wrong})


@pytest.mark.parametrize("make", MODELS)
def test_it_writes_itself_down(make: Make, tmp_path: Path) -> None:
    make().save(tmp_path / "below" / "model")
    assert [path.name for path in (tmp_path / "below").iterdir()] == ["model"]
