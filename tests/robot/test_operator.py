"""The operator's consent at a terminal, here a pseudo terminal."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from robot import operator
from robot.interfaces import RobotFault
from robot.operator import TerminalOperator


@pytest.fixture
def terminal() -> Iterator[tuple[int, Path]]:
    """Where the person types, and the terminal that the program opens."""
    keyboard, screen = os.openpty()
    yield keyboard, Path(os.ttyname(screen))
    os.close(keyboard)
    os.close(screen)


def test_while_a_person_is_awaited_the_caller_is_told_and_may_give_up(
    terminal: tuple[int, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operator, "LOOK_EVERY", 0.01)
    keyboard, path = terminal
    told: list[str] = []

    def three_times(request: str) -> bool:
        told.append(request)
        if len(told) == 2:
            os.write(keyboard, b"\n")
        return True

    TerminalOperator(timeout=5.0, terminal=path, keep_waiting=three_times).confirm("Let the arm move?")
    assert told == ["the operator: Let the arm move?"] * 2
    with pytest.raises(RobotFault, match="interrupted: the run was stopped while it waited for: Let"):
        TerminalOperator(timeout=5.0, terminal=path, keep_waiting=lambda _: False).confirm(
            "Let the arm move?"
        )


def answer(
    terminal: tuple[int, Path], typed: bytes, monkeypatch: pytest.MonkeyPatch, timeout: float = 5.0
) -> None:
    """Ask, and type the answer once the question is there."""
    monkeypatch.setattr(operator, "LOOK_EVERY", 0.01)
    keyboard, path = terminal
    left = [typed]

    def type_once(_what: str) -> bool:
        if left:
            os.write(keyboard, left.pop())
        return True

    TerminalOperator(timeout, path, type_once).confirm("Let the arm move?")


def test_enter_agrees(
    terminal: tuple[int, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(terminal, b"\n", monkeypatch)
    assert "Let the arm move?" in capsys.readouterr().err


@pytest.mark.parametrize("early", [b"\n", b"\n\n", b"n"])
def test_what_was_typed_before_the_question_is_no_answer(
    terminal: tuple[int, Path], early: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyboard, path = terminal
    os.write(keyboard, early)
    with pytest.raises(RobotFault, match="not_confirmed: no answer"):
        TerminalOperator(timeout=0.1, terminal=path).confirm("Let the arm move?")
    os.write(keyboard, early)
    answer(terminal, b"\n", monkeypatch)


def test_what_is_no_terminal_cannot_agree(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("\n")
    with pytest.raises(RobotFault, match="not_confirmed: cannot ask the operator"):
        TerminalOperator(terminal=tmp_path / "file").confirm("Let the arm move?")


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (b"n\n", "answered 'n' to: Let"),
        (b"", "no answer within 0 s to: Let"),
        (b"\x04", "answered 'end of input'"),
    ],
)
def test_anything_else_refuses(
    terminal: tuple[int, Path], typed: bytes, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RobotFault, match="not_confirmed") as caught:
        answer(terminal, typed, monkeypatch, timeout=0.3)
    assert message in caught.value.detail


def test_without_a_terminal_nothing_is_allowed(tmp_path: Path) -> None:
    with pytest.raises(RobotFault, match="not_confirmed: cannot ask the operator"):
        TerminalOperator(terminal=tmp_path / "tty").confirm("Let the arm move?")
