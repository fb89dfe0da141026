"""The learner on an environment that nobody here wrote: train, evaluate, record and show, from its pixels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rl import cli
from rl.agent.spec import GripperControl
from rl.replay.reader import StoreReader
from rl.runtime.run_dir import RunDir
from robot.types import Source
from tests.e2e.harness import SMALL

GANTRY = ("robot.kind=foreign", "robot.foreign=tests.robot.foreign_arm:make_task", "robot.task=gantry")
PIXELS = ("robot.views=[top]", "robot.obs=pixels", "robot.image_px=32")
TRAIN = (
    *SMALL,
    *GANTRY,
    *PIXELS,
    "agent.encoder.channels=[4,8,8]",
    "runtime.kind=inline",
    "correction.kind=none",
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """A short run, shared by the tests below, which only read it."""
    path = tmp_path_factory.mktemp("foreign")
    assert cli.main(["train", f"runs_dir={path}", "name=run", *TRAIN, "actor.max_env_steps=40"]) == 0
    return RunDir(path / "run")


def test_the_agent_and_the_store_are_of_that_environment(run: RunDir) -> None:
    spec, store = run.spec, StoreReader(run.real)
    assert spec.views == {"top": (32, 32)} and spec.active == (0, 1, 2)
    assert spec.proprio.names == ["jaw_x", "jaw_y", "jaw_z", "gap", "gripper_command"]
    assert spec.gripper is GripperControl.DISCRETE
    assert (store.schema.task, store.schema.instruction) == ("gantry", "close the jaw at the mark")
    assert store.schema.metadata == {"control_hz": 10.0, "maker": "nobody here"}
    assert store.num_transitions >= 40


def test_demonstrations_and_trials_are_recorded_alike(run: RunDir) -> None:
    demos, real = StoreReader(run.demo), StoreReader(run.real)
    shown = [demos.episode(info.episode) for info in demos.episodes() if info.success]
    assert len(shown) == 3
    for episode in shown:
        assert (episode.source == Source.DEMO).all()
        assert episode.terminated[-1] and episode.reward[-1] == 1.0 and not episode.reward[:-1].any()
        assert episode.gripper_changed.any() and episode.images["top"].any()
        assert not episode.action[:, 3:6].any()
    tried = real.episode(real.episodes()[0].episode)
    assert (tried.source == Source.REAL).all() and not tried.action[:, 3:6].any()
    assert np.diff(tried.timestamp) == pytest.approx(0.1)


def test_it_can_be_evaluated_shown_and_continued(run: RunDir) -> None:
    assert cli.main(["evaluate", f"run={run.path}", "episodes=2", "out=" + str(run.path / "again.json")]) == 0
    assert cli.main(["show", f"path={run.path}"]) == 0
    assert cli.main(["train", f"resume={run.path}", "actor.max_env_steps=50"]) == 0
    assert StoreReader(run.real).num_transitions >= 50


def test_recorded_demonstrations_serve_a_later_run(tmp_path: Path) -> None:
    demos = tmp_path / "demos"
    state = (*GANTRY, "robot.obs=state")
    assert cli.main(["record", f"out={demos}", *state, "demos.episodes=2"]) == 0
    words = [*TRAIN, "robot.obs=state", f"demos.path={demos}", "actor.max_env_steps=20"]
    assert cli.main(["train", f"runs_dir={tmp_path}", "name=run", *words]) == 0
    assert len(StoreReader(tmp_path / "run" / "demo").episodes()) == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["robot.foreign=null"], "robot.foreign=None: expected <module>:<function> with robot.kind=foreign"),
        (["robot.foreign=tests.robot.foreign_arm:make_tusk"], "has no function make_tusk"),
        (["robot.foreign=tests.robot.foreign_arm:make_without_expert"], "it brings no scripted demonstrator"),
        (["robot.task=press"], "expected robot.task=press with views ['top'], got task gantry"),
        (["correction.kind=scripted"], "correction.kind=scripted: the scripted corrector knows the tasks of"),
    ],
)
def test_a_mistake_is_one_readable_line(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["train", f"runs_dir={tmp_path}", "name=run", *TRAIN, *words]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run" / "config.yaml").exists()  # the name is free again
