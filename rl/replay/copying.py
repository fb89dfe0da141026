"""Copies of episodes from one store into another."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from rl.replay.journal import EpisodeInfo
from rl.replay.reader import StoreReader
from rl.replay.rows import provenance_of
from rl.replay.writer import StoreWriter


def copy_episode(reader: StoreReader, info: EpisodeInfo, writer: StoreWriter) -> None:
    """Copy a finished episode of `reader` whole, provenance and outcome too; its env steps count on in `writer`."""
    episode = reader.episode(info.episode)
    records = reader.records(np.arange(info.first_row, info.end_row - 1))
    writer.begin_episode(episode.observation(0))
    for transition, record in zip(episode.transitions(), records, strict=True):
        writer.add(replace(transition, provenance=provenance_of(record)))
    writer.end_episode(info.outcome)


def copy_episodes(source: Path, writer: StoreWriter) -> int:
    """Copy every episode that may be sampled into another store; raises SchemaMismatchError where they differ."""
    reader = StoreReader(source)
    writer.schema.check_compatible(reader.schema)
    kept = [info for info in reader.episodes() if not info.discarded]
    for info in kept:
        copy_episode(reader, info, writer)
    return len(kept)
