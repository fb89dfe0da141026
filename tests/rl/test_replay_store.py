"""The store's writer and reader: what comes back."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from replay_data import DONE, action, observation, record, schema, transition, triples

from rl.replay.arrays import empty_batch
from rl.replay.errors import StoreError
from rl.replay.journal import EndReason, JournalReader
from rl.replay.reader import StoreReader
from rl.replay.rows import provenance_of
from rl.replay.writer import StoreWriter
from robot.types import Label, Provenance, Source


def test_all_columns_come_back(path: Path) -> None:
    provenance = Provenance(1, 3, 4, 2, 5, 6, 7, 8, 0.25, 0.5, 0.1, -1.5, -1.25, 9)
    step = dataclasses.replace(
        transition(0, 0, terminated=True, intervened=True),
        gripper_changed=True,
        label=Label.UNKNOWN,
        policy_version=77,
        provenance=provenance,
        source=Source.SYNTHETIC,
    )
    with StoreWriter(path, schema()) as writer:
        writer.begin_episode(observation(0, 0))
        writer.add(step)
        writer.end_episode(DONE)
    reader = StoreReader(path)
    episode = reader.episode(0)
    assert episode.success and episode.gripper_changed[0] and episode.intervened[0]
    assert episode.label[0] == Label.UNKNOWN and episode.policy_version[0] == 77
    assert episode.source[0] == Source.SYNTHETIC
    np.testing.assert_array_equal(episode.requested_action[0], -action(0, 0))
    np.testing.assert_allclose(episode.timestamp, [0.0, 0.1])
    np.testing.assert_allclose(episode.image_timestamps["wrist"], [-0.01, 0.09])
    records = reader.records(reader.valid_starts)
    assert provenance_of(records[0]) == provenance
    assert records["transition"]["env_step"][0] == 0


def test_env_steps_count_on_over_a_restart(path: Path) -> None:
    for _ in range(2):
        with StoreWriter(path, schema()) as writer:
            record(writer, 3)
    reader = StoreReader(path)
    assert reader.records(reader.valid_starts)["transition"]["env_step"].tolist() == list(range(6))


def test_truncation_is_never_terminal_and_keeps_its_own_next_observation(path: Path) -> None:
    with StoreWriter(path, schema(segment_rows=3)) as writer:
        record(writer, 5, success=False)
        record(writer, 5, success=False)
    reader = StoreReader(path)
    last = reader.valid_starts[[4, 9]]
    batch = empty_batch(reader.schema, 2)
    reader.gather(last, batch)
    assert batch.truncated.all() and not batch.terminated.any()
    assert triples(batch) == [(0, 4), (1, 4)]


def test_open_episode_is_visible_step_by_step_until_it_is_discarded(path: Path) -> None:
    with StoreWriter(path, schema()) as writer:
        record(writer, 2)
        reader = StoreReader(path)
        number = writer.begin_episode(observation(1, 0))
        for step in range(6):
            writer.add(transition(number, step))
            reader.refresh()
            assert (reader.num_transitions, reader.num_settled) == (2 + step + 1, 2)
        info = writer.discard_episode("the part slipped")
        assert info.discarded
        reader.refresh()
        assert reader.num_transitions == 2
        assert reader.num_rows == 3 + 7  # nothing was deleted
        assert len(reader.episode(1)) == 6
        assert reader.episodes()[1].outcome.detail == "the part slipped"


def test_leaving_with_an_open_episode_keeps_it_as_truncated(path: Path) -> None:
    with StoreWriter(path, schema()) as writer:
        writer.begin_episode(observation(0, 0))
        writer.add(transition(0, 0))
    reader = StoreReader(path)
    assert reader.episodes()[0].outcome.reason is EndReason.STOPPED
    assert reader.episode(0).truncated.tolist() == [True]
    with StoreWriter(path, schema()) as writer:
        assert writer.recovery.clean


def test_close_trims_and_a_live_reader_follows_the_next_writer(path: Path) -> None:
    with StoreWriter(path, schema(segment_rows=16)) as writer:
        record(writer, 3)
        allocated = (path / "segments/000000/front.u8").stat().st_size
    assert allocated == 16 * 36
    assert (path / "segments/000000/front.u8").stat().st_size == 4 * 36
    reader = StoreReader(path)
    with StoreWriter(path, schema()) as writer:
        assert writer.schema.segment_rows == 16  # the layout on disk stands
        record(writer, 20)
        assert reader.refresh() == 21
    assert reader.verify_all() == 25


def test_empty_store(path: Path) -> None:
    with StoreWriter(path, schema()):
        pass
    reader = StoreReader(path)
    assert (reader.num_rows, reader.num_transitions, reader.num_episodes) == (0, 0, 0)
    assert reader.verify_all() == 0
    with StoreWriter(path, schema()) as writer:
        assert writer.recovery.clean
    with pytest.raises(StoreError, match="no finished episode 0; it holds 0"):
        reader.episode(0)


def test_reader_between_an_episode_and_the_next_does_not_join_them(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with StoreWriter(path, schema()) as writer:
        reader = StoreReader(path)
        record(writer, 2)
        writer.begin_episode(observation(1, 0))
        writer.add(transition(1, 0))
        with monkeypatch.context() as patch:
            patch.setattr(JournalReader, "read_new", lambda _: [])  # the line comes just after it looked
            reader.refresh()
        assert reader.valid_starts.tolist() == [0, 1, 3]
        reader.refresh()
        assert (reader.valid_starts.tolist(), reader.num_settled) == ([0, 1, 3], 2)


def test_state_only_store(path: Path) -> None:
    blind = dataclasses.replace(observation(0, 0), images={}, image_timestamps={})
    step = dataclasses.replace(transition(0, 0, terminated=True), observation=blind)
    step = dataclasses.replace(step, next_observation=dataclasses.replace(step.next_observation, images={}))
    with StoreWriter(path, schema(views={})) as writer:
        writer.begin_episode(blind)
        writer.add(step)
        writer.end_episode(DONE)
    reader = StoreReader(path)
    assert reader.verify_all() == 2
    assert reader.episode(0).proprio.tolist() == [[0, 0], [0, 1]]
