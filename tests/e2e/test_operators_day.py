"""docs/operators_day.md: every command runs on the simulated A1X, and what the page explains is what there is."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from rl import check_correction, check_robot, cli, corrections, demonstrations, evaluate, preparation
from rl.config import load
from rl.replay.reader import StoreReader
from rl.runtime import assemble
from rl.runtime.run_dir import RunDir
from robot import factory
from robot.feedback import Reason
from robot.interfaces import TeleopCommand, TeleopEvent
from robot.teleop.keyboard import DEAD_MAN_KEY, EVENT_KEYS, GRIPPER_KEY, MOTION_KEYS
from tests.e2e.harness import SMALL
from tests.robot.simulated_a1x import Agreeable, SimulatedA1X, free_domain

pytestmark = pytest.mark.wall_clock

pytest.importorskip("cyclonedds", reason="needs the a1x extra: pip install -e '.[a1x]'")

PAGE = Path(__file__).parents[2] / "docs" / "operators_day.md"
ELSEWHERE = (
    "groundhog check ",
    "python -m robot.sim.a1x_vendor",
)  # tests/robot/test_check.py; the fixture below
NO_FAULTS = {Reason.UNLOCK, Reason.LOCK, Reason.ACKNOWLEDGE, Reason.RESET, Reason.RESUME, Reason.HOLD}
SHORT = {
    "check-robot": ["seconds=0.5"],
    "record": ["demos.episodes=2"],
    "train": [
        *(o for o in SMALL if not o.startswith(("robot.", "demos."))),
        "runtime.kind=inline",
        "actor.max_env_steps=6",
    ],
    "evaluate": ["episodes=1"],
}


class Person:
    """Lets the policy try a step, leads, and says success with the sixth."""

    def __init__(self) -> None:
        self._step = 0

    def reset(self) -> None:
        self._step = 0

    def read(self) -> TeleopCommand:
        self._step += 1
        return TeleopCommand(
            delta=np.array([1.0, 0, -1.0, 0, 0, 0]),
            engaged=self._step > 1,
            events=(TeleopEvent.SUCCESS,) if self._step == 6 else (),
        )

    def stop_asked(self) -> bool:
        return False

    def close(self) -> None: ...


def commands() -> list[str]:
    """The lines of the page's shell blocks in order, continued ones joined, without comments."""
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [" ".join(words) for line in lines if (words := shlex.split(line, comments=True))]


@pytest.fixture
def arm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[str]]:
    """Overrides for the simulated arm, beside which a person agrees, leads and judges."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(factory, "TerminalOperator", Agreeable)
    for module in (demonstrations, assemble, evaluate, preparation):
        monkeypatch.setattr(module, "make_teleop", lambda *_: Person())
    for module in (check_correction, check_robot):
        monkeypatch.setattr(module, "make_device", lambda *_: Person())
    for module in (demonstrations, assemble, evaluate):
        monkeypatch.setattr(module, "make_window", lambda _: lambda *_: None)
    with SimulatedA1X(free_domain() + 10) as vendor:
        yield [
            "robot=a1x_simulated",
            f"robot.a1x.domain_id={vendor.config.domain_id}",
            f"robot.a1x.connect_timeout={vendor.config.connect_timeout}",
            "robot.cell.max_steps=8",
            "robot.cell.max_joint_speed=2.0",
        ]


def test_every_command_of_the_page_runs(arm: list[str]) -> None:
    ran = []
    for line in commands():
        if not f"{line} ".startswith(ELSEWHERE):
            _, name, *overrides = line.split()
            if "robot=my_cell" in overrides:
                overrides[overrides.index("robot=my_cell") : overrides.index("robot=my_cell") + 1] = arm
                overrides += SHORT[name]
            code = cli.main([name, *overrides, *_shorter(line)])
            # A busy machine is found wanting, rightly, by check-robot.
            assert code == 0 or (name == "check-robot" and code == 1), line
        ran.append(line)
    assert len(ran) == 10
    demos, run = StoreReader(Path("demos/plug")), RunDir(Path("runs/plug"))
    assert sum(info.success for info in demos.episodes()) == 2
    tried = StoreReader(run.real)
    episode = tried.episode(0)
    assert episode.intervened.tolist() == [False] + [True] * 5 and episode.reward[-1] == 1.0
    assert tried.num_transitions >= 12  # the resumed run went on
    assert (run.path / "safety.jsonl").read_text() and list((run.path / "evaluations").iterdir())


def test_commands_in_running_text_are_well_formed() -> None:
    spans = re.findall(r"`groundhog ([a-z-]+) ([^`]+)`", PAGE.read_text())
    assert spans
    for name, overrides in spans:
        load(name, overrides.split())


def _shorter(line: str) -> list[str]:
    if "resume=" in line:
        return ["actor.max_env_steps=12"]
    if " check-correction " in line:
        return ["seconds=0.7"]
    return SHORT["evaluate"] if " evaluate " in line else []


def test_the_page_explains_every_fault_and_every_key() -> None:
    page = PAGE.read_text()
    for reason in set(Reason) - NO_FAULTS:
        assert f"`{reason}`" in page, reason
    assert all(f"`{kind.value}`" in page for kind in corrections.CorrectionKind if kind.by_hand)
    keyboard = "\n".join(line.rsplit("|", 2)[1] for line in page.splitlines() if line.startswith("|"))
    for key in (*EVENT_KEYS, DEAD_MAN_KEY, GRIPPER_KEY, *(k for _, *pair in MOTION_KEYS for k in pair)):
        assert re.search(rf"\b{key}\b", keyboard), key
