"""An end that is asked for from outside reaches an actor in the midst of its step."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rl import record
from rl.runtime import assemble, inline
from rl.runtime.board import Board
from rl.runtime.interrupt import InterruptFlag
from rl.workers.ports import HOLD, STOP, StepResult
from robot.interfaces import RobotFault


def test_a_signal_is_seen_and_told_at_once() -> None:
    told: list[int] = []
    flag = InterruptFlag(lambda: told.append(1))
    os.kill(os.getpid(), signal.SIGINT)
    assert flag.seen and told == [1]
    flag.restore()


class Run:
    """As much of a run directory as the inline runtime and an actor's robot ask for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config: Any = SimpleNamespace(
            synthetic=SimpleNamespace(on=False), robot=None, seed=0, correction=None
        )
        self._board = Board(path / "board.bin", lambda: 1.0)

    def board(self) -> Board:
        return self._board

    def metrics(self) -> Any:
        return SimpleNamespace(write=lambda *_: None, close=lambda: None)


class Resetting:
    """A worker that Ctrl-C meets in a step, and that then looks whether it is to stop."""

    def __init__(self, run: Run, *, interrupted: bool) -> None:
        self.run, self.interrupted, self.stopped = run, interrupted, False

    def step(self) -> StepResult:
        if self.interrupted:
            os.kill(os.getpid(), signal.SIGINT)
            self.stopped = bool(self.run.board().get(STOP))
        return StepResult(waiting="nothing")

    def close(self) -> None: ...


def test_ctrl_c_reaches_an_actor_within_its_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run: Any = Run(tmp_path)
    actor = Resetting(run, interrupted=True)
    monkeypatch.setattr(inline, "make_learner", lambda run: Resetting(run, interrupted=False))
    assert inline.run_inline(run, lambda: None, make_actor=lambda _run: actor) == 130
    assert actor.stopped


def test_a_robot_does_not_wait_any_longer_where_the_run_holds_or_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run: Any = Run(tmp_path)
    asked: list[Any] = []
    closed: list[bool] = []

    def make_env(_config: Any, *, keep_waiting: Any, **_options: Any) -> Any:
        asked.append(keep_waiting)
        return SimpleNamespace(close=lambda: closed.append(True))

    def no_device(*_arguments: Any) -> Any:
        raise OSError("no gamepad")

    monkeypatch.setattr(assemble, "make_env", make_env)
    monkeypatch.setattr(assemble, "make_teleop", no_device)
    with pytest.raises(OSError, match="no gamepad"):
        assemble.make_actor(run)
    assert closed == [True]  # the robot is not left open
    keep_waiting = asked[0]
    assert keep_waiting("the arm") and run.board().status("actor") == "waits for the arm"
    for counter in (HOLD, STOP):
        run.board().set(counter, 1)
        assert not keep_waiting("the arm")
        run.board().set(counter, 0)


@pytest.mark.parametrize(("fault", "failed"), [("operator_stop", False), ("reset_path", True)])
def test_a_stop_between_two_demonstrations_ends_the_recording_as_it_was_asked(
    fault: str, failed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_arguments: Any, **_options: Any) -> Iterator[Any]:
        yield SimpleNamespace(describe=lambda: "demonstration 1/2")
        raise RobotFault(fault, "on the way to its start")

    monkeypatch.setattr(record, "make_env", lambda *_, **__: SimpleNamespace(close=lambda: None))
    monkeypatch.setattr(record, "record_demonstrations", stopped)
    assert bool(record.main([f"out={tmp_path}"])) == failed
