"""The board: counters, heartbeats and status lines that all processes of a run share."""

import multiprocessing
import time
from pathlib import Path

import pytest

from rl.runtime.board import Board
from rl.workers.ports import ENV_STEPS, UPDATES


def _count(path: str, n: int) -> None:
    board = Board(Path(path), time.monotonic)
    for i in range(1, n + 1):
        board.set(UPDATES, i)
    board.beat("learner", "done")


def test_another_process_sees_counters_and_status(tmp_path: Path) -> None:
    board = Board(tmp_path / "board.bin", time.monotonic)
    board.set(ENV_STEPS, 7)
    process = multiprocessing.get_context("spawn").Process(
        target=_count, args=(str(tmp_path / "board.bin"), 1000)
    )
    process.start()
    process.join(30)
    assert process.exitcode == 0
    assert board.get(UPDATES) == 1000
    assert board.get(ENV_STEPS) == 7
    assert board.status("learner") == "done"


def test_silence_counts_from_the_last_heartbeat(tmp_path: Path) -> None:
    now = [100.0]
    board = Board(tmp_path / "board.bin", lambda: now[0])
    assert board.silence("actor") == float("inf")
    board.beat("actor", "waits")
    now[0] = 103.5
    assert board.silence("actor") == pytest.approx(3.5)
    board.forget("actor")
    assert board.silence("actor") == float("inf")


def test_a_long_status_is_cut_not_refused(tmp_path: Path) -> None:
    board = Board(tmp_path / "board.bin", time.monotonic)
    board.beat("actor", "x" * 1000)
    assert 0 < len(board.status("actor")) < 1000


def test_a_file_of_another_size_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "board.bin"
    path.write_bytes(b"short")
    with pytest.raises(ValueError, match=r"board\.bin: expected .* bytes, got 5"):
        Board(path, time.monotonic)
