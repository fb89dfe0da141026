"""The store's writer and reader: what comes back, what is refused, and what the errors say."""

from __future__ import annotations

import dataclasses
import errno
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from replay_data import action, flip_byte, observation, schema, transition, triples

from rl.replay.arrays import empty_batch
from rl.replay.errors import (
    CorruptStoreError,
    SchemaMismatchError,
    StoreError,
    StoreFullError,
    StoreLockedError,
)
from rl.replay.journal import EndReason, EpisodeOutcome, JournalReader
from rl.replay.reader import StoreReader
from rl.replay.rows import provenance_of
from rl.replay.schema import StoreSchema
from rl.replay.store import RowCount
from rl.replay.writer import StoreWriter
from robot.types import BadDataError, Label, Provenance, Source

DONE = EpisodeOutcome(EndReason.SUCCESS)


def record(writer: StoreWriter, steps: int, *, success: bool = True) -> None:
    number = writer.begin_episode(observation(writer.num_episodes, 0))
    for step in range(steps):
        last = step == steps - 1
        writer.add(transition(number, step, terminated=last and success, truncated=last and not success))
    writer.end_episode(DONE if success else EpisodeOutcome(EndReason.TIMEOUT))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "real"


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


def test_no_store(path: Path) -> None:
    with pytest.raises(StoreError, match=r"no store here.*record first"):
        StoreReader(path)


def test_bad_data_is_refused_and_nothing_is_written(path: Path) -> None:
    good = transition(0, 0)
    nan = np.array([np.nan, 0], np.float32)
    cases = {
        "action": dataclasses.replace(good, action=np.full(3, np.nan, np.float32)),
        "reward": dataclasses.replace(good, reward=float("inf")),
        "proprio: expected finite": dataclasses.replace(
            good, next_observation=dataclasses.replace(observation(0, 1), proprio=nan)
        ),
        r"action: expected \(3,\)": dataclasses.replace(good, action=np.zeros(7, np.float32)),
        "expected \\(H, W\\)": dataclasses.replace(
            good, next_observation=dataclasses.replace(observation(0, 1), images={})
        ),
        "observation stored last": transition(0, 1),
    }
    with StoreWriter(path, schema()) as writer:
        writer.begin_episode(observation(0, 0))
        before = (path / "segments/000000/rows.bin").read_bytes()
        for message, bad in cases.items():
            with pytest.raises(BadDataError, match=message):
                writer.add(bad)
        assert (path / "segments/000000/rows.bin").read_bytes() == before
        assert writer.num_rows == 1
        writer.add(transition(0, 0, terminated=True))
        with pytest.raises(BadDataError, match="ended with its transition 0"):
            writer.add(transition(0, 1))


def test_calls_out_of_order_are_refused(path: Path) -> None:
    with StoreWriter(path, schema()) as writer:
        with pytest.raises(StoreError, match="call begin_episode"):
            writer.add(transition(0, 0))
        writer.begin_episode(observation(0, 0))
        with pytest.raises(StoreError, match="still open"):
            writer.begin_episode(observation(1, 0))
    with pytest.raises(StoreError, match="writer is closed"):
        writer.begin_episode(observation(1, 0))


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"task": "press"}, "task"),
        ({"views": {"front": (3, 4), "wrist": (4, 5)}}, r"views.wrist \(height, width\)"),
        ({"views": {"front": (3, 4)}}, "views"),
        ({"action_dim": 7}, "action_dim"),
        ({"metadata": {"frame": "ee", "action_scale": [0.01, 0.06, 1.0]}}, "metadata.frame"),
    ],
)
def test_another_schema_is_refused_by_its_first_difference(
    path: Path, changes: dict[str, object], field: str
) -> None:
    StoreWriter(path, schema()).close()
    with pytest.raises(SchemaMismatchError, match=f"{field} differs"):
        StoreWriter(path, schema(**changes))  # type: ignore[arg-type]
    StoreWriter(path, schema()).close()  # the refusal has released the lock


def test_schema_survives_the_disk(path: Path) -> None:
    path.write_text(schema(metadata={"limits": (1, 2)}).to_json())
    loaded = StoreSchema.load(path)
    loaded.check_compatible(schema(metadata={"limits": (1, 2)}))
    assert loaded.to_json() == path.read_text()
    path.write_text("{}")
    with pytest.raises(CorruptStoreError, match="not a store schema"):
        StoreSchema.load(path)


def test_second_writer_is_refused(path: Path) -> None:
    with (
        StoreWriter(path, schema()),
        pytest.raises(StoreLockedError, match=f"process {os.getpid()}; a store has one writer"),
    ):
        StoreWriter(path, schema())
    StoreWriter(path, schema()).close()


def test_unwritable_directory(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.touch()
    with pytest.raises(StoreError, match="choose a writable directory"):
        StoreWriter(blocker / "real", schema())


def test_full_disk_loses_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(fd: int, offset: int, size: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with StoreWriter(path, schema(segment_rows=3)) as writer:
        writer.begin_episode(observation(0, 0))
        writer.add(transition(0, 0))
        writer.add(transition(0, 1))
        with monkeypatch.context() as patch:
            patch.setattr(os, "posix_fallocate", no_space)
            with pytest.raises(StoreFullError, match=r"no room for .* free some space and repeat the call"):
                writer.add(transition(0, 2))
        assert (writer.num_rows, StoreReader(path).num_transitions) == (3, 2)
        writer.add(transition(0, 2, terminated=True))
        writer.end_episode(DONE)
    assert StoreReader(path).verify_all() == 4


def test_interrupted_end_of_an_episode_is_repeated(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sync = os.fdatasync

    def interrupted(fd: int) -> None:
        if Path(f"/proc/self/fd/{fd}").readlink().name == "journal.jsonl":
            raise KeyboardInterrupt  # the line is written, the writer does not know it yet
        sync(fd)

    with pytest.raises(KeyboardInterrupt), StoreWriter(path, schema()) as writer:
        record(writer, 2)
        writer.begin_episode(observation(1, 0))
        writer.add(transition(1, 0, terminated=True))
        with monkeypatch.context() as patch:
            patch.setattr(os, "fdatasync", interrupted)
            writer.end_episode(DONE)
    infos = StoreReader(path).episodes()
    assert [(info.rows, info.outcome.reason) for info in infos] == [
        (3, EndReason.SUCCESS),
        (2, EndReason.SUCCESS),
    ]


@pytest.mark.parametrize("name", ["front.u8", "rows.bin"])
def test_short_or_missing_segment_file_is_named(path: Path, name: str) -> None:
    with StoreWriter(path, schema()) as writer:
        record(writer, 6)
    torn = path / "segments" / "000001" / name
    os.truncate(torn, torn.stat().st_size - 1)
    for opening in (lambda: StoreReader(path), lambda: StoreWriter(path, schema())):
        with pytest.raises(CorruptStoreError, match=f"000001/{name}: expected at least .* restore it"):
            opening()
    torn.unlink()
    with pytest.raises(CorruptStoreError, match=f"000001/{name}.*the file is missing"):
        StoreReader(path)


def test_damaged_rows(path: Path) -> None:
    with StoreWriter(path, schema()) as writer:
        record(writer, 6)
        writer.begin_episode(observation(1, 0))
        writer.add(transition(1, 0))
        flip_byte(path / "segments/000001/front.u8", 0)  # row 4, journalled
        assert StoreReader(path).num_rows == 9  # journalled rows are trusted ...
        with pytest.raises(CorruptStoreError, match=r"1 of 9 rows .* rows \[4\]"):
            StoreReader(path).verify_all()  # ... until somebody asks
        flip_byte(path / "segments/000001/wrist.u8", -1)  # row 7, of the open episode
        with pytest.raises(CorruptStoreError, match="row 7 does not match its checksum"):
            StoreReader(path)


def test_torn_journal_line_is_rebuilt_from_its_rows(path: Path) -> None:
    with StoreWriter(path, schema()) as writer:
        record(writer, 3)
        record(writer, 2)
    journal = path / "journal.jsonl"
    os.truncate(journal, journal.stat().st_size - 5)
    with StoreWriter(path, schema()) as writer:
        report = writer.recovery
        assert (report.recovered_episodes, report.recovered_rows, report.kept_rows) == (1, 3, 7)
        assert report.torn_journal_bytes > 0 and "1 unfinished episode" in str(report)
        record(writer, 1)
    reader = StoreReader(path)
    recovered = reader.episodes()[1]
    assert recovered.outcome.reason is EndReason.RECOVERED and recovered.success
    assert [info.rows for info in reader.episodes()] == [4, 3, 2]
    assert reader.verify_all() == 9


def test_damaged_journal_line_in_the_middle_is_not_guessed_at(path: Path) -> None:
    with StoreWriter(path, schema()) as writer:
        record(writer, 3)
        record(writer, 2)
    flip_byte(path / "journal.jsonl", 20)
    for opening in (lambda: StoreReader(path), lambda: StoreWriter(path, schema())):
        with pytest.raises(CorruptStoreError, match=r"episode 0 is not readable .* restore it"):
            opening()


def test_episode_behind_a_damaged_row_is_never_cut_off(path: Path) -> None:
    with StoreWriter(path, schema()) as writer:
        record(writer, 3)
        record(writer, 6)
    os.truncate(path / "journal.jsonl", 0)
    flip_byte(path / "segments/000000/wrist.u8", -1)  # row 3, of episode 0
    with pytest.raises(
        CorruptStoreError, match="row 3 is damaged, and a whole episode begins behind it at row 4"
    ):
        StoreWriter(path, schema())
    flip_byte(path / "segments/000000/wrist.u8", -1)
    with StoreWriter(path, schema()) as writer:
        assert (writer.recovery.recovered_episodes, writer.num_transitions) == (2, 9)


def test_step_in_flight_is_reported_and_overwritten(path: Path, tmp_path: Path) -> None:
    with StoreWriter(path, schema()) as writer:
        writer.begin_episode(observation(0, 0))
        writer.add(transition(0, 0))
        writer.add(transition(0, 1))
        shutil.copytree(path, tmp_path / "killed")
    killed = tmp_path / "killed"
    RowCount(killed / "count", writable=True).publish(2)  # killed before the last step was published ...
    flip_byte(killed / "segments/000000/front.u8", 2 * 36)  # ... and before its image was written
    with StoreWriter(killed, schema()) as writer:
        report = writer.recovery
        assert (report.kept_rows, report.torn_rows, report.torn_steps) == (2, 0, 1)
        record(writer, 3)
    reader = StoreReader(killed)
    assert reader.verify_all() == 6
    assert reader.episode(0).truncated.tolist() == [True]


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


def test_missing_schema_beside_data_is_not_overwritten(path: Path) -> None:
    with StoreWriter(path, schema()) as writer:
        record(writer, 1)
    (path / "schema.json").unlink()
    with pytest.raises(CorruptStoreError, match="missing beside existing segments"):
        StoreWriter(path, schema())


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
