"""Small LeRobot datasets whose every value follows from (episode, frame), and ways to change them."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from PIL import Image as PilImage
from scipy.spatial.transform import Rotation

from rl.replay.lerobot.encode import Encoding, VideoCodec, encode
from rl.replay.lerobot.layout import Feature
from rl.replay.lerobot.mapping import (
    ActionConfig,
    ActionSource,
    GripperConfig,
    MappingConfig,
    PoseConfig,
    RotationKind,
    StateConfig,
)
from rl.replay.lerobot.stats import histogram
from rl.replay.lerobot.writing import DatasetWriter

FPS = 10
LENGTHS = (6, 8, 5)
VIEWS = {"observation.images.front": (32, 48), "observation.images.wrist": (32, 32)}
STATE_NAMES = ("x", "y", "z", "rx", "ry", "rz", "gripper")
FEATURES = {
    "observation.state": Feature("float32", (7,), STATE_NAMES),
    "action": Feature("float32", (7,)),
    "next.reward": Feature("float32", (1,)),
    "next.done": Feature("bool", (1,)),
    "complementary_info.is_intervention": Feature("bool", (1,)),
    "complementary_info.discrete_penalty": Feature("float32", (1,)),
    "motor_current": Feature("float64", (2,), ("left", "right")),
    "operator": Feature("string", (1,)),
}
POSE = PoseConfig(position=["x", "y", "z"], rotation=["rx", "ry", "rz"], kind=RotationKind.ROTVEC)
DELTA = PoseConfig(position=["0", "1", "2"], rotation=["3", "4", "5"], kind=RotationKind.ROTVEC)
MAPPING = MappingConfig(
    task="block",
    views={"front": "observation.images.front", "wrist": "observation.images.wrist"},
    height=32,
    width=32,
    state=StateConfig(pose=POSE, gripper=GripperConfig("gripper", closed=1.0, open=0.0)),
    action=ActionConfig(pose=DELTA, gripper=GripperConfig("6", closed=1.0, open=0.0)),
)


def image(episode: int, frame: int, size: tuple[int, int]) -> NDArray[np.uint8]:
    """One grey level per frame, which survives any codec: (H, W, 3)."""
    return np.full((*size, 3), grey(episode, frame), np.uint8)


def grey(episode: int, frame: int) -> int:
    return 20 + 70 * episode + 8 * frame


def rotation(episode: int, frame: int) -> Rotation:
    """Of a tool that points down: near a half turn about x, on both sides of it."""
    return Rotation.from_euler("z", 0.1 * frame - 0.2) * Rotation.from_euler(
        "x", np.pi + 0.02 * (frame - 2.5) + 0.01 * episode
    )


def states(episode: int, length: int) -> NDArray[np.float64]:
    """(N, 7) position [m], rotation vector, gripper from 0, open, to 1, closed."""
    frames = np.arange(length)
    position = np.stack(
        [0.4 + 0.01 * frames, 0.1 * episode + 0.002 * frames**2, 0.3 - 0.005 * frames], axis=1
    )
    rotvec = np.stack([rotation(episode, frame).as_rotvec() for frame in frames])
    return np.concatenate([position, rotvec, (frames >= length // 2)[:, None]], axis=1)


def deltas(state: NDArray[np.float64]) -> NDArray[np.float64]:
    """(N, 7) achieved deltas in the base frame and the next gripper value; zeros in the last row."""
    turn = Rotation.from_rotvec(state[1:, 3:6]) * Rotation.from_rotvec(state[:-1, 3:6]).inv()
    steps = np.concatenate([np.diff(state[:, :3], axis=0), turn.as_rotvec(), state[1:, 6:]], axis=1)
    return np.concatenate([steps, np.zeros((1, 7))])


def columns(episode: int, length: int) -> dict[str, Any]:
    """The rows of an episode; every second one succeeds."""
    state, frames = states(episode, length), np.arange(length)
    last = frames == length - 1
    return {
        "observation.state": state,
        "action": deltas(state),
        "next.reward": (last & (episode % 2 == 0)).astype(np.float32),
        "next.done": last,
        "complementary_info.is_intervention": frames == 1,
        "complementary_info.discrete_penalty": -0.02 * (frames == 2),
        "motor_current": np.stack([frames / 3.0, -frames / 7.0], axis=1),
        "operator": pa.chunked_array([["Ada"] * length]),
    }


@dataclass
class Recipe:
    """How a dataset is written; `change` may replace columns of an episode, None leaves one out."""

    lengths: Sequence[int] = LENGTHS
    codec: VideoCodec = VideoCodec.H264
    features: Mapping[str, Feature] = field(default_factory=lambda: dict(FEATURES))
    views: Mapping[str, tuple[int, int]] = field(default_factory=lambda: dict(VIEWS))
    change: Callable[[int, dict[str, Any]], None] = lambda episode, rows: None


def write_dataset(root: Path, recipe: Recipe | None = None) -> Path:
    """A v3.0 dataset, one file per episode."""
    recipe = recipe or Recipe()
    root.mkdir(parents=True)
    writer = DatasetWriter(root, FPS, recipe.features, list(recipe.views))
    for episode, length in enumerate(recipe.lengths):
        rows = columns(episode, length)
        recipe.change(episode, rows)
        histograms = {}
        for key, size in recipe.views.items():
            frames = np.stack([image(episode, frame, size) for frame in range(length)])
            encode(writer.video_path(key), frames, FPS, Encoding(recipe.codec))
            histograms[key] = [histogram(frame) for frame in frames]
        writer.add(
            {name: rows[name] for name in recipe.features},
            histograms,
            f"task {min(episode, 1)}",
            {"collector": f"rig {episode}"},
        )
    writer.finish()
    return root


def edit_info(root: Path, change: Callable[[dict[str, Any]], None]) -> None:
    path = root / "meta/info.json"
    info = json.loads(path.read_text())
    change(info)
    path.write_text(json.dumps(info))


def edit_rows(root: Path, episode: int, change: Callable[[pa.Table], pa.Table]) -> None:
    path = root / f"data/chunk-000/file-{episode:03d}.parquet"
    pq.write_table(change(pq.read_table(path)), path)


def edit_table(root: Path, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> None:
    """Change the rows of the episode table."""
    path = root / "meta/episodes/chunk-000/file-000.parquet"
    pq.write_table(pa.Table.from_pylist(change(pq.read_table(path).to_pylist())), path)


def set_values(name: str, at: int, value: Any) -> Callable[[pa.Table], pa.Table]:
    """An edit of rows that sets the column `name` in row `at`."""

    def change(table: pa.Table) -> pa.Table:
        values = table[name].to_pylist()
        values[at] = value
        return table.set_column(
            table.column_names.index(name), name, pa.array(values, table.schema.field(name).type)
        )

    return change


def merge_files(root: Path, *, key_frames: bool = True) -> None:
    """All episodes in one data file and one video per view, as LeRobot writes them.

    key_frames: False makes only the first frame of the video one.
    """
    files = sorted((root / "data/chunk-000").glob("*.parquet"))
    tables = [pq.read_table(path) for path in files]
    lengths = [table.num_rows for table in tables]
    for path in files:
        path.unlink()
    pq.write_table(pa.concat_tables(tables), files[0])
    starts = np.concatenate([[0], np.cumsum(lengths)])[:-1] / FPS
    for key, size in VIEWS.items():
        folder = root / "videos" / key / "chunk-000"
        shutil.rmtree(folder)
        folder.mkdir()
        frames = [image(episode, frame, size) for episode, n in enumerate(lengths) for frame in range(n)]
        if key_frames:
            encode(folder / "file-000.mp4", np.stack(frames), FPS, Encoding())
        else:
            encode_one_group(folder / "file-000.mp4", frames)

    def change(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for row, start, length in zip(rows, starts.tolist(), lengths, strict=True):
            row["data/file_index"] = 0
            for key in VIEWS:
                row[f"videos/{key}/file_index"] = 0
                row[f"videos/{key}/from_timestamp"] = start
                row[f"videos/{key}/to_timestamp"] = start + length / FPS
        return rows

    edit_table(root, change)


def encode_one_group(path: Path, frames: Sequence[NDArray[np.uint8]]) -> None:
    """A video of which only the first frame can be decoded without the others."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream(
            "libx264", rate=FPS, options={"g": "250", "sc_threshold": "0", "bf": "2"}
        )
        stream.height, stream.width, stream.pix_fmt = *frames[0].shape[:2], "yuv420p"
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode())


def as_v21(root: Path, out: Path) -> Path:
    """The same dataset in the layout of v2.1."""
    (out / "meta").mkdir(parents=True)
    rows = pq.read_table(root / "meta/episodes/chunk-000/file-000.parquet").to_pylist()
    for row in rows:
        index = row["episode_index"]
        target = out / f"data/chunk-000/episode_{index:06d}.parquet"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / f"data/chunk-000/file-{index:03d}.parquet", target)
        for key in VIEWS:
            video = out / f"videos/chunk-000/{key}/episode_{index:06d}.mp4"
            video.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(root / f"videos/{key}/chunk-000/file-{index:03d}.mp4", video)
    info = json.loads((root / "meta/info.json").read_text())
    info |= {
        "codebase_version": "v2.1",
        "data_path": "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet",
        "video_path": "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4",
    }
    (out / "meta/info.json").write_text(json.dumps(info))
    episodes = [{name: row[name] for name in ("episode_index", "tasks", "length")} for row in rows]
    tasks = [{"task_index": 0, "task": "task 0"}, {"task_index": 1, "task": "task 1"}]
    for name, lines in (("episodes", episodes), ("tasks", tasks)):
        (out / f"meta/{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return out


def derived() -> ActionConfig:
    return ActionConfig(source=ActionSource.DERIVED)


def as_json(feature: Feature) -> dict[str, Any]:
    return {"dtype": feature.dtype, "shape": list(feature.shape), "names": list(feature.names)}


def store_images(root: Path, name: str, kind: str, size: tuple[int, int]) -> None:
    """Put the pictures into the rows: as PNG `bytes`, as `uint8`, as `float` 0..255, as floats 0..1 (`unit`)."""

    def cell(episode: int, frame: int) -> Any:
        pixels = image(episode, frame, size)
        if kind == "bytes":
            file = io.BytesIO()
            PilImage.fromarray(pixels).save(file, "PNG")
            return {"bytes": file.getvalue(), "path": None}
        return (
            pixels / 255.0 if kind == "unit" else pixels.astype(float) if kind == "float" else pixels
        ).tolist()

    numbers = pa.list_(pa.list_(pa.list_(pa.uint8() if kind == "uint8" else pa.float32())))
    types = pa.struct({"bytes": pa.binary(), "path": pa.string()}) if kind == "bytes" else numbers
    for episode in range(len(LENGTHS)):
        cells = [cell(episode, frame) for frame in range(LENGTHS[episode])]
        edit_rows(root, episode, lambda table, cells=cells: table.append_column(name, pa.array(cells, types)))
