"""Record and train on the A1X driver, the arm simulated in another process behind the vendor's topics."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from rl import cli, demonstrations
from rl.replay.reader import StoreReader
from rl.runtime.run_dir import RunDir
from robot import factory
from robot.interfaces import TeleopCommand, TeleopEvent
from robot.teleop.scripted import ScriptedTeleop
from robot.types import Source
from tests.e2e.harness import SMALL
from tests.robot.simulated_a1x import Agreeable, SimulatedA1X, free_domain

pytestmark = pytest.mark.wall_clock

pytest.importorskip("cyclonedds", reason="needs the a1x extra: pip install -e '.[a1x]'")

STEPS = 8  # of a demonstration, the last of which is its success
FORWARD = TeleopCommand(delta=np.array([1.0, 0, -1.0, 0, 0, 0]), engaged=True)
SUCCESS = TeleopCommand(delta=np.zeros(6), engaged=True, events=(TeleopEvent.SUCCESS,))


@pytest.fixture
def arm(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Overrides for an arm whose operator agrees and whose demonstrator leads it by hand."""
    shown = ScriptedTeleop([*[FORWARD] * (STEPS - 1), SUCCESS] * 3)
    monkeypatch.setattr(factory, "TerminalOperator", Agreeable)
    monkeypatch.setattr(demonstrations, "make_teleop", lambda *_: shown)
    monkeypatch.setattr(demonstrations, "make_window", lambda _: lambda *_: None)
    with SimulatedA1X(free_domain() + 20) as vendor:
        yield [
            "robot=a1x_simulated",
            f"robot.a1x.domain_id={vendor.config.domain_id}",
            f"robot.a1x.connect_timeout={vendor.config.connect_timeout}",
            "robot.cell.max_steps=10",
        ]


def test_recorded_by_hand_then_trained_on(arm: list[str], tmp_path: Path) -> None:
    demos = tmp_path / "demos"
    by_hand = ["correction.kind=keyboard", "demos.episodes=3", f"out={demos}"]
    assert cli.main(["record", *arm, *by_hand]) == 0
    led = [StoreReader(demos).episode(info.episode) for info in StoreReader(demos).episodes()]
    assert [len(episode.action) for episode in led] == [STEPS] * 3
    assert all((episode.source == Source.DEMO).all() and episode.reward[-1] == 1.0 for episode in led)
    small = [o for o in SMALL if not o.startswith(("robot.", "demos."))]
    run = [f"runs_dir={tmp_path}", "name=run", "runtime.kind=inline", f"demos.path={demos}"]
    pace = ["correction.kind=none", "pacing.actor_waits=episode", "actor.max_env_steps=20"]
    assert cli.main(["train", *arm, *small, *run, *pace]) == 0
    tried = StoreReader(RunDir(tmp_path / "run").real)
    assert tried.num_transitions >= 20
    episode = tried.episode(tried.episodes()[0].episode)
    assert (episode.source == Source.REAL).all() and np.isfinite(episode.proprio).all()
    moved = np.abs(np.diff(episode.proprio[:, :3], axis=0)).max()
    assert 1e-4 < moved < 0.02  # m per step: it moves, and never by more than it may
