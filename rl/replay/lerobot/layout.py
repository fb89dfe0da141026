"""The layout of a LeRobot dataset on disk: features, episodes and where their rows and frames lie, v3.0 and v2.1."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rl.replay.lerobot.errors import DatasetError

INFO = Path("meta/info.json")
EPISODES = Path("meta/episodes")
TASKS = Path("meta/tasks.parquet")
INDEX_COLUMNS = ("timestamp", "frame_index", "episode_index", "index", "task_index")
_LFS_POINTER = b"version https://git-lfs"
_CHUNK_SIZE = 1000  # episodes of one folder where an old info.json does not say


@dataclass(frozen=True)
class Feature:
    """One column as info.json announces it. shape: as stored, images (H, W, C) or (C, H, W), see `names`."""

    dtype: str
    shape: tuple[int, ...]
    names: tuple[str, ...] = ()  # of the entries, empty where unknown
    is_depth: bool = False

    @property
    def is_image(self) -> bool:
        return self.dtype in ("video", "image")

    @property
    def image_size(self) -> tuple[int, int]:
        """(H, W) in pixels of an image feature."""
        channels_first = self.names[:1] == ("channels",) or self.names[:1] == ("channel",)
        height, width = self.shape[1:3] if channels_first else self.shape[:2]
        return height, width


@dataclass(frozen=True)
class VideoSpan:
    """Where the frames of one episode and view lie: `path` from `start` seconds on."""

    path: Path
    start: float = 0.0


@dataclass(frozen=True)
class EpisodeEntry:
    """One episode as the metadata announce it. remarks: further columns of its metadata row (success, source)."""

    index: int
    length: int
    tasks: tuple[str, ...]
    data: Path
    videos: Mapping[str, VideoSpan]
    remarks: Mapping[str, Any]


@dataclass(frozen=True)
class DatasetLayout:
    """A dataset's metadata, read and checked; no row and no frame was touched."""

    root: Path
    version: str
    fps: float
    robot_type: str
    features: Mapping[str, Feature]
    tasks: Mapping[int, str]
    episodes: Sequence[EpisodeEntry]

    def video_keys(self) -> list[str]:
        return [key for key, feature in self.features.items() if feature.dtype == "video"]


def is_dataset(path: Path) -> bool:
    """Whether `path` is the directory of a LeRobot dataset."""
    return (path / INFO).is_file()


def read_layout(root: Path, *, episodes: bool = True) -> DatasetLayout:
    """The metadata of the dataset in `root`; raises DatasetError naming the file that is missing or torn.

    episodes: False leaves out the episode table, for a dataset whose table has to be rebuilt.
    """
    info = _read_info(root)
    version = str(info.get("codebase_version", ""))
    generation = version.removeprefix("v").partition(".")[0]
    if generation not in ("2", "3"):
        raise DatasetError(
            f"{root / INFO}: expected codebase_version v2.x or v3.x, got {version or 'none'}; "
            "convert it with the conversion scripts of LeRobot"
        )
    features = {name: _feature(root, name, body) for name, body in info["features"].items()}
    missing = [name for name in ("episode_index", "frame_index", "timestamp") if name not in features]
    if missing:
        raise DatasetError(
            f"{root / INFO}: the features {missing} are missing; not a dataset of this version"
        )
    fps = info["fps"]
    if not isinstance(fps, int | float) or not fps > 0:
        raise DatasetError(f"{root / INFO}: fps: expected a number > 0, got {fps!r}")
    layout = DatasetLayout(
        root=root,
        version=version,
        fps=float(fps),
        robot_type=str(info.get("robot_type") or ""),
        features=features,
        tasks=_tasks_v3(root) if generation == "3" else _tasks_v2(root),
        episodes=(),
    )
    if not episodes:
        return layout
    read = _episodes_v3 if generation == "3" else _episodes_v2
    entries = sorted(read(layout, info), key=lambda entry: entry.index)
    repeated = [entry.index for entry, after in pairwise(entries) if entry.index == after.index]
    if repeated:
        raise DatasetError(f"{root}: the episode table lists episode {repeated[0]} more than once; mend it")
    if not entries:
        raise DatasetError(f"{root}: the dataset announces no episode; record first, or check the path")
    return replace(layout, episodes=entries)


def read_parquet(path: Path) -> pa.Table:
    """A whole parquet file; raises DatasetError that tells a missing, torn or not downloaded file apart."""
    try:
        # One file, not a data set: pyarrow would add columns for folder names such as `a=b`.
        return pq.ParquetFile(path).read()
    except FileNotFoundError as error:
        raise DatasetError(f"{path}: the file is missing; restore it from a copy") from error
    except (pa.ArrowException, OSError) as error:
        raise DatasetError(f"{path}: {explain_unreadable(path, 'a parquet file', error)}") from error


def explain_unreadable(path: Path, kind: str, error: Exception) -> str:
    """Why a file cannot be read, in words a person can act on."""
    try:
        with path.open("rb") as file:
            head = file.read(len(_LFS_POINTER))
    except OSError as reading:
        return f"cannot be read ({reading.strerror})"
    if head == _LFS_POINTER:
        return "a Git LFS pointer, not the data; run `git lfs pull` in the dataset"
    if not head:
        return "the file is empty; restore it from a copy"
    if kind == "a parquet file" and head[:4] == b"PAR1":
        return "a parquet file without its footer: its writer was killed before it closed the file; its rows are lost"
    return f"not {kind} ({' '.join(str(error).split())}); restore it from a copy"


def read_text(path: Path) -> str:
    """A text file; raises DatasetError."""
    try:
        return path.read_text()
    except FileNotFoundError as error:
        raise DatasetError(f"{path}: the file is missing; is {path.parents[1]} a LeRobot dataset?") from error
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"{path}: cannot be read ({error}); restore it from a copy") from error


def _read_info(root: Path) -> dict[str, Any]:
    path = root / INFO
    if not root.is_dir():
        raise DatasetError(f"{root}: no such directory")
    try:
        info = json.loads(read_text(path))
        for key, kind in (("features", dict), ("fps", (int, float))):
            if not isinstance(info[key], kind):
                raise TypeError(f"{key} is {info[key]!r}")
    except (ValueError, KeyError, TypeError) as error:
        raise DatasetError(f"{path}: not the metadata of a dataset ({error!r}); restore it") from error
    return dict(info)


def _feature(root: Path, name: str, body: Mapping[str, Any]) -> Feature:
    try:
        # Older files keep the video's properties under `video_info`.
        details = body.get("info") or body.get("video_info") or {}
        names = body.get("names")
        if isinstance(names, Mapping):  # {"motors": [...]} in older files
            names = next((entries for entries in names.values() if isinstance(entries, list)), None)
        feature = Feature(
            dtype=str(body["dtype"]),
            shape=tuple(int(n) for n in body["shape"]),
            names=tuple(str(entry) for entry in names or ()),
            is_depth=bool(details.get("video.is_depth_map") or details.get("is_depth_map")),
        )
        if feature.is_image and len(feature.shape) != 3:
            raise ValueError(f"an image of shape {list(feature.shape)}")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DatasetError(f"{root / INFO}: the feature {name} cannot be read ({error!r})") from error
    return feature


def _tasks_v3(root: Path) -> dict[int, str]:
    if not (root / TASKS).exists():
        return {}  # the episode table names the tasks once more
    table = read_parquet(root / TASKS)
    # The text is the index of a pandas frame, whose column has had two names.
    texts = [name for name in table.column_names if name != "task_index"]
    if "task_index" not in table.column_names or len(texts) != 1:
        raise DatasetError(f"{root / TASKS}: expected task_index and the text, got {table.column_names}")
    return dict(zip(table["task_index"].to_pylist(), map(str, table[texts[0]].to_pylist()), strict=True))


def _tasks_v2(root: Path) -> dict[int, str]:
    path = root / "meta/tasks.jsonl"
    if not path.exists():
        return {}
    return {int(row["task_index"]): str(row["task"]) for row in _json_lines(path, ("task_index", "task"))}


def _json_lines(path: Path, needed: Sequence[str]) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            absent = [key for key in needed if key not in row]
        except (ValueError, TypeError) as error:
            raise DatasetError(f"{path}:{number}: not a line of JSON ({error}); restore it") from error
        if absent:
            raise DatasetError(f"{path}:{number}: expected the keys {list(needed)}, {absent} are missing")
        yield row


def _episodes_v2(layout: DatasetLayout, info: Mapping[str, Any]) -> Iterator[EpisodeEntry]:
    per_chunk = int(info.get("chunks_size") or _CHUNK_SIZE)
    for row in _json_lines(layout.root / "meta/episodes.jsonl", ("episode_index", "length")):
        index = int(row.pop("episode_index"))
        place: dict[str, object] = {"episode_chunk": index // per_chunk, "episode_index": index}
        yield EpisodeEntry(
            index=index,
            length=int(row.pop("length")),
            tasks=tuple(map(str, row.pop("tasks", ()))),
            data=_fill(layout.root, info, "data_path", place),
            videos={
                key: VideoSpan(_fill(layout.root, info, "video_path", {**place, "video_key": key}))
                for key in layout.video_keys()
            },
            remarks=row,
        )


def _episodes_v3(layout: DatasetLayout, info: Mapping[str, Any]) -> Iterator[EpisodeEntry]:
    root = layout.root
    files = sorted((root / EPISODES).glob("*/*.parquet"))
    if not files:
        raise DatasetError(
            f"{root / EPISODES}: no episode table, as after a recording that was killed; "
            "repair=true rebuilds it from the rows where they are whole"
        )
    for path in files:
        for row in read_parquet(path).to_pylist():
            try:
                yield _episode_v3(layout, info, row)
            except KeyError as error:
                raise DatasetError(f"{path}: the column {error} is missing; restore the file") from error


def _episode_v3(layout: DatasetLayout, info: Mapping[str, Any], row: dict[str, Any]) -> EpisodeEntry:
    place = {"chunk_index": row["data/chunk_index"], "file_index": row["data/file_index"]}
    videos = {}
    for key in layout.video_keys():
        at = {part: row[f"videos/{key}/{part}"] for part in ("chunk_index", "file_index", "from_timestamp")}
        path = _fill(layout.root, info, "video_path", {**at, "video_key": key})
        videos[key] = VideoSpan(path, float(at["from_timestamp"]))
    known = ("episode_index", "length", "tasks", "dataset_from_index", "dataset_to_index")
    return EpisodeEntry(
        index=int(row["episode_index"]),
        length=int(row["length"]),
        tasks=tuple(map(str, row.get("tasks") or ())),
        data=_fill(layout.root, info, "data_path", place),
        videos=videos,
        remarks={
            key: value
            for key, value in row.items()
            if key not in known and not key.startswith(("data/", "videos/", "stats/", "meta/"))
        },
    )


def _fill(root: Path, info: Mapping[str, Any], template: str, place: Mapping[str, object]) -> Path:
    try:
        relative = Path(str(info[template]).format(**place))
    except (KeyError, ValueError, IndexError) as error:
        raise DatasetError(
            f"{root / INFO}: {template}={info.get(template)!r} cannot be filled in ({error!r})"
        ) from error
    if relative.is_absolute() or ".." in relative.parts:
        raise DatasetError(f"{root / INFO}: {template} leads out of the dataset: {relative}")
    return root / relative
