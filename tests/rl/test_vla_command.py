"""`groundhog post-train-vla` from demonstrations to the result; stopped and continued it is the same run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from reward_model.classifier import ClassifierConfig
from reward_model.labels import Thresholds
from rl import checkpoint, cli
from rl.config import load
from rl.metrics import read_metrics
from rl.replay.reader import StoreReader
from rl.reward_models.loading import make_classifier
from rl.schemas import SCHEMAS
from rl.vla.config import PostTrainVLAConfig
from rl.world_models.data import make_spec
from worldmodel.baselines import CopyLastFrame

TINY = [
    "robot.obs=STATE",
    "imitation.episodes=5",
    "imitation.noise=0.6",
    "imitation.steps=120",
    "imitation.learning_rate=0.003",
    "small.hidden=64",
    "loop.groups=2",
    "loop.group_size=4",
    "loop.executed_first=1",
    "loop.eval_episodes=1",
    "loop.final_eval_episodes=1",
    "correction.calibration.debias.min_pairs=4",
    "correction.calibration.gate.min_anchors=4",
]
ARMS = {
    "sft": (0.1, False),
    "grpo_real": (1.0, True),
    "raw_world_model": (0.0, False),
    "calibrated": (0.125, True),
    "wmrl": (0.125, True),
}


def start(tmp_path: Path, *more: str) -> int:
    return cli.main(["post-train-vla", f"runs_dir={tmp_path}", *TINY, *more])


def test_the_whole_run_and_its_continuation_bit_by_bit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert start(tmp_path, "loop.steps=3", "name=straight") == 0
    assert start(tmp_path, "loop.steps=2", "name=stopped") == 0
    stopped = tmp_path / "stopped"
    assert cli.main(["post-train-vla", f"resume={stopped}", "loop.steps=3"]) == 0
    assert "continuing behind step 2" in capsys.readouterr().out
    first, second = (
        checkpoint.load_latest(tmp_path / name / "checkpoints") for name in ("straight", "stopped")
    )
    assert first is not None and second is not None
    for name, tensor in first.tensors.items():
        assert torch.equal(tensor, second.tensors[name]), name
    assert first.meta["trainer"] == second.meta["trainer"]
    assert first.meta["trainer"]["steps"] == 3 and first.meta["trainer"]["robot"]["executions"] > 8
    assert first.updates > 0  # it has learned something that could differ
    for task in ("press",):
        for name in (
            f"demo/{task}/schema.json",
            f"real/{task}/schema.json",
            "policy/policy.json",
            "config.yaml",
        ):
            assert (stopped / name).exists()
    rows = json.loads((stopped / "result.json").read_text())["rows"]
    assert [row["task"] for row in rows] == ["press"]
    assert rows[0]["episodes"] == 1 and rows[0]["arm"] == "wmrl" and rows[0]["robot_executions"] > 8
    assert len(rows[0]["curve"]) == 2  # before and after, as in the run that was not stopped
    logged = read_metrics(stopped / "metrics.jsonl")
    assert {record["worker"] for record in logged} == {"vla"}
    assert any("calibration/press/gate" in record for record in logged)
    assert any("eval/press/success" in record for record in logged)


def test_groups_imagined_by_a_video_world_model_and_judged_by_a_reward_model(tmp_path: Path) -> None:
    robot = ["robot.image_px=32", "robot.obs=PIXELS"]
    assert start(tmp_path, "vla=sft", *robot, "imitation.steps=2", "name=first") == 0
    demo = tmp_path / "first" / "demo"
    schema = StoreReader(demo / "press").schema
    CopyLastFrame(make_spec(schema, context_frames=2, max_horizon=12), 1).save(tmp_path / "world.safetensors")
    model = make_classifier(
        ClassifierConfig(width=8), "press", schema.views, seed=0, device=torch.device("cpu"), version=2
    )
    files = [
        f"imagination.world_models={{press: {tmp_path / 'world.safetensors'}}}",
        f"imagination.reward_models={{press: {tmp_path / 'reward.safetensors'}}}",
        "imagination.world=VIDEO",
        "imagination.judge=REWARD_MODEL",
        "imagination.horizon=6",
        f"imitation.path={demo}",
        "imitation.steps=2",
        "loop.eval_episodes=0",
        "loop.steps=2",
    ]
    model.save(tmp_path / "reward.safetensors")
    assert start(tmp_path, *robot, *files, "name=untold") == 2  # it has no thresholds
    model.thresholds = Thresholds(0.9, 0.1)
    model.save(tmp_path / "reward.safetensors")
    assert start(tmp_path, "vla=raw_world_model", *robot, *files, "loop.executed_first=0", "name=raw") == 0
    steps = [record for record in read_metrics(tmp_path / "raw" / "metrics.jsonl") if "vla/step" in record]
    assert [record["vla/groups_imagined"] for record in steps] == [2.0, 2.0]
    assert all(0.0 < record["vla/imagined_score"] < 1.0 for record in steps)
    assert start(tmp_path, "vla=wmrl", *robot, *files, "name=anchored") == 0
    state = checkpoint.load_latest(tmp_path / "anchored" / "checkpoints")
    assert state is not None
    gates = state.meta["trainer"]["correction"]["calibrator"]["gates"]
    assert [gate[:2] for gate in gates] == [["press", "reward-2/world-1"]]  # as on the SAC path
    retrained = make_classifier(
        ClassifierConfig(width=8), "press", schema.views, seed=1, device=torch.device("cpu"), version=2
    )
    retrained.thresholds = model.thresholds
    retrained.save(tmp_path / "reward.safetensors")
    assert cli.main(["post-train-vla", f"resume={tmp_path / 'anchored'}", "loop.steps=3"]) == 0
    after = checkpoint.load_latest(tmp_path / "anchored" / "checkpoints")
    assert after is not None and after.meta["trainer"]["steps"] == 3
    pairs = [
        len(s.meta["trainer"]["correction"]["calibrator"]["debiaser"]["keys"][0]["pairs"])
        for s in (state, after)
    ]
    assert pairs == [12, 4], "of all executions; of the third step's alone"


@pytest.mark.parametrize("arm", ARMS)
def test_every_arm_composes(arm: str) -> None:
    config = load("post-train-vla", [f"vla={arm}"])
    assert isinstance(config, PostTrainVLAConfig) and config.arm == arm
    fraction, gated = ARMS[arm]
    if arm == "sft":
        assert config.loop.steps == 0
        return
    assert config.correction.anchors.fraction == fraction
    assert (config.correction.calibration.mode.value == "hardened") == gated
    assert (config.correction.calibration.weight.max_weight == 1.0) == (arm == "calibrated")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["tasks=[presss]"], "robot.task=presss: no such task; did you mean press"),
        (["tasks=[]"], "tasks: expected at least one"),
        (["imagination.world=video"], "use imagination.judge=reward_model"),
        (
            ["imagination.world=video", "imagination.judge=reward_model", "robot.obs=PIXELS"],
            "expected a file for each task",
        ),
        (["imagination.judge=reward_model", "robot.obs=STATE"], "it judges images; use robot.obs=pixels"),
        (
            ["robot.clock=wall"],
            "imagination.world=simulator: only for robot.kind=sim with robot.clock=virtual",
        ),
        (["loop.group_size=1"], "group_size >= 2"),
        (["imitation.path=/nowhere"], "expected one for each task, record it with"),
        (["policy=/nowhere"], "policy.json: missing"),
        (["grpo.clip_low=2"], "grpo: expected clip_low"),
        (["resume=/nowhere"], "no such file; is /nowhere a run directory"),
        (["loop.stepps=3"], "stepps"),
    ],
)
def test_what_is_wrong_is_one_readable_line(
    tmp_path: Path, wrong: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["post-train-vla", f"runs_dir={tmp_path}", "robot.obs=STATE", *wrong]) == 2
    error = capsys.readouterr().err.strip()
    assert said in error and len(error.splitlines()) == 1
    assert "Traceback" not in error and SCHEMAS["post-train-vla"] is PostTrainVLAConfig
