"""The A1X driver with cameras: what a stalled or lost one does to an episode, and a whole run from pixels."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rl import cli, demonstrations
from rl.check_robot import examine
from rl.config import load
from rl.replay.reader import StoreReader
from rl.runtime.run_dir import RunDir
from robot import factory
from robot.clock import WallClock
from robot.env import RobotEnv
from robot.factory import ObsKind, make_robot_env
from robot.interfaces import DeviceError, RobotFault, TeleopCommand, TeleopEvent
from robot.readiness.finding import Verdict
from robot.robot import Robot
from robot.teleop.scripted import ScriptedTeleop
from tests.e2e.harness import SMALL
from tests.robot.simulated_a1x import Agreeable, SimulatedA1X, free_domain

pytest.importorskip("cyclonedds", reason="needs the a1x extra: pip install -e '.[a1x]'")
pytest.importorskip("libusb_package", reason="needs the realsense extra: pip install -e '.[realsense]'")

from robot.cameras.config import CameraConfig
from robot.sim import d435i
from tests.robot.recorded_d435i import Unplugged, camera_of, freeze, stall

pytestmark = pytest.mark.wall_clock

CLOCK = WallClock()
STAY = np.zeros(7, np.float32)
FORWARD = TeleopCommand(delta=np.array([1.0, 0, -1.0, 0, 0, 0]), engaged=True)
SUCCESS = TeleopCommand(delta=np.zeros(6), engaged=True, events=(TeleopEvent.SUCCESS,))


@pytest.fixture(scope="module")
def vendor() -> Iterator[SimulatedA1X]:
    with SimulatedA1X(free_domain() + 30) as started:
        yield started


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recordings")
    assert d435i.main([str(folder), "--seconds", "2"]) == 0
    return folder


@pytest.fixture
def env(vendor: SimulatedA1X, recordings: Path) -> Iterator[RobotEnv]:
    cameras = {
        view: CameraConfig(recording=f"{recordings}/{view}.db3", width=320, height=240, warm_up=0.1)
        for view in ("side", "wrist")
    }
    operator = Agreeable()
    made = make_robot_env(replace(vendor.robot(), obs=ObsKind.PIXELS, cameras=cameras), operator=operator)
    made.operator = operator  # type: ignore[attr-defined]
    try:
        made.reset()
        yield made
    finally:
        made.close()


@pytest.fixture
def arm(vendor: SimulatedA1X, recordings: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Overrides for an arm with two cameras whose operator agrees."""
    monkeypatch.setattr(factory, "TerminalOperator", Agreeable)
    return [
        "robot=a1x_simulated_pixels",
        f"robot.a1x.domain_id={vendor.config.domain_id}",
        f"robot.a1x.connect_timeout={vendor.config.connect_timeout}",
        "robot.cell.max_steps=8",
        "robot.image_px=32",
        *(f"robot.cameras.{view}.recording={recordings}/{view}.db3" for view in ("side", "wrist")),
        *(f"robot.cameras.{view}.warm_up=0.1" for view in ("side", "wrist")),
    ]


def test_images_come_with_their_ages_and_the_two_cameras_are_close(env: RobotEnv) -> None:
    infos = [env.step(STAY)[-1] for _ in range(10)]
    ages = [info["timestamp"] - np.array(list(info["image_timestamps"].values())) for info in infos]
    assert 0.02 < np.median(ages) < 0.1  # 30 ms to arrive, 33 ms between two images
    assert np.median([np.ptp(each) for each in ages]) < 0.05
    values, *_ = env.step(STAY)
    assert {view: image.shape for view, image in values["images"].items()} == {
        "side": (64, 64, 3),
        "wrist": (64, 64, 3),
    }


def test_a_short_stall_pauses_the_episode_and_shows_no_old_image(
    env: RobotEnv, caplog: pytest.LogCaptureFixture
) -> None:
    stalled, infos = stall(env, "wrist", 0.7), []
    with caplog.at_level(logging.WARNING):
        while CLOCK.now() < stalled + 1.2:
            infos.append(env.step(STAY)[-1])
    assert all(info["timestamp"] - info["image_timestamps"]["wrist"] < 0.3 + 0.02 for info in infos)
    assert any(info["late_views"] == ["wrist"] for info in infos) and env.late_images["wrist"] > 0
    assert "camera wrist is late" in caplog.text
    assert max(info["period"] for info in infos) > 0.3  # it paused, the arm held by the program


def test_a_stalled_camera_holds_then_ends_the_episode_and_comes_back(env: RobotEnv) -> None:
    watched: list[float] = []
    watch = Robot._watch
    env.robot._watchdog._work = lambda: (watched.append(CLOCK.now()), watch(env.robot))[1]  # type: ignore[union-attr]
    stalled = stall(env, "wrist", 2.0)
    with pytest.raises(RobotFault, match=r"stale_frame.*wrist \(1\.\d+ s old\)"):
        for _ in range(30):
            env.step(STAY)
    assert 1.2 < CLOCK.now() - stalled < 4.0
    assert np.diff(watched).max() < 0.8  # the watchdog goes on meanwhile
    env.reset()  # waits until the thread has connected the camera again
    info = env.step(STAY)[-1]
    assert info["timestamp"] - info["image_timestamps"]["wrist"] < 0.3
    assert camera_of(env, "wrist").device.reconnected == 1


def test_an_image_that_does_not_change_ends_the_episode_as_a_stall_does(env: RobotEnv) -> None:
    frozen = freeze(env, "wrist", 2.0)
    with pytest.raises(RobotFault, match=r"stale_frame.*wrist \(\d\.\d+ s old, the image does not change\)"):
        for _ in range(30):
            info = env.step(STAY)[-1]
            assert info["timestamp"] - info["image_timestamps"]["wrist"] < 0.3 + 0.02
    assert 1.2 < CLOCK.now() - frozen < 4.0
    env.reset()  # waits until the thread has connected the camera again
    assert camera_of(env, "wrist").device.reconnected >= 1


def test_a_lost_camera_ends_the_episode_and_is_connected_again_when_the_operator_says_so(
    env: RobotEnv,
) -> None:
    camera = Unplugged(env, "side")
    with pytest.raises(RobotFault, match=r"camera_lost.*side: lost, 3 reconnections|stale_frame.*side"):
        for _ in range(30):
            env.step(STAY)
    assert 0.9 < CLOCK.now() - camera.began < 4.0
    with pytest.raises(DeviceError, match=r"serial number 999000000001 is attached; found: "):
        env.reset()
    asked = env.operator.requests[-1]  # type: ignore[attr-defined]
    assert "camera_lost" in asked and "3 reconnections did not help" in asked and "999000000001" in asked
    camera.plug_in()
    env.reset()
    assert set(env.step(STAY)[0]["images"]) == {"side", "wrist"}


def test_check_robot_names_what_is_played_back_and_finds_that_a_silent_policy_is_held(
    arm: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    config = load("check-robot", [*arm, "seconds=1"])
    found = {finding.what: finding for finding in examine(config, print)}
    assert (
        "gripper 0.00" in found["arm: feedback"].measured and found["arm: motion"].verdict is not Verdict.FAIL
    )
    for view in ("wrist", "side"):
        device = found[f"camera {view}: device"]
        assert device.verdict is Verdict.WARN and "does not show the arm" in device.remedy
        assert "exposure 156, gain 64, white balance 4600" in device.measured
        assert found[f"camera {view}: latency"].measured == "30 ms from capture to arrival"
        assert "Hz of 30" in found[f"camera {view}: images"].measured
    assert found["stop: hold"].verdict is not Verdict.FAIL
    assert found["stop: silent policy"].verdict is Verdict.PASS


def test_recorded_by_hand_then_trained_from_pixels(
    arm: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = ScriptedTeleop([*[FORWARD] * 5, SUCCESS] * 2)
    monkeypatch.setattr(demonstrations, "make_teleop", lambda *_: shown)
    monkeypatch.setattr(demonstrations, "make_window", lambda _: lambda *_: None)
    demos = tmp_path / "demos"
    assert cli.main(["record", *arm, "correction.kind=keyboard", "demos.episodes=2", f"out={demos}"]) == 0
    small = [option for option in SMALL if not option.startswith(("robot.", "demos."))]
    run = [f"runs_dir={tmp_path}", "name=run", "runtime.kind=inline", f"demos.path={demos}"]
    pace = [
        "correction.kind=none",
        "pacing.actor_waits=episode",
        "actor.max_env_steps=16",
        "learner.warm_updates=5",
    ]
    assert cli.main(["train", *arm, *small, *run, *pace]) == 0
    assert RunDir(tmp_path / "run").config.robot.cameras["side"].width == 320  # as it comes back on resume
    tried = StoreReader(RunDir(tmp_path / "run").real)
    assert tried.schema.views == {"side": (32, 32), "wrist": (32, 32)} and tried.num_transitions >= 16
    episode = tried.episode(tried.episodes()[0].episode)
    for view, times in episode.image_timestamps.items():
        assert (np.diff(times) >= 0.0).all() and (episode.timestamp - times < 0.32).all()
        assert len(np.unique(episode.images[view].reshape(len(times), -1), axis=0)) > len(times) // 2
