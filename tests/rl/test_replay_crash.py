"""Two processes: a killed writer loses at most the step in flight; a reader never sees a torn row."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from replay_data import observation, schema, transition, triples

from rl.replay.arrays import empty_batch
from rl.replay.journal import EndReason, EpisodeOutcome
from rl.replay.reader import StoreReader
from rl.replay.sampler import PartConfig, TransitionSampler
from rl.replay.store import RowCount
from rl.replay.writer import StoreWriter

HERE = Path(__file__).parent
KILLS = 8


def start_writer(path: Path, *arguments: str) -> subprocess.Popen[bytes]:
    child = subprocess.Popen(
        [sys.executable, str(HERE / "replay_child.py"), str(path), *arguments],
        stdout=subprocess.PIPE,
        cwd=HERE.parents[1],
        env={"PYTHONPATH": str(HERE.parents[1]), "OMP_NUM_THREADS": "1"},
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    child.stdout.close()
    return child


def check_rows(reader: StoreReader, first: int) -> None:
    """Every transition from the `first` valid start on is the one that was written."""
    starts = reader.valid_starts[first:]
    batch = empty_batch(reader.schema, len(starts))
    reader.gather(starts, batch)
    assert triples(batch) == sorted(set(triples(batch)))


def test_kill_at_random_moments_loses_no_committed_row(tmp_path: Path) -> None:
    path = tmp_path / "real"
    rng = np.random.default_rng(5)
    kept = 0
    for life in range(KILLS):
        child = start_writer(path)
        time.sleep(rng.uniform(0.0, 0.12))
        child.kill()
        child.wait()
        committed = RowCount(path / "count", writable=False).value
        with StoreWriter(path, schema(segment_rows=64)) as writer:
            report = writer.recovery
            assert report.torn_rows == 0
            assert report.kept_rows >= committed >= kept
            number = writer.begin_episode(observation(writer.num_episodes, 0))
            writer.add(transition(number, 0, terminated=True))
            writer.end_episode(EpisodeOutcome(EndReason.SUCCESS))
            kept = writer.num_rows
        reader = StoreReader(path)
        assert reader.verify_all() == kept
        check_rows(reader, first=0)
        infos = reader.episodes()
        assert sum(info.outcome.reason is EndReason.RECOVERED for info in infos) <= life + 1
        for info in infos:
            if info.num_transitions:
                flags = reader.records(np.array([info.end_row - 2]))["transition"]
                assert flags["terminated"][0] or flags["truncated"][0]
    assert kept > KILLS * 5, "the writer was always killed before it wrote anything"


def test_reader_never_sees_a_torn_row_while_the_writer_writes(tmp_path: Path) -> None:
    path = tmp_path / "real"
    child = start_writer(path, "20")
    reader = StoreReader(path)
    sampler = TransitionSampler([PartConfig(reader)])
    rng = np.random.default_rng(0)
    refreshes = 0
    try:
        while True:
            finished = child.poll() is not None
            if reader.refresh():  # raises where a new row of the open episode does not match its checksum
                refreshes += 1
                check_rows(reader, first=max(0, reader.num_transitions - 5))
                if sampler.size:
                    triples(sampler.sample(4, rng))
            if finished:
                break
    finally:
        child.kill()
        child.wait()
    assert child.returncode == 0
    assert refreshes > 20, "the reader never ran beside the writer"
    assert reader.verify_all() == reader.num_rows == 20 * 301
    assert reader.num_transitions == 20 * 300
    np.testing.assert_array_equal(reader.valid_starts, StoreReader(path).valid_starts)
