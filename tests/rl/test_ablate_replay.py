"""The replay in the actor's place: order, pace, what is hidden, what is cut, and nothing before its time."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from replay_data import observation, schema, transition, triples

from rl.ablation.replay_actor import ReplayActor
from rl.ablation.stream import Stream
from rl.batch import Batch
from rl.build import make_samplers
from rl.replay.journal import EndReason, EpisodeOutcome
from rl.replay.mixer import Mixer
from rl.replay.reader import StoreReader
from rl.replay.writer import StoreWriter
from rl.runtime.board import Board
from rl.runtime.weights import WeightsDirectory
from rl.workers.learner import DEMO, ONLINE, LearnerConfig, LearnerWorker
from rl.workers.pacing import PacingConfig
from rl.workers.ports import COLLECTED, ENV_STEPS, TARGET_ENV_STEPS, UPDATES

LENGTHS = (3, 5, 2, 4)  # env steps of the recorded episodes
STARTS = (0, 3, 8, 10)  # env steps before each
DEMO_EPISODE = 50
WARM, UTD = 4, 1.5


def record(
    path: Path, corrected: dict[int, tuple[int, ...]] | None = None, discarded: tuple[int, ...] = ()
) -> Any:
    """A recording of LENGTHS; `corrected`: steps of an episode in which a person acted."""
    with StoreWriter(path, schema()) as writer:
        for episode, length in enumerate(LENGTHS):
            writer.begin_episode(observation(episode, 0))
            for step in range(length):
                last = step == length - 1
                intervened = step in (corrected or {}).get(episode, ())
                writer.add(transition(episode, step, terminated=last, intervened=intervened))
            reason = EndReason.DISCARDED if episode in discarded else EndReason.SUCCESS
            writer.end_episode(EpisodeOutcome(reason))
    reader = StoreReader(path)
    return SimpleNamespace(real=reader, episodes=reader.episodes())


class Watcher:
    """An agent that learns nothing and remembers what it was shown, and when."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self.seen: list[tuple[int, tuple[int, int]]] = []  # env steps by then, (episode, step)

    def behaviour_cloning(self, batch: Batch) -> dict[str, float]:
        raise AssertionError("no cloning was asked for")

    def update(self, batch: Batch) -> dict[str, float]:
        self.seen += [(self._board.get(ENV_STEPS), place) for place in triples(batch)]
        return {}

    def policy_tensors(self) -> dict[str, torch.Tensor]:
        return {"none": torch.zeros(1)}

    value_tensors = policy_tensors

    @property
    def online(self) -> list[tuple[int, tuple[int, int]]]:
        return [(when, place) for when, place in self.seen if place[0] != DEMO_EPISODE]


class Rig:
    """Learner and replay, round robin, as the inline runtime runs them."""

    def __init__(self, path: Path, stream: Stream, target: int = 10_000) -> None:
        with StoreWriter(path / "demo", schema()) as demo:
            demo.begin_episode(observation(DEMO_EPISODE, 0))
            for step in range(3):
                demo.add(transition(DEMO_EPISODE, step, terminated=step == 2))
            demo.end_episode(EpisodeOutcome(EndReason.SUCCESS))
        writer = StoreWriter(path / "real", schema())
        self.board, weights = Board(path / "board.bin", lambda: 1.0), WeightsDirectory(path / "weights")
        self.board.set(TARGET_ENV_STEPS, target)
        self.agent = Watcher(self.board)
        self.learner = LearnerWorker(
            self.agent,
            Mixer(make_samplers(path / "real", path / "demo", DEMO, ONLINE)),
            weights,
            self.board,
            LearnerConfig(
                batch_size=32,
                warm_updates=WARM,
                learning_starts_env_steps=1,
                publish_every=10,
                diagnose_every=0,
            ),
            PacingConfig(utd_ratio=UTD),
            rng=np.random.default_rng(0),
            batch=None,
            save_checkpoint=lambda updates, state: None,
        )
        self.actor = ReplayActor(stream, writer, weights, self.board)
        self.shown = StoreReader(path / "real")
        self.pace: list[tuple[int, int, int]] = []  # env steps, updates, rows that may be drawn

    def run(self) -> None:
        while True:
            while not (result := self.learner.step()).waiting and not result.finished:
                pass
            if self.actor.step().finished:
                break
            self.shown.refresh()
            self.pace.append((self.board.get(ENV_STEPS), self.board.get(UPDATES), self.shown.num_transitions))
        self.actor.close()


def test_each_env_step_pays_for_its_updates_and_shows_one_row(tmp_path: Path) -> None:
    rig = Rig(tmp_path, Stream(record(tmp_path / "recorded"), frozenset(), corrections=True))
    rig.run()
    for env_steps, updates, rows in rig.pace:
        assert rows == env_steps
        # This env step's own updates come behind it.
        assert WARM + int(UTD * max(0, env_steps - 1)) <= updates <= WARM + int(UTD * env_steps)
    assert rig.pace[-1][0] == sum(LENGTHS)
    assert rig.board.get(UPDATES) == WARM + int(UTD * sum(LENGTHS))
    assert rig.board.get(COLLECTED) == 1


def test_no_learner_sees_a_step_before_its_time(tmp_path: Path) -> None:
    rig = Rig(tmp_path, Stream(record(tmp_path / "recorded"), frozenset(), corrections=True))
    rig.run()
    assert len({place for _, place in rig.agent.online}) > sum(LENGTHS) - 3, (
        "in the end nearly all of it was drawn"
    )
    for when, (episode, step) in rig.agent.online:
        assert when > STARTS[episode] + step


def test_a_row_planted_ahead_of_its_time_is_noticed(tmp_path: Path) -> None:
    """The test above can fail: a replay that writes one row too much is found out."""
    rig = Rig(tmp_path, Stream(record(tmp_path / "recorded"), frozenset(), corrections=True))
    reveal = rig.actor._reveal

    def hasty(shown: Any, env_steps: int) -> Any:
        following = reveal(shown, env_steps)
        return reveal(following, env_steps) if following and rig.actor._step < shown.length else following

    rig.actor._reveal = hasty  # type: ignore[method-assign]
    rig.run()
    assert any(when <= STARTS[episode] + step for when, (episode, step) in rig.agent.online)


def test_a_held_out_episode_takes_its_time_and_is_never_drawn(tmp_path: Path) -> None:
    rig = Rig(tmp_path, Stream(record(tmp_path / "recorded"), frozenset({1}), corrections=True))
    rig.run()
    assert {episode for _, (episode, _) in rig.agent.online} == {0, 2, 3}
    assert rig.board.get(ENV_STEPS) == sum(LENGTHS)
    assert rig.board.get(UPDATES) == WARM + int(UTD * sum(LENGTHS))
    infos = rig.shown.episodes()
    assert [info.num_transitions for info in infos] == [3, 0, 2, 4], "the others keep their numbers"
    assert infos[1].discarded


def test_without_corrections_an_episode_ends_before_the_first_one(tmp_path: Path) -> None:
    recording = record(tmp_path / "recorded", {1: (2, 4), 3: (0,)})
    rig = Rig(tmp_path, Stream(recording, frozenset(), corrections=False))
    rig.run()
    drawn = {place for _, place in rig.agent.online}
    assert drawn == {(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (2, 0), (2, 1)}
    infos = rig.shown.episodes()
    assert infos[1].outcome.reason is EndReason.STOPPED and not infos[1].success
    assert infos[3].discarded
    last = rig.shown.records(np.array([infos[1].end_row - 2]))["transition"]
    assert last["truncated"][0] and not last["terminated"][0], "cut off, not failed"
    assert rig.board.get(ENV_STEPS) == sum(LENGTHS)


def test_corrections_count_as_the_run_counted_them(tmp_path: Path) -> None:
    recording = record(tmp_path / "recorded", {1: (2, 4)})
    rig = Rig(tmp_path, Stream(recording, frozenset(), corrections=True))
    rig.run()
    assert [info.corrections for info in rig.shown.episodes()] == [0, 2, 0, 0]


def test_a_discarded_episode_is_discarded_again_at_its_end(tmp_path: Path) -> None:
    recording = record(tmp_path / "recorded", discarded=(1,))
    rig = Rig(tmp_path, Stream(recording, frozenset(), corrections=True))
    rig.run()
    assert rig.shown.episodes()[1].discarded
    after = {place for when, place in rig.agent.online if when > STARTS[2]}
    assert 1 not in {episode for episode, _ in after}
    assert any(episode == 1 for _, (episode, _) in rig.agent.online), (
        "until then it was drawn, as it was then"
    )


@pytest.mark.parametrize(("target", "steps"), [(0, 0), (1, 3), (3, 3), (4, 8)])
def test_no_episode_begins_behind_the_target(tmp_path: Path, target: int, steps: int) -> None:
    rig = Rig(tmp_path, Stream(record(tmp_path / "recorded"), frozenset(), corrections=True), target)
    rig.run()
    assert rig.board.get(ENV_STEPS) == steps
    assert rig.board.get(UPDATES) == WARM + int(UTD * steps)
