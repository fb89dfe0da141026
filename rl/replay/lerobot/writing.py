"""DatasetWriter: the files of a LeRobot dataset v3.0, one data file and one video file per episode; info.json last."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from rl.replay.lerobot.encode import video_info
from rl.replay.lerobot.errors import DatasetError
from rl.replay.lerobot.layout import EPISODES, INFO, TASKS, Feature
from rl.replay.lerobot.stats import Histogram, Stats, image_stats, vector_stats

VERSION = "v3.0"
_CHUNK = 1000  # episodes of one folder
_DATA_PATH = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
_VIDEO_PATH = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
_INDEX_FEATURES = {
    "timestamp": Feature("float32", (1,)),
    "frame_index": Feature("int64", (1,)),
    "episode_index": Feature("int64", (1,)),
    "index": Feature("int64", (1,)),
    "task_index": Feature("int64", (1,)),
}
_PANDAS = {  # makes pandas take the text as the index, where LeRobot looks for it
    "index_columns": ["task"],
    "column_indexes": [],
    "columns": [
        {"name": "task_index", "field_name": "task_index", "pandas_type": "int64", "numpy_type": "int64"},
        {"name": "task", "field_name": "task", "pandas_type": "unicode", "numpy_type": "object"},
    ],
}
Values: TypeAlias = NDArray[np.generic] | pa.ChunkedArray


@dataclass(eq=False)
class _Totals:
    """What has been written, for the metadata at the end."""

    frames: int = 0
    tasks: dict[str, int] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    vectors: dict[str, list[NDArray[np.generic]]] = field(default_factory=dict)
    histograms: dict[str, list[Histogram]] = field(default_factory=dict)


class DatasetWriter:
    """Adds episodes one by one, then `finish`; features: of the rows, without LeRobot's own index columns.

    For each episode, write the videos to `video_path`, then call `add`.
    """

    def __init__(
        self, root: Path, fps: int, features: Mapping[str, Feature], video_keys: Sequence[str]
    ) -> None:
        self._root, self._fps = root, fps
        self._features = {**features, **_INDEX_FEATURES}
        self._video_keys = video_keys
        self._totals = _Totals()

    @property
    def num_episodes(self) -> int:
        return len(self._totals.rows)

    @property
    def num_frames(self) -> int:
        return self._totals.frames

    def video_path(self, key: str) -> Path:
        """Where the video of the next episode belongs."""
        path = self._root / _VIDEO_PATH.format(video_key=key, **self._place())
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def add(
        self,
        columns: Mapping[str, Values],
        videos: Mapping[str, Sequence[Histogram]],
        task: str,
        remarks: Mapping[str, Any],
    ) -> None:
        """One episode: its rows, a histogram of every frame of its videos, its task, more for its metadata row."""
        totals, index = self._totals, self.num_episodes
        length = len(next(iter(columns.values())))
        frames = np.arange(length)
        rows: dict[str, Values] = {
            **columns,
            "timestamp": (frames / self._fps).astype(np.float32),
            "frame_index": frames,
            "episode_index": np.full(length, index),
            "index": totals.frames + frames,
            "task_index": np.full(length, totals.tasks.setdefault(task, len(totals.tasks))),
        }
        self._write_rows(rows)
        stats: dict[str, Stats | None] = {key: image_stats(counts) for key, counts in videos.items()}
        for name, values in rows.items():
            if self._features[name].dtype != "string":
                array = values if isinstance(values, np.ndarray) else np.array(values.to_pylist())
                stats[name] = vector_stats(array)
                totals.vectors.setdefault(name, []).append(array)
        for key, counts in videos.items():
            totals.histograms.setdefault(key, []).extend(counts)
        place, span = self._place(), {"from_timestamp": 0.0, "to_timestamp": length / self._fps}
        totals.rows.append(
            {
                **remarks,
                "episode_index": index,
                "tasks": [task],
                "length": length,
                "dataset_from_index": totals.frames,
                "dataset_to_index": totals.frames + length,
                **{f"data/{part}": at for part, at in place.items()},
                **{f"videos/{key}/{part}": at for key in videos for part, at in {**place, **span}.items()},
                **{
                    f"stats/{name}/{stat}": values
                    for name, entry in stats.items()
                    if entry is not None
                    for stat, values in entry.items()
                },
                "meta/episodes/chunk_index": 0,
                "meta/episodes/file_index": 0,
            }
        )
        totals.frames += length

    def finish(self) -> None:
        """Write the metadata, info.json as the last file."""
        totals = self._totals
        _write_table(self._root / EPISODES / "chunk-000" / "file-000.parquet", _as_table(totals.rows))
        tasks = pa.table({"task_index": list(totals.tasks.values()), "task": list(totals.tasks)})
        metadata = {b"pandas": json.dumps(_PANDAS).encode()}
        _write_table(self._root / TASKS, tasks.replace_schema_metadata(metadata))
        stats: dict[str, Stats | None] = {
            name: vector_stats(np.concatenate(parts)) for name, parts in totals.vectors.items()
        }
        stats |= {key: image_stats(counts) for key, counts in totals.histograms.items()}
        whole = {name: entry for name, entry in stats.items() if entry is not None}
        (self._root / "meta/stats.json").write_text(json.dumps(whole, indent=1))
        info = self._info()
        (self._root / INFO).write_text(json.dumps(info, indent=1, allow_nan=False))

    def _place(self) -> dict[str, int]:
        chunk, file = divmod(self.num_episodes, _CHUNK)
        return {"chunk_index": chunk, "file_index": file}

    def _write_rows(self, rows: Mapping[str, Values]) -> None:
        arrays = {name: _as_arrow(name, values, self._features[name]) for name, values in rows.items()}
        _write_table(self._root / _DATA_PATH.format(**self._place()), pa.table(arrays))

    def _info(self) -> dict[str, Any]:
        totals = self._totals
        features: dict[str, Any] = {
            name: {"dtype": entry.dtype, "shape": list(entry.shape), "names": list(entry.names) or None}
            for name, entry in self._features.items()
        }
        for key in self._video_keys:
            first = self._root / _VIDEO_PATH.format(video_key=key, chunk_index=0, file_index=0)
            details = video_info(first, self._fps)
            features[key] = {
                "dtype": "video",
                "shape": [details["video.height"], details["video.width"], 3],
                "names": ["height", "width", "channels"],
                "info": details,
            }
        return {
            "codebase_version": VERSION,
            "robot_type": None,
            "total_episodes": self.num_episodes,
            "total_frames": totals.frames,
            "total_tasks": len(totals.tasks),
            "chunks_size": _CHUNK,
            "data_files_size_in_mb": 100,
            "video_files_size_in_mb": 200,
            "fps": self._fps,
            "splits": {"train": f"0:{self.num_episodes}"},
            "data_path": _DATA_PATH,
            "video_path": _VIDEO_PATH if self._video_keys else None,
            "features": features,
        }


def _as_arrow(name: str, values: Values, feature: Feature) -> pa.Array | pa.ChunkedArray:
    kind = pa.type_for_alias(feature.dtype)
    if feature.shape != (1,):
        kind = pa.list_(kind, feature.shape[0])
    if isinstance(values, pa.ChunkedArray):
        return values.cast(kind)
    if values.shape[1:] != (() if feature.shape == (1,) else feature.shape):
        raise DatasetError(f"{name}: expected {list(feature.shape)} per row, got {list(values.shape[1:])}")
    if feature.shape == (1,):
        return pa.array(values, kind)
    flat = pa.array(values.ravel(), kind.value_type)
    return pa.FixedSizeListArray.from_arrays(flat, feature.shape[0])


def _as_table(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Rows of which some may lack a column."""
    names = dict.fromkeys(name for row in rows for name in row)
    return pa.table({name: [row.get(name) for row in rows] for name in names})


def _write_table(path: Path, table: pa.Table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)
