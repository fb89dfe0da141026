"""The sidecar of an imported store: what a dataset's rows hold beyond the store's columns, one row per store row."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rl.replay.journal import EpisodeInfo
from rl.replay.lerobot.errors import DatasetError
from rl.replay.lerobot.layout import INDEX_COLUMNS, Feature, read_parquet
from rl.replay.lerobot.rows import EpisodeRows

EXTRA = "extra.parquet"
ROW = "row"
_FEATURES = b"features"
_PLAIN_TYPES = {"bool", "string", "float32", "float64", "uint8", "int8", "int16", "int32", "int64"}


class ExtraWriter:
    """Writes the columns `names` of the dataset, store name -> its name there, as they were."""

    def __init__(self, path: Path, features: Mapping[str, Feature], names: Mapping[str, str]) -> None:
        self._path, self._features, self._names = path, features, names
        self._file: pq.ParquetWriter | None = None

    def write(self, rows: EpisodeRows, first_row: int) -> None:
        """Add the rows of an episode whose first one is `first_row` of the store."""
        columns = {ROW: pa.array(np.arange(first_row, first_row + len(rows)))}
        columns |= {name: rows.table[origin] for name, origin in self._names.items() if rows.has(origin)}
        table = pa.table(columns)
        if self._file is None:
            features = {
                name: {"dtype": feature.dtype, "shape": feature.shape, "names": feature.names or None}
                for name, origin in self._names.items()
                if (feature := self._features.get(origin)) is not None
            }
            schema = table.schema.with_metadata({_FEATURES: json.dumps(features).encode()})
            self._file = pq.ParquetWriter(self._path, schema)
        try:
            self._file.write_table(table.cast(self._file.schema))
        except (ValueError, pa.ArrowException) as error:
            raise DatasetError(
                f"{rows.entry.data}: its columns are not those of the first episode ({error}); "
                "import the episodes that fit with episodes=[...]"
            ) from error

    def __enter__(self) -> ExtraWriter:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()


def extra_names(columns: Sequence[str], features: Mapping[str, Feature]) -> list[str]:
    """Which columns of a dataset's rows are worth keeping: all but LeRobot's indices and the images."""
    return [
        name
        for name in columns
        if name not in INDEX_COLUMNS and not (name in features and features[name].is_image)
    ]


class ExtraColumns:
    """Reads the sidecar of a store for an export; empty for a store that has none."""

    def __init__(self, table: pa.Table | None, features: Mapping[str, Feature], notes: Sequence[str]) -> None:
        self._table = table
        self.features = features
        self.notes = tuple(notes)

    @classmethod
    def of(cls, store: Path, rows: int) -> ExtraColumns:
        """The sidecar of `store`, which has `rows` rows."""
        path = store / EXTRA
        if not path.exists():
            return cls(None, {}, ())
        table = read_parquet(path)
        if ROW not in table.column_names or not np.array_equal(table[ROW].to_numpy(), np.arange(rows)):
            return cls(None, {}, [f"{path}: not one row per row of the store, which has grown; left out"])
        known = json.loads((table.schema.metadata or {}).get(_FEATURES, b"{}"))
        features, notes = {}, []
        for name in table.column_names:
            if name == ROW:
                continue
            feature = _feature(table.schema.field(name).type, known.get(name))
            if feature is None:
                notes.append(f"{path}: {name} ({table.schema.field(name).type}) fits no feature, left out")
            else:
                features[name] = feature
        return cls(table, features, notes)

    def rows(self, info: EpisodeInfo) -> dict[str, pa.ChunkedArray]:
        """The columns of one episode."""
        if self._table is None:
            return {}
        part = self._table.slice(info.first_row, info.rows)
        return {name: part[name] for name in self.features}


def _feature(kind: pa.DataType, known: Mapping[str, object] | None) -> Feature | None:
    """The feature of a column: as the dataset announced it, else from its type."""
    names: tuple[str, ...] = ()
    shape: tuple[int, ...] = (1,)
    if known is not None:
        shape = tuple(known["shape"])  # type: ignore[arg-type]
        names = tuple(known["names"] or ())  # type: ignore[arg-type]
    elif pa.types.is_fixed_size_list(kind):
        shape = (kind.list_size,)
    if len(shape) > 1:
        return None
    while pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind) or pa.types.is_large_list(kind):
        kind = kind.value_type
    name = {"float": "float32", "double": "float64", "large_string": "string"}.get(str(kind), str(kind))
    return Feature(name, shape, names) if name in _PLAIN_TYPES else None
