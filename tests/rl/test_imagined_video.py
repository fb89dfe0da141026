"""Imagined video: real frames go in, imagined ones come out, a judge labels them and replays tell what it is worth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from reward_model.calibration.anchors import AnchorKind, AnchorPair, ScorerKey
from reward_model.calibration.calibrator import CalibrationConfig, Calibrator
from reward_model.labels import Thresholds
from rl.build import make_schema
from rl.demonstrations import record_demonstrations
from rl.imagination.adapting import Adapting, TrustConfig
from rl.imagination.clip import ImaginedClip, Origin
from rl.imagination.imagine import Imagination, ImaginationConfig
from rl.imagination.labels import RewardModelLabeller
from rl.imagination.proprio import ProprioConfig, ProprioModel
from rl.imagination.starts import StartConfig, StartPool
from rl.imagination.video import VideoImaginer
from rl.replay.reader import StoreReader
from rl.replay.writer import StoreWriter
from rl.schemas import CorrectionConfig, DemosConfig
from rl.world_models.data import make_spec
from robot.env import RobotEnv
from robot.factory import RobotConfig, make_robot_env
from robot.types import ACTION_DIM, Float32, Label, Observation
from worldmodel.adapt import Champion, ScheduleConfig, Scores, Versions
from worldmodel.baselines import CopyLastFrame
from worldmodel.counterfactual import BranchKind, Motion
from worldmodel.interface import Context, Imagined


@dataclass(frozen=True)
class Cell:
    env: RobotEnv
    pool: StartPool

    @property
    def model(self) -> CopyLastFrame:
        return CopyLastFrame(make_spec(self.pool.schema, context_frames=3, max_horizon=12))

    def imagination(
        self, model: CopyLastFrame | None = None, max_risk: float = 1.0, **config: object
    ) -> Imagination:
        demo = self.pool.readers[Origin.DEMO]
        records = demo.records(demo.valid_starts)
        after = demo.records(demo.valid_starts + 1)["observation"]["proprio"]
        proprio = ProprioModel(
            records["observation"]["proprio"], records["transition"]["action"], after, ProprioConfig()
        )
        motion = Motion.of(self.env.robot.spec, self.env.robot.frames.action)
        imaginer = VideoImaginer(
            model or self.model, proprio, self.pool, motion, control_period=0.1, max_risk=max_risk
        )
        settings = ImaginationConfig(**config)  # type: ignore[arg-type]
        return Imagination(self.pool, imaginer, motion, settings, np.random.default_rng(0))


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cell]:
    root: Path = tmp_path_factory.mktemp("stores")
    env = make_robot_env(RobotConfig(task="press", image_px=32), seed=0)
    list(
        record_demonstrations(
            root / "demo", env, DemosConfig(episodes=6, noise=0.3), CorrectionConfig(), seed=0
        )
    )
    with StoreWriter(root / "real", make_schema(env)):
        pass
    yield Cell(env, StartPool(StoreReader(root / "demo"), StoreReader(root / "real"), StartConfig()))
    env.close()


class Still:
    """A policy that pushes beyond every wall."""

    def act_batch(self, observations: Sequence[Observation], *, noise: Float32 | None = None) -> Float32:
        assert all(set(observation.images) == {"wrist", "side"} for observation in observations)
        return np.tile(np.array([0, 0, 1, 0, 0, 0, 0], np.float32), (len(observations), 1))


class Judge:
    """Scores what it was told to, one number for all imagined frames; a real first one it calls no success."""

    task, version, real = "press", 4, 0.1

    def __init__(self, cell: Cell, score: float) -> None:
        self.views: Mapping[str, tuple[int, int]] = cell.pool.schema.views
        self._score = score

    def score(self, images: Mapping[str, np.ndarray[tuple[int, ...], np.dtype[np.uint8]]]) -> Float32:
        scores = np.full(next(iter(images.values())).shape[:2], self._score, np.float32)
        scores[:, 0] = self.real
        return scores

    def save(self, path: Path) -> None: ...


def labeller(cell: Cell, score: float, confidence: float = 0.5) -> RewardModelLabeller:
    return RewardModelLabeller(
        Judge(cell, score),
        Thresholds(0.8, 0.2),
        Calibrator(CalibrationConfig()),
        "press",
        confidence=confidence,
    )


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


def test_replays_know_their_outcome_and_other_clips_do_not(cell: Cell) -> None:
    clips = cell.imagination(replay_share=0.5, clip_length=40, parallel=30).imagine(Still())
    replays = [clip for clip in clips if clip.kind is BranchKind.REPLAY]
    assert 5 < len(replays) < 25
    for clip in replays:
        real = cell.pool.clip(clip.start, 40)
        np.testing.assert_array_equal(clip.action, real.action[0][real.valid[0]])
        assert clip.truth[-1] is Label.SUCCESS and Label.UNKNOWN not in clip.truth
    assert all(truth is Label.UNKNOWN for c in clips if c.kind is BranchKind.POLICY for truth in c.truth)


@pytest.mark.parametrize(
    ("score", "label"),
    [(0.9, Label.SUCCESS), (0.1, Label.FAILURE), (0.5, Label.UNKNOWN), (np.nan, Label.UNKNOWN)],
)
def test_labels_follow_the_thresholds_and_unknown_is_never_failure(
    cell: Cell, score: float, label: Label
) -> None:
    clips = cell.imagination(clip_length=4, parallel=3).imagine(Still())
    for one in labeller(cell, score).label(clips):
        assert one.label is label and one.reward_model_version == 4
        assert one.length == (2 if label is Label.SUCCESS else 4), "success has held from the third frame on"


def test_a_model_that_takes_the_real_start_for_a_success_is_not_believed(cell: Cell) -> None:
    clips = cell.imagination(clip_length=4, parallel=3).imagine(Still())
    one = labeller(cell, 0.9)
    one._model.real = 0.8  # type: ignore[attr-defined]
    assert {(found.label, found.length) for found in one.label(clips)} == {(Label.UNKNOWN, 4)}
    one.label([with_truth(clips[0], False, episode) for episode in range(3)])
    assert one.metrics()["calibration/effective_anchors"] == 0, "what gets no label tells nothing of labels"


def with_truth(clip: ImaginedClip, success: bool, episode: int) -> ImaginedClip:
    truth = [Label.FAILURE] * (len(clip) - 1) + [Label.SUCCESS if success else Label.FAILURE]
    return replace(clip, kind=BranchKind.REPLAY, truth=truth, start=replace(clip.start, episode=episode))


def test_replays_open_the_gate_of_a_good_judge_and_not_of_a_blind_one(cell: Cell) -> None:
    (clip,) = cell.imagination(clip_length=3, parallel=1).imagine(Still())
    good, blind = labeller(cell, 0.9), labeller(cell, 0.5)
    assert good.gate == 0.0, "nothing is trusted before it was seen to be right"
    rng = np.random.default_rng(0)
    for episode in range(300):
        success = bool(rng.random() < 0.5)
        replay = with_truth(clip, success, episode)
        good._model._score = 0.9 if success else 0.1  # type: ignore[attr-defined]
        good.label([replay])
        blind._model._score = float(rng.uniform(0.1, 0.9))  # type: ignore[attr-defined]
        blind.label([replay])
    assert good.gate > 0.5 and blind.gate == 0.0
    assert good.metrics()["calibration/effective_anchors"] >= 100


def judged(
    one: RewardModelLabeller, clip: ImaginedClip, episodes: range, right: float, version: int = 0
) -> None:
    """Replays, half of them successes, that a judge scores rightly with probability `right`."""
    rng = np.random.default_rng(episodes.start)
    for episode in episodes:
        success = bool(rng.random() < 0.5)
        said = success if rng.random() < right else not success
        one._model._score = (0.9 if said else 0.1) + rng.normal(0.0, 0.03)  # type: ignore[attr-defined]
        one.label([replace(with_truth(clip, success, episode), world_model_version=version)])


@pytest.mark.parametrize(
    ("truth", "confidence", "success", "failure"),
    [
        ((0.0, 1.0), 0.9, Label.SUCCESS, Label.FAILURE),
        ((0.2, 0.8), 0.5, Label.SUCCESS, Label.FAILURE),
        ((0.2, 0.8), 0.9, Label.UNKNOWN, Label.UNKNOWN),  # right ranks, and not so sure
        ((0.0, 0.3), 0.5, Label.UNKNOWN, Label.FAILURE),  # what looks like success seldom is
        ((0.7, 1.0), 0.5, Label.SUCCESS, Label.UNKNOWN),
    ],
)
def test_a_label_that_the_calibrated_score_contradicts_is_unknown(
    cell: Cell, truth: tuple[float, float], confidence: float, success: Label, failure: Label
) -> None:
    """truth: how often what is scored .1, and what is scored .9, really succeeds."""
    (clip,) = cell.imagination(clip_length=3, parallel=1).imagine(Still())
    one = labeller(cell, 0.9, confidence)
    (before,) = one.label([clip])
    assert before.label is Label.SUCCESS, "no map is learnt yet"
    rng = np.random.default_rng(2)
    for episode in range(300):
        said = episode % 2
        one._model._score = (0.1, 0.9)[said]  # type: ignore[attr-defined]
        one.label([with_truth(clip, bool(rng.random() < truth[said]), episode)])
    for score, label in ((0.9, success), (0.1, failure), (0.5, Label.UNKNOWN), (np.nan, Label.UNKNOWN)):
        one._model._score = score  # type: ignore[attr-defined]
        (found,) = one.label([clip])
        assert found.label is label and found.length == (2 if label is Label.SUCCESS else 3)


def test_a_world_model_in_which_everything_succeeds_opens_no_gate(cell: Cell) -> None:
    (clip,) = cell.imagination(clip_length=3, parallel=1).imagine(Still())
    one = labeller(cell, 0.9)
    for episode in range(200):
        one.label([with_truth(clip, episode % 2 == 0, episode)])
    assert one.gate == 0.0


def test_reversed_ranks_open_no_gate(cell: Cell) -> None:
    (clip,) = cell.imagination(clip_length=3, parallel=1).imagine(Still())
    one = labeller(cell, 0.9)
    judged(one, clip, range(200), right=0.0)
    assert one.gate == 0.0


def test_a_judge_that_goes_wrong_later_is_shut_out_within_a_few_episodes(cell: Cell) -> None:
    """A frozen world model that the policy has left behind."""
    (clip,) = cell.imagination(clip_length=3, parallel=1).imagine(Still())
    one = labeller(cell, 0.9)
    judged(one, clip, range(300), right=1.0)
    assert one.gate > 0.5
    for begin in range(300, 340, 4):
        judged(one, clip, range(begin, begin + 4), right=0.5)
        if one.gate == 0.0:
            break
    assert one.gate == 0.0 and begin < 330


def test_another_version_has_to_prove_itself_anew(cell: Cell) -> None:
    (clip,) = cell.imagination(clip_length=3, parallel=1).imagine(Still())
    one = labeller(cell, 0.9)
    judged(one, clip, range(300), right=1.0)
    assert one.gate > 0.5
    judged(one, clip, range(300, 302), right=1.0, version=1)
    assert one.gate == 0.0
    judged(one, clip, range(302, 620), right=1.0, version=1)
    assert one.gate > 0.5


def test_a_scorer_asks_for_replays_until_its_gate_can_be_judged(cell: Cell) -> None:
    (clip,) = cell.imagination(clip_length=3, parallel=1).imagine(Still())
    one = labeller(cell, 0.9)
    assert one.wants_replays(0, 20) and not one.wants_replays(0, 19), "fewer episodes could never open it"
    judged(one, clip, range(300), right=1.0)
    assert not one.wants_replays(0, 20) and not one.newcomer
    assert one.wants_replays(1, 20), "of another version nothing is known"
    judged(one, clip, range(300, 302), right=1.0, version=1)
    assert one.gate == 0.0 and one.newcomer and one.wants_replays(1, 20)
    wrong = labeller(cell, 0.9)
    judged(wrong, clip, range(300), right=0.0)
    assert wrong.gate == 0.0 and not wrong.newcomer
    assert not wrong.wants_replays(0, 20), "more of the same proves nothing"


def test_replays_alone_begin_where_replays_may(cell: Cell) -> None:
    clips = cell.imagination(clip_length=4, parallel=6).replay(Still())
    assert clips and {clip.kind for clip in clips} == {BranchKind.REPLAY}
    assert all(Label.UNKNOWN not in clip.truth for clip in clips)


def test_only_replays_that_the_model_has_not_rehearsed_count_as_tests(cell: Cell) -> None:
    (clip,) = cell.imagination(clip_length=3, parallel=1).imagine(Still())
    seen: list[AnchorPair] = []

    class Told(Calibrator):
        def observe(self, key: ScorerKey, group: Sequence[AnchorPair]) -> None:
            seen.extend(group)

    judge = Judge(cell, 0.9)
    one = RewardModelLabeller(
        judge, Thresholds(0.8, 0.2), Told(CalibrationConfig()), "press", lambda start: start.episode >= 5
    )
    executed = replace(with_truth(clip, True, 4), kind=BranchKind.POLICY)
    one.label([*(with_truth(clip, True, episode) for episode in (4, 5)), executed])
    assert [pair.kind for pair in seen] == [
        AnchorKind.REPLAY,
        AnchorKind.HINDSIGHT,
        AnchorKind.COUNTERFACTUAL,
    ]


def test_a_run_with_calibration_of_an_older_format_goes_on_and_is_calibrated_anew(
    cell: Cell, caplog: pytest.LogCaptureFixture
) -> None:
    (clip,) = cell.imagination(clip_length=3, parallel=1).imagine(Still())
    one, resumed = labeller(cell, 0.9), labeller(cell, 0.9)
    judged(one, clip, range(300), right=1.0)
    assert one.trust(0) > 0.5
    resumed.load_state(one.state())
    assert resumed.trust(0) == one.trust(0)
    anew = labeller(cell, 0.9)
    anew.load_state(one.state() | {"format": 1})
    assert anew.trust(0) == 0.0 and "begin calibration anew" in caplog.text


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
