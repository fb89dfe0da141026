"""The store after a full disk, a kill or a flipped byte: nothing lost, nothing guessed at, the damage named."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest
from replay_data import DONE, flip_byte, observation, record, schema, transition

from rl.replay.errors import CorruptStoreError, StoreFullError
from rl.replay.journal import EndReason
from rl.replay.reader import StoreReader
from rl.replay.store import RowCount
from rl.replay.writer import StoreWriter


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


def test_missing_schema_beside_data_is_not_overwritten(path: Path) -> None:
    with StoreWriter(path, schema()) as writer:
        record(writer, 1)
    (path / "schema.json").unlink()
    with pytest.raises(CorruptStoreError, match="missing beside existing segments"):
        StoreWriter(path, schema())
