"""What the store refuses, and what the errors say: bad data, calls out of order, another schema, a second writer."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import numpy as np
import pytest
from replay_data import observation, schema, transition

from rl.replay.errors import CorruptStoreError, SchemaMismatchError, StoreError, StoreLockedError
from rl.replay.reader import StoreReader
from rl.replay.schema import StoreSchema
from rl.replay.writer import StoreWriter
from robot.types import BadDataError


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
