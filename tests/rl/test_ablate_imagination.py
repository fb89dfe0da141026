"""Recorded clips in the world model's place: none before its time, each with its provenance, gates as they were."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from replay_data import observation, schema, transition

from rl.ablation.replay_imagination import ReplayImagination, moments
from rl.replay.journal import EndReason, EpisodeOutcome
from rl.replay.reader import StoreReader
from rl.replay.rows import provenance_of
from rl.replay.writer import StoreWriter
from rl.runtime.board import Board
from rl.workers.ports import (
    ADMITTED,
    CALIBRATION_GATE,
    COLLECTED,
    ENV_STEPS,
    GENERATED,
    MILLIONTHS,
    OLDEST_MODEL,
    SELECTION_GATE,
    UPDATES,
)
from robot.types import Label, Provenance, Source

LENGTH = 3
METRICS = [
    {"env_steps": 0, "updates": 10, "world_model/admitted": 3.0, "world_model/generated": 9.0},
    {"env_steps": 0, "updates": 10, "learner/q_mean": 0.1},
    {"env_steps": 4, "updates": 20, "selection/gate": 0.5, "selection/gate_calibration": 0.25},
    {"env_steps": 6, "updates": 30, "world_model/admitted": 9.0, "world_model/generated": 20.0},
]


def recorded(path: Path) -> StoreReader:
    with StoreWriter(path, schema()) as writer:
        for episode in range(3):
            writer.begin_episode(observation(episode, 0))
            for step in range(LENGTH):
                writer.add(
                    replace(
                        transition(episode, step, truncated=step == LENGTH - 1),
                        source=Source.SYNTHETIC,
                        label=Label.FAILURE,
                        provenance=Provenance(source_origin=1, source_episode=episode, risk=0.5, admission=1),
                    )
                )
            writer.end_episode(EpisodeOutcome(EndReason.TIMEOUT))
    return StoreReader(path)


def test_the_course_of_imagination_is_read_off_the_metrics() -> None:
    course = moments(METRICS)
    assert [(m.env_steps, m.updates, m.admitted, m.generated) for m in course] == [
        (0, 10, 3, 9),
        (4, 20, None, None),
        (6, 30, 9, 20),
    ]
    assert course[1].gates == {SELECTION_GATE: MILLIONTHS // 2, CALIBRATION_GATE: MILLIONTHS // 4}


def test_what_the_run_had_barred_is_barred_when_it_was(tmp_path: Path) -> None:
    tested = {"env_steps": 5, "updates": 25, "world_model/tested": 8.0, "world_model/oldest_drawn": 2.0}
    board = Board(tmp_path / "board.bin", lambda: 1.0)
    course = moments([*METRICS[:3], tested, METRICS[3]])
    worker = ReplayImagination(
        recorded(tmp_path / "recorded"), course, StoreWriter(tmp_path / "shown", schema()), board
    )
    for env_steps, oldest in ((4, 0), (5, 2), (6, 2)):
        board.set(ENV_STEPS, env_steps)
        board.set(UPDATES, 30)
        while not worker.step().waiting:
            pass
        assert board.get(OLDEST_MODEL) == oldest


def test_clips_of_a_judge_that_took_over_are_not_shown_while_the_one_before_judged(tmp_path: Path) -> None:
    """What that one had labelled is not there any more, and the count began anew."""
    before = {"env_steps": 0, "updates": 10, "world_model/admitted": 6.0, "world_model/generated": 9.0}
    begun = {"env_steps": 4, "updates": 20, "world_model/admitted": 3.0, "world_model/generated": 20.0}
    tested = {"env_steps": 5, "updates": 22, "world_model/tested": 8.0, "world_model/admitted": 3.0}
    board = Board(tmp_path / "board.bin", lambda: 1.0)
    writer = StoreWriter(tmp_path / "shown", schema())
    course = moments([before, before | {"updates": 15}, begun, tested, METRICS[3]])
    worker = ReplayImagination(recorded(tmp_path / "recorded"), course, writer, board)
    shown = []
    for env_steps in (0, 3, 4, 5, 6):
        board.set(ENV_STEPS, env_steps)
        board.set(UPDATES, 30)
        while not worker.step().waiting:
            pass
        shown.append(writer.num_episodes)
    assert shown == [0, 0, 1, 1, 3]
    writer.close()


def test_no_clip_before_its_time(tmp_path: Path) -> None:
    board = Board(tmp_path / "board.bin", lambda: 1.0)
    writer = StoreWriter(tmp_path / "shown", schema())
    worker = ReplayImagination(recorded(tmp_path / "recorded"), moments(METRICS), writer, board)

    def clips_at(env_steps: int, updates: int) -> int:
        board.set(ENV_STEPS, env_steps)
        board.set(UPDATES, updates)
        while not worker.step().waiting:
            pass
        return writer.num_episodes

    assert [clips_at(*now) for now in ((0, 9), (0, 10), (3, 500), (5, 20), (6, 29), (6, 30))] == [
        0,
        1,
        1,
        1,
        1,
        3,
    ]
    assert board.get(SELECTION_GATE) == MILLIONTHS // 2
    assert (board.get(ADMITTED), board.get(GENERATED)) == (9, 20)
    board.set(COLLECTED, 1)
    assert worker.step().finished
    worker.close()
    shown = StoreReader(tmp_path / "shown")
    for number, info in enumerate(shown.episodes()):
        records = shown.records(np.arange(info.first_row, info.end_row - 1))
        assert [provenance_of(record).source_episode for record in records] == [number] * LENGTH
        assert (records["transition"]["source"] == Source.SYNTHETIC).all()
        assert (records["transition"]["label"] == Label.FAILURE).all()


def test_an_arm_with_fewer_updates_sees_a_clip_at_the_recorded_env_step(tmp_path: Path) -> None:
    board = Board(tmp_path / "board.bin", lambda: 1.0)
    writer = StoreWriter(tmp_path / "shown", schema())
    worker = ReplayImagination(recorded(tmp_path / "recorded"), moments(METRICS), writer, board)
    board.set(ENV_STEPS, 7)
    board.set(UPDATES, 12)
    while not worker.step().waiting:
        pass
    assert writer.num_episodes == 3
    writer.close()
