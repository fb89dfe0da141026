"""Copied episodes are the recorded ones, provenance and outcome included; discarded ones stay behind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from replay_data import DONE, observation, record, schema, transition

from rl.replay.copying import copy_episodes
from rl.replay.errors import SchemaMismatchError
from rl.replay.reader import StoreReader
from rl.replay.writer import StoreWriter
from robot.types import Label, Provenance, Source


def test_every_column_but_the_env_step_is_copied_of_the_episodes_that_count(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "source", schema()) as writer:
        record(writer, 3, success=False)
        writer.begin_episode(observation(1, 0))
        writer.add(transition(1, 0))
        writer.discard_episode("the part slipped")
        writer.begin_episode(observation(2, 0))
        imagined = Provenance(source_origin=1, source_episode=7, risk=0.5, admission=1)
        writer.add(
            replace(
                transition(2, 0, terminated=True, intervened=True),
                source=Source.SYNTHETIC,
                label=Label.FAILURE,
                provenance=imagined,
            )
        )
        writer.end_episode(DONE)
    with StoreWriter(tmp_path / "copy", schema(segment_rows=3)) as writer:
        assert copy_episodes(tmp_path / "source", writer) == 2
    source, copy = StoreReader(tmp_path / "source"), StoreReader(tmp_path / "copy")
    assert [(info.outcome, info.rows) for info in copy.episodes()] == [
        (info.outcome, info.rows) for info in source.episodes() if not info.discarded
    ]
    one, two = (store.records(store.valid_starts)["transition"] for store in (source, copy))
    for name in set(one.dtype.names) - {"env_step"}:
        assert one[name].tobytes() == two[name].tobytes(), name
    for number, original in enumerate((0, 2)):
        for view in schema().views:
            frames = [
                store.frames(view, np.arange(info.first_row, info.end_row))
                for store, info in ((source, source.episodes()[original]), (copy, copy.episodes()[number]))
            ]
            np.testing.assert_array_equal(*frames)


def test_another_schema_is_refused(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "source", schema()) as writer:
        record(writer, 1)
    with (
        StoreWriter(tmp_path / "copy", schema(task="press")) as writer,
        pytest.raises(SchemaMismatchError, match="task differs"),
    ):
        copy_episodes(tmp_path / "source", writer)
