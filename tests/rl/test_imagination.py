"""Imagination with the simulator as world model: branches are what really would have happened, labels end them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from rl.build import make_schema
from rl.demonstrations import DEMO_SEED, record_demonstrations
from rl.imagination.clip import Origin, Start
from rl.imagination.imagine import Imagination, ImaginationConfig
from rl.imagination.labels import LabelledClip, TruthLabeller
from rl.imagination.oracle import OracleError, OracleImaginer
from rl.imagination.starts import OnlineStarts, StartConfig, StartPool
from rl.replay.errors import EmptyShareError
from rl.replay.journal import EndReason, EpisodeOutcome
from rl.replay.reader import StoreReader
from rl.replay.writer import StoreWriter
from rl.schemas import CorrectionConfig, DemosConfig
from robot.env import RobotEnv
from robot.factory import ObsKind, RobotConfig, make_robot_env
from robot.types import ACTION_DIM, Float32, Label, Observation
from worldmodel.counterfactual import BranchKind, Motion

CONFIG = RobotConfig(task="press", obs=ObsKind.STATE)


@dataclass(frozen=True)
class Cell:
    """An environment to imagine in, and two stores: some demonstrations, nothing online yet."""

    env: RobotEnv
    demo: StoreReader
    online: StoreReader

    def oracle(self, shift: int = 0) -> OracleImaginer:
        return OracleImaginer(
            self.env,
            {Origin.DEMO: self.demo, Origin.ONLINE: self.online},
            lambda _, episode: DEMO_SEED + episode + shift,
        )

    def pool(self, **config: float) -> StartPool:
        return StartPool(self.demo, self.online, StartConfig(**config))  # type: ignore[arg-type]

    def imagination(self, **config: object) -> Imagination:
        motion = Motion.of(self.env.robot.spec, self.env.robot.frames.action)
        return Imagination(
            self.pool(),
            self.oracle(),
            motion,
            ImaginationConfig(**config),
            np.random.default_rng(0),  # type: ignore[arg-type]
        )


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cell]:
    root: Path = tmp_path_factory.mktemp("stores")
    env = make_robot_env(CONFIG, seed=0)
    list(
        record_demonstrations(
            root / "demo", env, DemosConfig(episodes=2, noise=0.2), CorrectionConfig(), seed=0
        )
    )
    with StoreWriter(root / "real", make_schema(env)):
        pass
    yield Cell(env, StoreReader(root / "demo"), StoreReader(root / "real"))
    env.close()


class Constant:
    """A policy that always does the same."""

    def __init__(self, action: Float32) -> None:
        self._action = action
        self.asked = 0

    def act_batch(self, observations: Sequence[Observation], *, noise: Float32 | None = None) -> Float32:
        assert noise is None, "imagination explores as the robot does"
        self.asked += len(observations)
        return np.tile(self._action, (len(observations), 1))


def test_the_real_actions_lead_where_they_really_led(cell: Cell) -> None:
    episode = cell.demo.episode(1)
    session = cell.oracle().begin([Start(Origin.DEMO, 1, 3), Start(Origin.DEMO, 1, 5)], seed=0)
    np.testing.assert_allclose(session.observations[0].proprio, episode.proprio[3], atol=1e-4)
    for t in range(4):
        futures = session.step(episode.action[[3 + t, 5 + t]])
        np.testing.assert_allclose(futures.observations[0].proprio, episode.proprio[4 + t], atol=1e-3)
        np.testing.assert_allclose(futures.observations[1].proprio, episode.proprio[6 + t], atol=1e-3)


def test_other_actions_lead_elsewhere(cell: Cell) -> None:
    session = cell.oracle().begin([Start(Origin.DEMO, 0, 2)] * 2, seed=0)
    actions = np.zeros((2, ACTION_DIM), np.float32)
    actions[0, 0], actions[1, 0] = 1.0, -1.0
    futures = session.step(actions)
    assert futures.observations[0].proprio[0] - futures.observations[1].proprio[0] > 0.005
    np.testing.assert_allclose(futures.executed[:, 0], [1.0, -1.0], atol=1e-5)


def test_an_episode_of_another_layout_is_refused(cell: Cell) -> None:
    with pytest.raises(OracleError, match="re-enacted"):
        cell.oracle(shift=1).begin([Start(Origin.DEMO, 0, 4)], seed=0)


def test_what_contacts_have_carried_away_is_not_branched_from(cell: Cell, tmp_path: Path) -> None:
    """A recorded pose that the simulator does not come back to from step 5 on."""
    episode = cell.demo.episode(0)

    def moved(t: int) -> Observation:
        seen = episode.observation(t)
        return replace(seen, proprio=seen.proprio + np.float32(0.01 * (t >= 5)))

    with StoreWriter(tmp_path / "real", cell.demo.schema) as writer:
        writer.begin_episode(moved(0))
        for t, step in enumerate(episode.transitions()):
            writer.add(replace(step, observation=moved(t), next_observation=moved(t + 1)))
        writer.end_episode(EpisodeOutcome(EndReason.SUCCESS))
    oracle = OracleImaginer(
        cell.env, {Origin.ONLINE: StoreReader(tmp_path / "real")}, lambda *_: DEMO_SEED + 0
    )
    session = oracle.begin([Start(Origin.ONLINE, 0, 4), Start(Origin.ONLINE, 0, 7)], seed=0)
    futures = session.step(episode.action[[4, 7]])
    assert list(futures.lost) == [False, True]
    np.testing.assert_allclose(futures.observations[0].proprio, episode.proprio[5], atol=1e-3)


def test_what_follows_an_earlier_end_is_not_branched_from(cell: Cell, tmp_path: Path) -> None:
    """Re-enacted, the episode succeeds a step before it did when it was recorded, where the arm then stood."""
    steps = list(cell.demo.episode(0).transitions())
    end = steps[-1].next_observation
    with StoreWriter(tmp_path / "real", cell.demo.schema) as writer:
        writer.begin_episode(steps[0].observation)
        for step in steps[:-1]:
            writer.add(step)
        writer.add(replace(steps[-1], terminated=False, reward=0.0))
        writer.add(replace(steps[-1], observation=end))
        writer.end_episode(EpisodeOutcome(EndReason.SUCCESS))
    oracle = OracleImaginer(
        cell.env, {Origin.ONLINE: StoreReader(tmp_path / "real")}, lambda *_: DEMO_SEED + 0
    )
    session = oracle.begin([Start(Origin.ONLINE, 0, len(steps) - 1), Start(Origin.ONLINE, 0, len(steps))], 0)
    assert list(session.step(np.tile(steps[-1].action, (2, 1))).lost) == [False, True]


def test_the_policy_acts_on_what_is_imagined(cell: Cell) -> None:
    policy = Constant(np.array([0, 0, 0.5, 0, 0, 0, 0], np.float32))
    clips = cell.imagination(clip_length=5, parallel=4).imagine(policy)
    assert len(clips) == 4 and policy.asked == sum(len(clip) for clip in clips)
    for clip in clips:
        assert len(clip) == 5 or clip.truth[-1] is Label.SUCCESS
        assert clip.kind is BranchKind.POLICY and len(clip.observations) == len(clip) + 1
        assert clip.observations[-1].proprio[2] > clip.observations[0].proprio[2], "it rises"


def test_perturbed_clips_keep_inactive_entries_and_end_with_the_real_one(cell: Cell) -> None:
    policy = Constant(np.zeros(ACTION_DIM, np.float32))
    clips = cell.imagination(policy_share=0.0, clip_length=30, parallel=8).imagine(policy)
    assert policy.asked == 0
    for clip in clips:
        real = cell.demo.episode(clip.start.episode)
        assert clip.kind is BranchKind.LOCAL and len(clip) <= len(real) - clip.start.step
        assert not np.array_equal(clip.action, real.action[clip.start.step :][: len(clip)])
        assert not clip.action[:, 6].any()


def test_a_success_ends_the_clip_and_anything_else_is_cut_off(cell: Cell) -> None:
    episode = cell.demo.episode(0)
    last = len(episode) - 3
    session = cell.oracle().begin([Start(Origin.DEMO, 0, last), Start(Origin.DEMO, 0, 0)], seed=0)
    labels, over = [], []
    for t in range(3):
        futures = session.step(episode.action[[last + t, t]])
        labels.append(list(futures.truth))
        over.append(list(futures.over))
    assert [row[0] for row in labels] == [Label.FAILURE, Label.FAILURE, Label.SUCCESS]
    assert [row[0] for row in over] == [False, False, True]
    assert all(row[1] is Label.FAILURE for row in labels)


def label(truth: list[Label], cell: Cell) -> LabelledClip:
    (clip,) = cell.imagination(clip_length=len(truth), parallel=1).imagine(
        Constant(np.zeros(ACTION_DIM, np.float32))
    )
    object.__setattr__(clip, "truth", truth)
    return TruthLabeller().label([clip])[0]


def test_truth_labels(cell: Cell) -> None:
    success, failure, unknown = Label.SUCCESS, Label.FAILURE, Label.UNKNOWN
    reached = label([failure, success, failure], cell)
    assert (reached.label, reached.length) == (success, 2)
    assert reached.discounted_return(0.9) == pytest.approx(0.9)
    assert label([failure] * 3, cell).label is failure
    assert label([failure, unknown, failure], cell).label is unknown, "unknown is never failure"


def test_starts_follow_the_wanted_share_and_nothing_online_means_demonstrations(
    cell: Cell, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    assert {start.origin for start in cell.pool(demo_share=0.0).draw(20, rng)} == {Origin.DEMO}
    twice = StartPool(cell.demo, cell.demo, StartConfig(demo_share=0.25, newest_episodes=1))
    drawn = twice.draw(400, rng)
    online = [start for start in drawn if start.origin is Origin.ONLINE]
    assert 250 < len(online) < 350 and {start.episode for start in online} == {1}, "the newest episode only"
    anchored = StartPool(cell.demo, cell.online, StartConfig(), cell.demo)
    assert anchored.num_episodes == 2 * cell.pool().num_episodes
    origins = [start.origin for start in anchored.draw_replays(400, rng)]
    assert 150 < origins.count(Origin.ANCHOR) < 250 and set(origins) == {Origin.DEMO, Origin.ANCHOR}
    assert Origin.ANCHOR not in {start.origin for start in anchored.draw(100, rng)}, "never imagined from"
    empty = StartPool(cell.online, cell.online, StartConfig())
    with pytest.raises(EmptyShareError, match="no finished episode"):
        empty.draw(1, rng)


def test_the_real_source_of_a_clip_begins_at_its_start(cell: Cell) -> None:
    clip = cell.pool().clip(Start(Origin.DEMO, 1, 2), length=4, history=1)
    np.testing.assert_array_equal(clip.proprio[0], cell.demo.episode(1).proprio[1:7])


def test_starts_may_be_kept_to_online_episodes_that_failed(cell: Cell, tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "real", cell.demo.schema) as writer:
        for kept in (0, 1):  # the first as it was, the second without its last step, the success
            episode = cell.demo.episode(kept)
            writer.begin_episode(episode.observation(0))
            for transition in list(episode.transitions())[: len(episode) - kept]:
                writer.add(transition)
            writer.end_episode(EpisodeOutcome(EndReason.TIMEOUT if kept else EndReason.SUCCESS))
    pool = StartPool(
        cell.demo,
        StoreReader(tmp_path / "real"),
        StartConfig(demo_share=0.0, online=OnlineStarts.FAILED),
    )
    drawn = pool.draw(50, np.random.default_rng(0))
    assert {(start.origin, start.episode) for start in drawn} == {(Origin.ONLINE, 1)}
