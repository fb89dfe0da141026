"""The trainer on a toy arm: it learns two instructions, pays for little, shuts out liars, and continues bit by bit."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from vla_toy import Toy, correction_config

from reward_model.calibration.anchors import AnchorKind, AnchorPair, ScorerKey
from reward_model.calibration.calibrator import CalibrationConfig, CalibrationMode, Calibrator
from reward_model.calibration.correction import CorrectionConfig
from reward_model.calibration.gates import Closure
from rl.imagination.labels import scorer_version
from rl.replay.journal import EndReason
from rl.replay.reader import StoreReader
from rl.vla.acting import evaluate_policy
from rl.vla.judges import DistortedJudge, DistortionConfig
from rl.vla.policy import PolicyError
from rl.vla.trainer import LoopConfig
from rl.vla.trajectory import Trajectory
from robot.interfaces import RobotFault


def judge(**distortion: Any) -> DistortedJudge:
    return DistortedJudge(DistortionConfig(**distortion), np.random.default_rng(9))


@contextmanager
def toy(root: Path, of: DistortedJudge, correction: CorrectionConfig, **options: Any) -> Iterator[Toy]:
    made = Toy(root, of, correction, **options)
    try:
        yield made
    finally:
        made.close()


def success(made: Toy, steps: int) -> float:
    """Mean success on the robot over the last `steps` steps."""
    return float(np.nanmean([made.trainer.step()["vla/real_success"] for _ in range(steps)]))


def test_every_group_executed_it_learns_both_instructions(tmp_path: Path) -> None:
    with toy(tmp_path, judge(), correction_config(1.0)) as made:
        before = success(made, 2)
        for _ in range(17):
            metrics = made.trainer.step()
        assert before < 0.6 < 0.85 < success(made, 3)
        assert metrics["vla/groups_executed"] == 4.0 and made.world.imagined == 0
        assert made.robot.executions == 22 * 4 * 8
        assert made.robot.seconds == pytest.approx(0.1 * made.robot.steps)
        stored = sum(StoreReader(tmp_path / task).num_episodes for task in ("left", "right"))
        assert stored == made.robot.executions  # robot data are kept


def test_anchored_it_learns_as_much_from_fewer_executions(tmp_path: Path) -> None:
    loop = LoopConfig(groups=4, executed_first=3)
    with toy(tmp_path, judge(noise=0.1), correction_config(0.25), loop=loop) as made:
        for _ in range(27):
            metrics = made.trainer.step()
        assert success(made, 3) > 0.8
        assert made.robot.executions < 30 * 4 * 8 / 2
        assert metrics["calibration/left/gate"] > 0.5
        assert made.world.imagined > made.robot.executions


def test_behind_a_closed_gate_only_executed_groups_teach(tmp_path: Path) -> None:
    """Before there is evidence nothing is imagined: a step is as large as its real groups."""
    with toy(tmp_path, judge(), correction_config(0.25, min_pairs=2000)) as made:
        for _ in range(4):
            metrics = made.trainer.step()
            assert (metrics["vla/groups_executed"], metrics["vla/groups_imagined"]) == (1.0, 0.0)
            assert metrics["vla/groups_shut"] == 3.0 and metrics["vla/groups_teaching"] <= 1.0
        assert made.world.imagined == 0
        assert Closure.UNCALIBRATED in made.correction.gate("left").closures


def open_gates(made: Toy) -> None:
    for _ in range(30):
        made.trainer.step()
        if all(made.correction.gate(task).value > 0.3 for task in ("left", "right")):
            return
    raise AssertionError("the gates of an honest judge did not open")


def test_a_new_world_model_closes_the_gate_at_once(tmp_path: Path) -> None:
    loop = LoopConfig(groups=4, executed_first=4)
    with toy(tmp_path, judge(noise=0.1), correction_config(0.25), loop=loop) as made:
        open_gates(made)
        imagined = made.world.imagined
        made.world.number += 1
        metrics = made.trainer.step()
        assert metrics["vla/groups_imagined"] == 0.0 and made.world.imagined == imagined
        assert metrics["calibration/left/closed_new_version"] == 1.0


def test_continued_with_another_judge_of_the_same_version_number_it_is_calibrated_anew(
    tmp_path: Path,
) -> None:
    loop, files = LoopConfig(groups=4, executed_first=4), {"reward_models": {"left": "a"}}
    with toy(
        tmp_path / "first", judge(noise=0.1), correction_config(0.25), loop=loop, scored_by=files
    ) as made:
        open_gates(made)
        tensors, state = made.trainer.tensors(), json.loads(json.dumps(made.trainer.state()))
        trusted = made.correction.gate("left").value
    unnamed = {name: value for name, value in state.items() if name != "scored_by"}  # as older runs saved it
    other = {"reward_models": {"left": "b"}}
    for name, found, by in (("same", state, files), ("other", state, other), ("unnamed", unnamed, files)):
        with toy(tmp_path / name, judge(noise=0.1), correction_config(0.25), loop=loop, scored_by=by) as made:
            made.trainer.load(tensors, found)
            if name == "same":
                assert made.correction.gate("left").value == trusted
                continue
            assert made.correction.gate("left").closures[0] is Closure.UNCALIBRATED
            assert made.trainer.step()["vla/groups_imagined"] == 0.0
            assert made.trainer.steps == state["steps"] + 1, "all else goes on"


@pytest.mark.parametrize("lie", [{"reversed": True}, {"false_success": 1.0}])
def test_a_judge_that_begins_to_lie_is_shut_out(tmp_path: Path, lie: dict[str, Any]) -> None:
    """Reversed ranks, and success seen in every failure: the anchors of a few steps close the gate."""
    honest = judge(noise=0.1)
    loop = LoopConfig(groups=4, executed_first=8)
    with toy(tmp_path, honest, correction_config(0.5), loop=loop) as made:
        open_gates(made)
        liar = judge(noise=0.1, **lie)
        honest.score = liar.score  # type: ignore[method-assign]
        for _ in range(6):
            metrics = made.trainer.step()
        shut = [metrics[f"calibration/{task}/gate"] for task in ("left", "right")]
        assert shut == [0.0, 0.0]
        assert metrics["vla/groups_imagined"] == 0.0


def test_unknown_scores_are_dropped_and_never_zero(tmp_path: Path) -> None:
    class Silent(DistortedJudge):
        """Every third score is unknown."""

        def score(self, trajectories: Sequence[Trajectory]) -> list[float | None]:
            scores = super().score(trajectories)
            return [None if i % 3 == 0 else score for i, score in enumerate(scores)]

    made = Toy(tmp_path, Silent(DistortionConfig(), np.random.default_rng(0)), correction_config(0.0))
    group = made.world.imagine([], 0, None)  # type: ignore[arg-type]
    assert group == []
    made.trainer._trusted = lambda task: True  # type: ignore[method-assign]
    groups = made.trainer._act(made.trainer._draw(), range(4), set())
    step = made.correction.step(groups, ["left"] * 4, anchored=[])
    for rewards, advantages in zip(step.rewards, step.advantages, strict=True):
        assert np.isnan(rewards[::3]).all() and np.isfinite(rewards[1::3]).all()
        assert np.isnan(advantages[::3]).all()
    made.close()


def test_a_fault_is_unknown_and_too_many_end_the_run(tmp_path: Path) -> None:
    with toy(tmp_path, judge(), correction_config(1.0), tasks=("left",)) as made:
        made.envs["left"].fault_at = {0, 5}
        metrics = made.trainer.step()
        assert metrics["vla/robot_faults"] == 2.0
        ended = [info.outcome.reason for info in StoreReader(tmp_path / "left").episodes()]
        assert ended.count(EndReason.FAULT) == 2 and len(ended) == 32
        made.envs["left"].fault_at = set(range(32, 99))
        with pytest.raises(RobotFault, match="more than 3 faults"):
            made.trainer.step()


def test_an_evaluation_counts_a_fault_as_a_failure(tmp_path: Path) -> None:
    with toy(tmp_path, judge(), correction_config(1.0), tasks=("left",)) as made:
        made.policy.mode = lambda inputs: -torch.ones(1, 2, 7)  # type: ignore[method-assign]
        made.envs["left"].fault_at = {1}
        result = evaluate_policy(made.policy, made.builder, made.envs["left"], "left", 4)
        assert (result.successes, result.episodes, result.failures) == (3, 4, {"fault": 1})


def test_one_calibrator_serves_the_closed_loop_and_this_trainer(tmp_path: Path) -> None:
    """Replays that the SAC path has judged open the gate here, and executions here are evidence there."""
    config = correction_config(0.25)
    shared = Calibrator(config.calibration)
    key = ScorerKey("left", scorer_version(0, 0))
    rng = np.random.default_rng(3)
    for episode in range(60):
        outcome = float(episode % 2)
        pairs = [
            AnchorPair(float(x), outcome, episode, AnchorKind.REPLAY)
            for x in 0.2 + 0.5 * outcome + 0.1 * rng.random(4)
        ]
        shared.observe(key, pairs)
    with toy(tmp_path, judge(noise=0.1), config, tasks=("left",), calibrator=shared) as made:
        metrics = made.trainer.step()
        assert metrics["vla/groups_imagined"] == 3.0  # trusted from the first step on
        assert made.correction.calibrator is shared
        before = shared.gate(key).evidence.episodes
        for _ in range(3):
            made.trainer.step()
        assert shared.gate(key).evidence.episodes > before
        assert 0.25 < shared.synthetic_weight(key) <= 1.0  # what the SAC path asks it


def test_a_continued_trainer_goes_on_bit_by_bit(tmp_path: Path) -> None:
    def make(name: str) -> Toy:
        loop = LoopConfig(groups=4, executed_first=4)
        return Toy(tmp_path / name, judge(noise=0.1), correction_config(0.25), loop=loop)

    straight, stopped, continued = make("a"), make("b"), make("c")
    for _ in range(10):
        straight.trainer.step()
    for _ in range(6):
        stopped.trainer.step()
    continued.trainer.load(stopped.trainer.tensors(), stopped.trainer.state())
    for _ in range(4):
        metrics = continued.trainer.step()
    assert metrics["vla/groups_imagined"] > 0.0
    theirs = continued.trainer.tensors()
    for name, tensor in straight.trainer.tensors().items():
        assert torch.equal(tensor, theirs[name]), name
    assert json.dumps(continued.trainer.state()) == json.dumps(straight.trainer.state())
    with pytest.raises(PolicyError, match="no sampling generator"):
        continued.trainer.load({}, straight.trainer.state())
    for made in (straight, stopped, continued):
        made.close()


def test_in_a_perfect_world_with_a_true_judge_imagination_teaches_what_execution_does(tmp_path: Path) -> None:
    """Nothing but world and judge stands between the arms: the same samples, the same policy to the last bit."""
    raw = CorrectionConfig(
        anchors=correction_config(0.0).anchors, calibration=CalibrationConfig(mode=CalibrationMode.WMRL)
    )
    true = judge(low=0.0, high=1.0)
    with (
        toy(tmp_path / "real", judge(), correction_config(1.0)) as real,
        toy(tmp_path / "raw", true, raw) as imagined,
    ):
        for _ in range(6):
            executed, other = real.trainer.step(), imagined.trainer.step()
        assert (executed["vla/groups_executed"], other["vla/groups_executed"]) == (4.0, 0.0)
        assert executed["vla/groups_teaching"] > 0.0
        theirs = imagined.policy.tensors()
        for name, tensor in real.policy.tensors().items():
            assert torch.equal(tensor, theirs[name]), name


def test_published_mode_without_anchors_learns_from_the_raw_score(tmp_path: Path) -> None:
    raw = CorrectionConfig(
        anchors=correction_config(0.0).anchors, calibration=CalibrationConfig(mode=CalibrationMode.WMRL)
    )
    with toy(tmp_path, judge(reversed=True), raw) as made:
        for _ in range(14):
            metrics = made.trainer.step()
        assert made.robot.executions == 0 and math.isnan(metrics["vla/real_success"])
        assert metrics["vla/groups_imagined"] == 4.0
        assert metrics["vla/imagined_score"] > 0.7  # it has learned to fail, as it was told
