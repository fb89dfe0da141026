"""Imagined video: real frames go in, imagined ones come out, and the world model goes on learning meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from video_cell import Cell, Still, recorded

from rl.imagination.adapting import Adapting, TrustConfig
from robot.types import ACTION_DIM, Float32, Label
from worldmodel.adapt import Champion, ScheduleConfig, Scores, Versions
from worldmodel.baselines import CopyLastFrame
from worldmodel.counterfactual import BranchKind
from worldmodel.interface import Context, Imagined


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cell]:
    with recorded(tmp_path_factory.mktemp("stores")) as made:
        yield made


def test_clips_begin_with_a_real_frame_and_stay_inside_the_workspace(cell: Cell) -> None:
    clips = cell.imagination(clip_length=40, parallel=5).imagine(Still())
    assert len(clips) == 5
    for clip in clips:
        first = cell.pool.clip(clip.start, 1)
        np.testing.assert_array_equal(clip.observations[0].images["wrist"], first.images["wrist"][0, 0])
        np.testing.assert_array_equal(
            clip.observations[-1].images["side"], clip.observations[0].images["side"]
        )
        times = [observation.timestamp for observation in clip.observations]
        assert np.diff(times) == pytest.approx(0.1)
        assert all(truth is Label.UNKNOWN for truth in clip.truth)
        assert clip.action[0, 2] == 1.0 and clip.action[-1, 2] < 0.5, (
            "at the ceiling nothing is left of the wish"
        )


class Doubtful(CopyLastFrame):
    """Trusts itself less with every step."""

    def rollout(self, context: Context, actions: Float32, seed: int = 0) -> Imagined:
        imagined = super().rollout(context, actions, seed)
        return replace(imagined, risk=imagined.risk + 0.3 * (1 + seed % 3))


def test_a_path_ends_where_the_model_no_longer_trusts_itself(cell: Cell) -> None:
    clips = cell.imagination(Doubtful(cell.model.spec), max_risk=0.85, clip_length=6, parallel=3).imagine(
        Still()
    )
    assert all(clip.risk.max() <= 0.85 for clip in clips), "what it does not trust itself is not in the clip"
    assert all(len(clip) < 6 for clip in clips)


def test_a_risk_that_is_no_number_is_not_trusted(cell: Cell) -> None:
    class Broken(CopyLastFrame):
        def rollout(self, context: Context, actions: Float32, seed: int = 0) -> Imagined:
            imagined = super().rollout(context, actions, seed)
            return replace(imagined, risk=np.full_like(imagined.risk, np.nan))

    assert cell.imagination(Broken(cell.model.spec), clip_length=3, parallel=2).imagine(Still()) == []


def test_further_draws_of_the_readings_begin_in_the_real_ones_and_go_their_own_way(cell: Cell) -> None:
    (alone,) = cell.imagination(clip_length=4, parallel=1).imagine(Still())
    assert alone.others is None
    imagination = cell.imagination(clip_length=4, parallel=2)
    imagination._imaginer._others = 3  # type: ignore[attr-defined]
    for clip in imagination.imagine(Still()):
        own = np.stack([observation.proprio for observation in clip.observations])
        assert clip.others is not None and clip.others.shape == (3, *own.shape)
        np.testing.assert_array_equal(clip.others[:, 0], np.repeat(own[:1], 3, axis=0))
        paths = np.concatenate([own[None], clip.others])
        assert len({path[-1].tobytes() for path in paths}) == 4
        assert np.abs(paths[:, -1, :3] - own[-1, :3]).max() < 0.05


def test_replays_know_their_outcome_and_other_clips_do_not(cell: Cell) -> None:
    clips = cell.imagination(replay_share=0.5, clip_length=40, parallel=30).imagine(Still())
    replays = [clip for clip in clips if clip.kind is BranchKind.REPLAY]
    assert 5 < len(replays) < 25
    for clip in replays:
        real = cell.pool.clip(clip.start, 40)
        np.testing.assert_array_equal(clip.action, real.action[0][real.valid[0]])
        assert clip.truth[-1] is Label.SUCCESS and Label.UNKNOWN not in clip.truth
    assert all(truth is Label.UNKNOWN for c in clips if c.kind is BranchKind.POLICY for truth in c.truth)


def test_replays_alone_begin_where_replays_may(cell: Cell) -> None:
    clips = cell.imagination(clip_length=4, parallel=6).replay(Still())
    assert clips and {clip.kind for clip in clips} == {BranchKind.REPLAY}
    assert all(Label.UNKNOWN not in clip.truth for clip in clips)


def test_trust_needs_gain_and_following_and_a_measurement() -> None:
    trust = TrustConfig(gain_db=4.0)
    scores = {"psnr": 24.0, "copy_psnr": 20.0, "following": 0.9}
    assert trust.gate(scores) == pytest.approx(1.0)
    assert trust.gate(scores | {"psnr": 22.0}) == pytest.approx(0.5)
    assert trust.gate(scores | {"following": 0.1}) == 0.0, "a model that ignores its actions"
    assert trust.gate(scores | {"following": 0.25}) == pytest.approx(0.5)
    assert trust.gate({"psnr": 24.0, "copy_psnr": 20.0}) == 0.0, "not measured is not trusted"
    for name in scores:
        for value in (np.nan, np.inf, -np.inf):
            assert trust.gate(scores | {name: value}) == 0.0, f"{name} {value} is no measurement"
    with pytest.raises(ValueError, match="gain_db"):
        TrustConfig(gain_db=0.0)


class Round:
    """An Adapting beside a counter of episodes; `scores` are what the next contest finds."""

    def __init__(self, cell: Cell, directory: Path, fitted: bool = False, episodes: int = 0) -> None:
        self.trained: list[int] = []
        self.published: list[int] = []
        self.trusted: list[dict[str, float]] = []
        self.episodes, self.scores = episodes, [Scores(25.0, 0.9, {"copy_psnr": 20.0})]
        trained = self.trained

        class Counting(CopyLastFrame):
            def adapt(self, clips: object, steps: int, rng: object) -> dict[str, float]:
                trained.append(steps)
                return {"world_model/loss_1": 0.0}

        champion = Champion(
            Counting(cell.model.spec),
            Versions(directory),
            lambda _: self.scores.pop(0) if len(self.scores) > 1 else self.scores[0],
            lambda _: Counting(cell.model.spec),
        )
        self.adapting = Adapting(
            champion,
            ScheduleConfig(fit_steps=10, every_episodes=5, steps=4),
            clips=None,  # type: ignore[arg-type]
            fitted=fitted,
            new_episodes=lambda: self.episodes,
            published=lambda version: cell.model,
            publish=lambda model: self.published.append(1),
            trust=lambda scores: self.trusted.append(dict(scores)),
            rng=np.random.default_rng(0),
            chunk=4,
        )

    def step(self) -> dict[str, float]:
        return self.adapting.step()


def test_adapting_goes_a_few_updates_at_a_time_and_publishes_at_the_end_of_a_round(
    cell: Cell, tmp_path: Path
) -> None:
    one = Round(cell, tmp_path / "versions")
    steps = [one.step() for _ in range(3)]
    assert one.trained == [4, 4, 2] and len(one.published) == 1 and steps[-1]["world_model/published"] == 1.0
    assert one.step() == {} == one.step(), "nothing is due"
    one.episodes = 5
    assert one.step()["world_model/version"] == 2.0 and one.step() == {}


def test_missed_rounds_are_not_made_up_for_and_leave_time_to_imagine(cell: Cell, tmp_path: Path) -> None:
    late = Round(cell, tmp_path / "late", fitted=True, episodes=40)
    assert [late.step() for _ in range(4)] == [{}] * 4, "a resumed run has those rounds behind it"
    late.episodes = 70
    done = [bool(late.step()) for _ in range(6)]
    assert done == [True, False, False, False, False, False], "one round for all that was missed"
    slow = Round(cell, tmp_path / "slow", fitted=True)
    done = []
    for _ in range(6):
        slow.episodes += 5
        done.append(bool(slow.step()))
    assert done == [True, False] * 3, "there is a round due all the time, and every other step is free"


def test_the_version_that_a_session_begins_with_is_trusted_by_what_this_run_holds_out(
    cell: Cell, tmp_path: Path
) -> None:
    first = Round(cell, tmp_path / "versions")
    while not first.published:
        first.step()
    one = Round(cell, tmp_path / "versions", fitted=True)
    one.scores = [Scores(21.0, 0.3, {"copy_psnr": 20.0})]
    assert one.step()["world_model/held_out_psnr"] == 21.0 and one.step() == {}
    assert [scores["following"] for scores in one.trusted] == [0.3]
    untold = Round(cell, tmp_path / "none", fitted=True)
    assert untold.step() == {} and untold.trusted == [{}], "what cannot be measured is not trusted"


def test_a_champion_that_stays_is_trusted_by_how_it_does_now(cell: Cell, tmp_path: Path) -> None:
    one = Round(cell, tmp_path / "versions")
    while not one.published:
        one.step()
    one.episodes = 5
    one.scores = [Scores(10.0, 0.9, {"copy_psnr": 20.0}), Scores(20.5, 0.6, {"copy_psnr": 20.0})]
    while len(one.trusted) < 2:
        one.step()
    assert len(one.published) == 1, "the challenger was refused"
    assert one.trusted[-1]["psnr"] == 20.5 and one.trusted[-1]["following"] == 0.6


def test_the_action_has_all_its_entries(cell: Cell) -> None:
    clips = cell.imagination(policy_share=0.0, clip_length=5, parallel=4).imagine(Still())
    assert all(clip.action.shape[1] == ACTION_DIM and clip.kind is BranchKind.LOCAL for clip in clips)
