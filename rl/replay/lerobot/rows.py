"""The rows of one episode: read from parquet, put in order, checked against what the metadata announce."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rl.replay.lerobot.errors import DatasetError, EpisodeError
from rl.replay.lerobot.layout import DatasetLayout, EpisodeEntry, Feature, read_parquet
from rl.replay.quality import GAP_PERIODS
from robot.types import Array

_RATE_TOLERANCE = 0.05


@dataclass(frozen=True, eq=False)
class EpisodeRows:
    """The rows of one episode in the order of their frames. notes: what had to be put right."""

    entry: EpisodeEntry
    table: pa.Table
    features: Mapping[str, Feature]
    notes: tuple[str, ...] = field(default=())

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def part(self, part: slice) -> EpisodeRows:
        """Some of the rows, as rows of the same episode."""
        start, stop, _ = part.indices(len(self))
        return EpisodeRows(self.entry, self.table.slice(start, stop - start), self.features)

    def has(self, name: str) -> bool:
        return name in self.table.column_names

    def values(self, name: str) -> Array:
        """The column `name` as float64, (N,) for one number per row or (N, n); raises EpisodeError."""
        if not self.has(name):
            raise EpisodeError(f"the column {name} is missing from {self.entry.data}")
        try:
            values = _dense(self.table[name])
        except (pa.ArrowException, ValueError, TypeError) as error:
            raise EpisodeError(
                f"{name}: expected the same number of numbers in every row ({error})"
            ) from error
        given = values.shape[1:] or (1,)
        shape = (self.features[name].shape or (1,)) if name in self.features else given
        if given != shape:
            raise EpisodeError(f"{name}: info.json announces {list(shape)}, the rows hold {list(given)}")
        return values

    def timestamps(self) -> Array:
        """(N,) seconds from the start of the episode."""
        return self.values("timestamp").reshape(len(self))

    def stretches(self, fps: float) -> list[slice]:
        """The rows without the gaps between them: one slice where nothing is missing.

        Raises EpisodeError where the rows do not follow each other at `fps` at all.
        """
        if len(self) > 1:
            apart = float(np.median(np.diff(self.timestamps())))
            if abs(apart * fps - 1.0) > _RATE_TOLERANCE:
                raise EpisodeError(
                    f"its rows are {apart:.4g} s apart ({1 / apart:.4g} Hz), info.json says {fps:g} fps"
                )
        frames = self.values("frame_index").reshape(len(self))
        jump = (np.diff(frames) != 1) | (np.diff(self.timestamps()) > GAP_PERIODS / fps)
        cuts = [0, *(np.flatnonzero(jump) + 1).tolist(), len(self)]
        return [slice(start, stop) for start, stop in pairwise(cuts)]


class RowFiles:
    """Reads episodes' rows; keeps the file read last, since several episodes may share it."""

    def __init__(self, layout: DatasetLayout) -> None:
        self._layout = layout
        self._path: Path | None = None
        self._table: pa.Table | None = None

    def episode(self, entry: EpisodeEntry) -> EpisodeRows:
        """The rows of `entry` in order; raises EpisodeError where they are not what was announced."""
        if self._path != entry.data:
            self._path = self._table = None
            try:
                self._table = read_parquet(entry.data)
            except DatasetError as error:
                raise EpisodeError(str(error)) from error
            self._path = entry.data
        assert self._table is not None
        table = self._table
        absent = [
            name for name in ("episode_index", "frame_index", "timestamp") if name not in table.column_names
        ]
        if absent:
            raise EpisodeError(f"{entry.data}: the columns {absent} are missing")
        table = table.filter(pc.equal(_flat(table["episode_index"]), entry.index))
        if table.num_rows != entry.length:
            raise EpisodeError(
                f"{entry.data}: expected {entry.length} rows of episode {entry.index}, got {table.num_rows}"
            )
        return _ordered(EpisodeRows(entry, table, self._layout.features))


def _ordered(rows: EpisodeRows) -> EpisodeRows:
    frames = rows.values("frame_index").reshape(len(rows))
    order = np.argsort(frames, kind="stable")
    repeated = np.flatnonzero(np.diff(frames[order]) == 0)
    if len(repeated):
        raise EpisodeError(f"frame_index {int(frames[order][repeated[0]])} occurs more than once")
    notes: tuple[str, ...] = ()
    if (np.diff(order) != 1).any():
        rows = EpisodeRows(rows.entry, rows.table.take(order), rows.features)
        notes = (f"episode {rows.entry.index}: rows were out of order, sorted by frame_index",)
    times = rows.timestamps()
    if not np.isfinite(times).all() or not (np.diff(times) > 0).all():
        raise EpisodeError("timestamp: expected finite, rising seconds from row to row")
    return EpisodeRows(rows.entry, rows.table, rows.features, notes)


def _flat(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column of one-element lists as its elements; other columns as they are."""
    return pc.list_element(column, 0) if _is_list(column.type) else column


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _dense(column: pa.ChunkedArray) -> Array:
    shape: list[int] = [len(column)]
    array = column.combine_chunks()
    while _is_list(array.type):
        # From the row's length to that of its lists: all of them are equally long, or there is no shape.
        lengths = pc.unique(pc.list_value_length(array)).to_pylist()
        if len(lengths) > 1 or lengths == [None]:
            raise ValueError(f"lengths {lengths[:4]}")
        shape.append(lengths[0] if lengths else 0)
        array = array.flatten()
    values: NDArray[np.generic] = array.to_numpy(zero_copy_only=False)
    if values.dtype.kind not in "biuf":
        raise ValueError(f"values of type {array.type}")
    dense = values.astype(np.float64).reshape(shape)
    return dense[:, 0] if dense.shape[1:] == (1,) else dense
