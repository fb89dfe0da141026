"""The end of a run, whole or not: everything is closed, the arm first, even if something before fails."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rl.replay.errors import StoreError
from rl.runtime import assemble, inline
from rl.runtime.board import Board
from rl.schemas import TrainConfig
from rl.workers.ports import STOP, StepResult
from robot.interfaces import DeviceError


def run_of(path: Path) -> Any:
    """As much of a run directory as is needed here."""
    metrics = SimpleNamespace(write=lambda *_: None, close=lambda: None)
    return SimpleNamespace(
        config=TrainConfig(),
        board=lambda: Board(path / "board.bin", lambda: 1.0),
        metrics=lambda: metrics,
        path=path,
        real=path / "real",
        spec=None,
    )


class Finished:
    """A worker that has nothing left to do; closing it is noted, and fails where it is told so."""

    def __init__(self, name: str, closed: list[str], error: Exception | None = None) -> None:
        self._name, self._closed, self._error = name, closed, error

    def step(self) -> StepResult:
        return StepResult(finished=True)

    def close(self) -> None:
        self._closed.append(self._name)
        if self._error is not None:
            raise self._error


def test_the_learner_saves_though_the_arm_fails_to_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[str] = []
    run = run_of(tmp_path)
    monkeypatch.setattr(inline, "make_learner", lambda _run: Finished("learner", closed))
    with pytest.raises(DeviceError, match="gone"):
        inline.run_inline(
            run, lambda: None, make_actor=lambda _run: Finished("actor", closed, DeviceError("arm: gone"))
        )
    assert closed == ["actor", "learner"] and run.board().get(STOP) == 1


class Device:
    """A robot or a correction device; closing it is noted."""

    clock = None

    def __init__(self, name: str, closed: list[str]) -> None:
        self._name, self._closed = name, closed

    def close(self) -> None:
        self._closed.append(self._name)


@pytest.mark.parametrize("fails", ["make_teleop", "StoreWriter"])
def test_an_actor_that_cannot_be_made_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    closed: list[str] = []

    def fail(*_: Any) -> None:
        raise StoreError("as the test wants it")

    monkeypatch.setattr(assemble, "make_env", lambda *_, **__: Device("robot", closed))
    monkeypatch.setattr(assemble, "make_teleop", lambda *_: Device("device", closed))
    monkeypatch.setattr(assemble, "ActingPolicy", lambda *_, **__: None)
    monkeypatch.setattr(assemble, "make_schema", lambda _env: None)
    monkeypatch.setattr(assemble, fails, fail)
    with pytest.raises(StoreError):
        assemble.make_actor(run_of(tmp_path))
    assert closed == (["robot"] if fails == "make_teleop" else ["device", "robot"])
