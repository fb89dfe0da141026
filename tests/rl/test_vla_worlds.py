"""Where groups come from: one common start, the robot's own word, and what a video world model may and may not say."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from vla_toy import correction_config

from reward_model.calibration.calibrator import Calibrator
from reward_model.calibration.correction import CorrectionLoop
from reward_model.calibration.scorers import ScorerError, ScorerPair
from reward_model.interface import Images, Readings
from reward_model.labels import Thresholds
from rl.build import make_schema
from rl.demonstrations import record_demonstrations
from rl.imagination.clip import ImaginedClip, Origin, Start
from rl.imagination.labels import RewardModelLabeller
from rl.imagination.proprio import ProprioConfig, fit_proprio
from rl.imagination.starts import StartConfig, StartPool
from rl.imagination.video import VideoImaginer
from rl.replay.reader import StoreReader
from rl.replay.writer import StoreWriter
from rl.schemas import CorrectionConfig, DemosConfig
from rl.vla.execution import Robot
from rl.vla.inputs import InputBuilder
from rl.vla.judges import CheapScorer, DistortedJudge, DistortionConfig, RewardModelJudge, RobotScorer
from rl.vla.policy import Decisions, PolicySpec
from rl.vla.small import SmallConfig, SmallPolicy
from rl.vla.trajectory import Recording, Sampler, Trajectory
from rl.vla.worlds import GroupStart, SimulatorWorld, VideoWorld
from rl.world_models.data import make_spec
from robot.env import RobotEnv
from robot.factory import ObsKind, RobotConfig, make_expert, make_robot_env
from robot.sim.expert import ExpertNoise
from robot.tasks import PROPRIO_NAMES
from robot.types import ACTION_DIM, Float32, Label, Observation
from worldmodel.baselines import CopyLastFrame
from worldmodel.counterfactual import BranchKind, Motion
from worldmodel.interface import Context, Imagined

CHUNK, HORIZON = 3, 6
START = GroupStart("press", 5)
NAMES = {"press": PROPRIO_NAMES}


@dataclass(frozen=True)
class Cell:
    env: RobotEnv
    other: RobotEnv
    root: Path
    policy: SmallPolicy
    builder: InputBuilder

    def sampler(self, seed: int = 0) -> Sampler:
        return Sampler(self.policy, self.builder, torch.Generator().manual_seed(seed), 1.0)

    def video(self, model: CopyLastFrame | None = None, max_risk: float = 1.0) -> VideoWorld:
        demo = StoreReader(self.root / "demo")
        pool = StartPool(demo, StoreReader(self.root / "real"), StartConfig())
        imaginer = VideoImaginer(
            model or self.model,
            fit_proprio([demo], ProprioConfig()),
            pool,
            Motion.of(self.env.robot.spec, self.env.robot.frames.action),
            control_period=0.1,
            max_risk=max_risk,
        )
        rng = np.random.default_rng(0)
        return VideoWorld({"press": imaginer}, {"press": pool}, horizon=HORIZON, max_risk=max_risk, rng=rng)

    @property
    def model(self) -> CopyLastFrame:
        schema = StoreReader(self.root / "demo").schema
        return CopyLastFrame(make_spec(schema, context_frames=3, max_horizon=12))


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cell]:
    root: Path = tmp_path_factory.mktemp("stores")
    config = RobotConfig(task="press", image_px=32)
    env, other = make_robot_env(config, seed=0), make_robot_env(config, seed=9)
    demos = DemosConfig(episodes=5, noise=0.3)
    list(record_demonstrations(root / "demo", env, demos, CorrectionConfig(), seed=0))
    with StoreWriter(root / "real", make_schema(env)):
        pass
    spec = PolicySpec(("wrist", "side"), (32, 32), env.proprio_spec, chunk=CHUNK, tokens=ACTION_DIM)
    small = SmallConfig(chunk=CHUNK, hidden=32, feature_dim=16)
    policy = SmallPolicy(small, spec, device=torch.device("cpu"), seed=0)
    builder = InputBuilder(spec, {"press": env.facts.instruction}, {"press": env.proprio_spec})
    yield Cell(env, other, root, policy, builder)
    env.close()
    other.close()


def test_members_of_a_simulated_group_share_their_start_and_nothing_else(cell: Cell) -> None:
    ((first, *others),) = SimulatorWorld({"press": cell.env}).imagine([START], 3, cell.sampler())
    values, _ = cell.other.reset(seed=START.layout)
    np.testing.assert_array_equal(first.observations[0].proprio, values["proprio"])
    for one in others:
        np.testing.assert_array_equal(
            one.observations[0].images["wrist"], first.observations[0].images["wrist"]
        )
        assert not np.array_equal(one.action[:CHUNK], first.action[:CHUNK])
        assert not one.executed and one.outcome is not Label.UNKNOWN and one.seconds == 0.0


def test_a_branch_is_what_the_robot_would_have_done(cell: Cell) -> None:
    """Branches take turns in one environment; executed alone, the same actions give the same episode."""
    (group,) = SimulatorWorld({"press": cell.env}).imagine([START], 2, cell.sampler())
    for branch in group:
        cell.other.reset(seed=START.layout)
        wishes = cell.policy._actions(branch.tokens)[branch.valid].numpy()
        for t, action in enumerate(wishes):
            values, _, _, _, info = cell.other.step(action)
            np.testing.assert_allclose(values["proprio"], branch.observations[t + 1].proprio, atol=1e-5)
        assert (branch.outcome is Label.SUCCESS) == info["success"]
        assert int(branch.valid.sum()) == len(branch)


class Script(Sampler):
    """Members are numbered as they appear; `following` says what a member decides next."""

    def __init__(self, builder: InputBuilder, following: Callable[[int], Decisions]) -> None:
        self._builder, self._following = builder, following
        self._members: list[Recording] = []

    def decide(self, recordings: Sequence[Recording]) -> None:
        for one in recordings:
            if one not in self._members:
                self._members.append(one)
            inputs = self._builder.build(one.task, [one.observation])
            one.decided(inputs, self._following(self._members.index(one)), 0)


@pytest.mark.parametrize("task", ["press", "insert"])
def test_the_simulated_world_repeats_execution(task: str, tmp_path: Path) -> None:
    """A success, a shaky attempt and one that pushes downwards to the time limit, side by side and one by one."""
    config = RobotConfig(task=task, obs=ObsKind.STATE)
    env, other = make_robot_env(config, seed=0), make_robot_env(config, seed=9)
    spec = PolicySpec((), (1, 1), env.proprio_spec, chunk=2, tokens=ACTION_DIM)
    builder = InputBuilder(spec, {task: env.facts.instruction}, {task: env.proprio_spec})
    leads = [make_expert(env, np.random.default_rng(i), ExpertNoise(level)) for i, level in enumerate((0, 1))]
    down = np.array([0, 0, -1, 0, 0, 0, -1], np.float32)
    generator = torch.Generator().manual_seed(0)
    told: list[list[Decisions]] = [[], [], []]

    def lead(member: int) -> Decisions:
        actions = torch.zeros(1, 2, ACTION_DIM)  # one action, then rest
        actions[0, 0] = torch.from_numpy(leads[member].act() if member < len(leads) else down)
        tokens = torch.randint(21, actions.shape, generator=generator)
        told[member].append(Decisions(actions, tokens, torch.rand(actions.shape, generator=generator)))
        return told[member][-1]

    with StoreWriter(tmp_path, make_schema(env), durable=False) as writer:
        executed = Robot({task: env}, {task: writer}).execute(task, 5, len(told), Script(builder, lead))
    left = [iter(decisions) for decisions in told]
    again = Script(builder, lambda member: next(left[member]))
    (imagined,) = SimulatorWorld({task: other}).imagine([GroupStart(task, 5)], len(told), again)
    assert executed[0].outcome is Label.SUCCESS and executed[2].outcome is Label.FAILURE
    for real, one in zip(executed, imagined, strict=True):
        assert (one.outcome, len(one)) == (real.outcome, len(real))
        assert one.distance == pytest.approx(real.distance, abs=1e-9)
        np.testing.assert_array_equal(one.action, real.action)
        for shown, seen in zip(one.observations, real.observations, strict=True):
            np.testing.assert_allclose(shown.proprio, seen.proprio, atol=1e-6)
        for name in ("tokens", "log_prob", "valid"):
            assert torch.equal(getattr(one, name), getattr(real, name)), name
        torch.testing.assert_close(one.inputs.proprio, real.inputs.proprio, rtol=0.0, atol=1e-6)
    env.close()
    other.close()


def test_executed_groups_are_stored_and_paid_for(cell: Cell, tmp_path: Path) -> None:
    with StoreWriter(tmp_path, make_schema(cell.env), durable=False) as writer:
        robot = Robot({"press": cell.env}, {"press": writer})
        group = robot.execute("press", START.layout, 2, cell.sampler())
    assert robot.executions == 2 and robot.steps == sum(map(len, group))
    assert robot.seconds == pytest.approx(0.1 * robot.steps)
    stored = StoreReader(tmp_path)
    assert stored.num_transitions == robot.steps
    for number, one in enumerate(group):
        episode = stored.episode(number)
        np.testing.assert_array_equal(episode.action, one.action)
        assert episode.success == (one.outcome is Label.SUCCESS)
        assert one.executed and np.isfinite(one.distance)
        again = cell.policy.log_prob(one.inputs, one.tokens).detach()
        torch.testing.assert_close(again, one.log_prob, rtol=1e-4, atol=1e-5)


class Careful(CopyLastFrame):
    """Trusts itself for three steps."""

    steps = 0

    def rollout(self, context: Context, actions: Float32, seed: int = 0) -> Imagined:
        imagined = super().rollout(context, actions, seed)
        risk = imagined.risk.copy()
        for t in range(risk.shape[1]):
            risk[:, t] = 0.9 if self.steps >= 3 else 0.0
            self.steps += 1
        return replace(imagined, risk=risk)


def test_imagined_groups_start_at_a_real_frame_and_end_at_the_horizon(cell: Cell) -> None:
    world = cell.video()
    groups = world.imagine([START, START], 4, cell.sampler())
    assert [len(group) for group in groups] == [4, 4]
    demo = StoreReader(cell.root / "demo")
    real = {
        frame.tobytes()
        for number in range(demo.num_episodes)
        for frame in demo.episode(number).images["wrist"]
    }
    for group in groups:
        starts = {one.observations[0].images["wrist"].tobytes() for one in group}
        assert len(starts) == 1 and starts <= real
        for one in group:
            assert len(one) == HORIZON and one.outcome is Label.UNKNOWN and not one.executed
            assert one.valid.sum() == HORIZON and np.abs(one.action).max() <= 1.0
    state = world.state()
    later = world.imagine([START], 2, cell.sampler(3))
    world.load_state(state)
    again = world.imagine([START], 2, cell.sampler(3))
    np.testing.assert_array_equal(later[0][0].action, again[0][0].action)


def test_what_the_world_model_does_not_trust_is_unknown_not_failed(cell: Cell) -> None:
    world = cell.video(Careful(cell.model.spec), max_risk=0.5)
    (group,) = world.imagine([START], 3, cell.sampler())
    assert all(one.lost and len(one) == 3 for one in group)
    scorer = CheapScorer(DistortedJudge(DistortionConfig(), np.random.default_rng(0)), world, ["press"])
    assert scorer.score(group) == [None, None, None]


class Watching:
    """A reward model that says how dark the last real frame was; remembers what it was shown."""

    task, version = "press", 3
    readings: tuple[str, ...] = ()

    def __init__(self, cell: Cell) -> None:
        self.views = dict.fromkeys(("wrist", "side"), (32, 32))
        self.shown: list[dict[str, np.ndarray]] = []

    def score(self, images: Images, readings: Readings | None = None) -> Float32:
        assert readings is not None
        self.shown.append({**images, **readings})
        return np.linspace(0.1, 0.9, images["wrist"].shape[1], dtype=np.float32)[None]

    def save(self, path: Path) -> None: ...


def test_executed_trajectories_are_judged_by_what_the_world_model_makes_of_them(
    cell: Cell, tmp_path: Path
) -> None:
    with StoreWriter(tmp_path, make_schema(cell.env), durable=False) as writer:
        (real,) = Robot({"press": cell.env}, {"press": writer}).execute("press", 5, 1, cell.sampler())
    model, world = Watching(cell), cell.video()
    judge = RewardModelJudge({"press": model}, {"press": Thresholds(0.8, 0.2, hold_frames=2)}, NAMES)
    scorer = CheapScorer(judge, world, ["press"])
    (score,) = scorer.score([real])
    shown = model.shown[0]["wrist"][0]
    assert len(shown) == HORIZON + 1  # its last steps
    np.testing.assert_array_equal(shown[0], real.observations[len(real) - HORIZON].images["wrist"])
    assert (shown[1:] == shown[0]).all()  # copied frames, where the real ones went on
    (height,) = model.shown[0]["ee_z"]
    assert height[0] == real.observations[len(real) - HORIZON].proprio[2] and len(set(height)) > 1, (
        "what the arm would have read stands beside them"
    )
    assert score == pytest.approx(np.linspace(0.1, 0.9, HORIZON + 1)[-2])  # held for two frames
    assert scorer.version == "reward-3/world-0"


def test_what_is_relived_is_imagined_as_groups_are_and_not_by_the_readings_that_came(
    cell: Cell, tmp_path: Path
) -> None:
    with StoreWriter(tmp_path, make_schema(cell.env), durable=False) as writer:
        (real,) = Robot({"press": cell.env}, {"press": writer}).execute("press", 5, 1, cell.sampler())
    (relived,) = cell.video().relive([real])
    read = np.stack([seen.proprio for seen in relived.observations])
    came = np.stack([seen.proprio for seen in real.observations])
    begin = len(real) - HORIZON
    np.testing.assert_array_equal(read[0], came[begin])
    assert np.abs(read[1:, :3] - came[begin + 1 :, :3]).max(axis=1).min() > 1e-5


class Knowing(Watching):
    """Reads the probability off the first pixel."""

    def score(self, images: Images, readings: Readings | None = None) -> Float32:
        return (images["wrist"][:, :, 0, 0, 0] / 255.0).astype(np.float32)


def replay(episode: int, rng: np.random.Generator) -> ImaginedClip:
    """A replay of a demonstration that succeeds in every second episode; the picture tells, with noise."""
    success = episode % 2 == 1
    frames = np.zeros((4, 32, 32, 3), np.uint8)
    frames[-2:, 0, 0, 0] = round(255 * np.clip(0.2 + 0.6 * success + 0.1 * rng.standard_normal(), 0, 1))
    seen = [
        Observation({"wrist": one, "side": one}, np.zeros(20, np.float32), 0.1 * t)
        for t, one in enumerate(frames)
    ]
    truth = [Label.FAILURE, Label.FAILURE, Label.SUCCESS if success else Label.FAILURE]
    return ImaginedClip(
        Start(Origin.DEMO, episode, 0),
        BranchKind.REPLAY,
        episode,
        seen,
        np.zeros((3, ACTION_DIM), np.float32),
        np.zeros(3, np.float32),
        truth,
        world_model_version=0,
    )


def test_the_closed_loops_labeller_and_the_vla_trainer_feed_one_calibrator(
    cell: Cell, tmp_path: Path
) -> None:
    config = correction_config(0.25)
    shared = Calibrator(config.calibration)
    model, thresholds = Knowing(cell), Thresholds(0.6, 0.4, hold_frames=2)
    labeller = RewardModelLabeller(model, thresholds, shared, "press")
    judge = RewardModelJudge({"press": model}, {"press": thresholds}, NAMES)
    scorers = ScorerPair(CheapScorer(judge, cell.video(), ["press"]), RobotScorer(5.0))
    loop = CorrectionLoop(scorers, config, shared)
    assert loop.gate("press").value == 0.0
    rng = np.random.default_rng(1)
    for first in range(0, 240, 8):
        labeller.label([replay(first + i, rng) for i in range(8)])
    assert labeller.gate == loop.gate("press").value > 0.5  # what replays have shown opens both
    with StoreWriter(tmp_path, make_schema(cell.env), durable=False) as writer:
        group = Robot({"press": cell.env}, {"press": writer}).execute("press", 5, 2, cell.sampler())
    before = labeller.metrics()["calibration/pairs"]
    loop.step([group], ["press"], anchored=[0])
    assert labeller.metrics()["calibration/pairs"] == before + 2  # and executions teach both
    assert labeller.gate == loop.gate("press").value


def trajectory(cell: Cell, outcome: Label, distance: float = 0.5) -> Trajectory:
    (group,) = cell.video().imagine([START], 2, cell.sampler())
    return replace(group[0], outcome=outcome, distance=distance)


def test_the_distortions_are_what_they_are_called(cell: Cell) -> None:
    won, near, far = (
        trajectory(cell, Label.SUCCESS),
        trajectory(cell, Label.FAILURE, 0.0),
        trajectory(cell, Label.FAILURE, 1.0),
    )

    def scores(**config: float | bool) -> list[float | None]:
        judge = DistortedJudge(DistortionConfig(**config), np.random.default_rng(0))  # type: ignore[arg-type]
        return judge.score([won, near, far])

    assert scores() == pytest.approx([0.85, 0.15, 0.15])
    assert scores(near_miss=1.0) == pytest.approx([0.85, 0.85, 0.15])
    assert scores(reversed=True) == pytest.approx([0.15, 0.85, 0.85])
    assert scores(false_success=1.0) == pytest.approx([0.85, 0.85, 0.85])
    judge = DistortedJudge(DistortionConfig(noise=0.1), np.random.default_rng(0))
    state = judge.state()
    first = judge.score([won, far, trajectory(cell, Label.UNKNOWN)])
    judge.load_state(state)
    assert judge.score([won, far]) == first[:2] and first[2] is None


def test_the_robots_word_and_the_scorers_roles(cell: Cell) -> None:
    robot = RobotScorer(5.0)
    outcomes = [trajectory(cell, label) for label in (Label.SUCCESS, Label.FAILURE, Label.UNKNOWN)]
    assert robot.score(outcomes) == [1.0, 0.0, None]
    cheap = CheapScorer(DistortedJudge(DistortionConfig(), np.random.default_rng(0)), cell.video(), ["press"])
    with pytest.raises(ScorerError, match="swapped"):
        ScorerPair(cheap=robot, trusted=cheap)
