"""Damaged and odd datasets: a clear error, an episode left out by name, or a repair that is told; no half stores."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import lerobot_data as data
import numpy as np
import pyarrow as pa
import pytest

from rl.replay.lerobot.errors import DatasetError
from rl.replay.lerobot.importer import import_dataset
from rl.replay.lerobot.layout import Feature
from rl.replay.lerobot.mapping import MappingConfig, PoseConfig, RotationKind, StateConfig
from rl.replay.reader import StoreReader
from rl.replay.writer import StoreWriter

ROWS = "data/chunk-000/file-001.parquet"
VIDEO = "videos/observation.images.wrist/chunk-000/file-001.mp4"
INFO = "meta/info.json"
TABLE = "meta/episodes/chunk-000/file-000.parquet"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return data.write_dataset(tmp_path_factory.mktemp("lerobot") / "set")


@pytest.fixture
def dataset(whole: Path, tmp_path: Path) -> Path:
    return shutil.copytree(whole, tmp_path / "set")


def nothing_left(tmp_path: Path) -> bool:
    return sorted(path.name for path in tmp_path.iterdir()) == ["set"]


def remove(name: str) -> Callable[[Path], None]:
    return lambda root: (root / name).unlink()


def write(name: str, content: bytes) -> Callable[[Path], None]:
    return lambda root: (root / name).write_bytes(content) and None


def cut(name: str, keep: float) -> Callable[[Path], None]:
    def damage(root: Path) -> None:
        content = (root / name).read_bytes()
        (root / name).write_bytes(content[: int(keep * len(content))])

    return damage


def video(frames: int, fps: int) -> Callable[[Path], None]:
    images = np.stack([data.image(1, frame, (32, 32)) for frame in range(frames)])
    return lambda root: data.encode(root / VIDEO, images, fps, data.Encoding())


def info(**changes: object) -> Callable[[Path], None]:
    return lambda root: data.edit_info(root, lambda body: body.update(changes))


def feature(name: str, **changes: object) -> Callable[[Path], None]:
    return lambda root: data.edit_info(root, lambda body: body["features"][name].update(changes))


def rows(change: Callable[[pa.Table], pa.Table]) -> Callable[[Path], None]:
    return lambda root: data.edit_rows(root, 1, change)


def value(name: str, at: int, new: Any) -> Callable[[Path], None]:
    return rows(data.set_values(name, at, new))


LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
FATAL = {
    "no info.json": (remove(INFO), "info.json: the file is missing"),
    "torn info.json": (cut(INFO, 0.5), "not the metadata of a dataset"),
    "another version": (info(codebase_version="v1.6"), "expected codebase_version v2.x or v3.x, got v1.6"),
    "no frame rate": (info(fps=0), "fps: expected a number > 0"),
    "a path that leads out": (info(data_path="../{chunk_index}/{file_index}"), "leads out of the dataset"),
    "no episode table": (remove(TABLE), "repair=true rebuilds it"),
    "a torn episode table": (cut(TABLE, 0.9), "a parquet file without its footer"),
    "a doubled episode": (
        lambda root: data.edit_table(root, lambda table: [*table, table[1]]),
        "lists episode 1 more than once",
    ),
    "another frame rate": (info(fps=25), r"0.1 s apart \(10 Hz\), info.json says 25 fps"),
    "frames of another size": (
        feature("observation.images.front", shape=[24, 48, 3]),
        r"info.json announces \(24, 48\) px, the frames are \(32, 48\)",
    ),
    "a feature of no shape": (feature("observation.images.front", shape=[32, 48]), "an image of shape"),
    "a depth map": (
        feature("observation.images.wrist", info={"video.is_depth_map": True}),
        "is a depth map, not RGB",
    ),
    "a view that is not there": (
        lambda root: data.edit_info(root, lambda body: body["features"].pop("observation.images.wrist")),
        "observation.images.wrist is no feature; images are",
    ),
    "entries of other names": (
        feature("observation.state", names=["a", "b", "c", "d", "e", "f", "g"]),
        r"observation.state has no entry 'x'; it has \['a', ",
    ),
}
LEFT_OUT = {
    "no rows": (remove(ROWS), "the file is missing"),
    "empty rows": (write(ROWS, b""), "the file is empty"),
    "rows that were not downloaded": (write(ROWS, LFS), "run `git lfs pull`"),
    "rows without a footer": (cut(ROWS, 0.9), "without its footer"),
    "no video": (remove(VIDEO), "the video is missing"),
    "a video that is none": (write(VIDEO, b"\0" * 999), "not a video"),
    "a video that was not downloaded": (write(VIDEO, LFS), "run `git lfs pull`"),
    "a video cut short": (cut(VIDEO, 0.6), "no video stream|not a video"),
    "a video of too few frames": (video(5, data.FPS), "it ends before 0.5000 s: 5 of 8 frames"),
    "a video at another rate": (video(8, 2 * data.FPS), "no frame at 0.4000 s|it ends before 0.4000 s"),
    "a video between the rows": (video(8, 7), "no frame at 0.1000 s, the nearest is at 0.1429 s"),
    "too few rows": (rows(lambda table: table.slice(0, 7)), "expected 8 rows of episode 1, got 7"),
    "a row that occurs twice": (value("frame_index", 3, 2), "frame_index 2 occurs more than once"),
    "a gap": (value("frame_index", 7, 9), "1 gaps in its rows, the first behind frame 6; repair=true"),
    "a pause": (value("timestamp", 7, 2.0), "1 gaps in its rows"),
    "time that stands still": (value("timestamp", 3, 0.2), "expected finite, rising seconds"),
    "NaN": (
        value("observation.state", 2, [0.0, float("nan")] + [0.0] * 5),
        "NaN or infinity in 1 rows, first in frame 2",
    ),
    "no number": (value("action", 2, None), "action: "),
    "a short vector": (
        rows(lambda table: table.set_column(0, "observation.state", pa.array([[0.0] * 6] * 8))),
        r"info.json announces \[7\], the rows hold \[6\]",
    ),
    "ragged vectors": (
        rows(lambda table: table.set_column(0, "observation.state", pa.array([[0.0] * 6, *[[0.0] * 7] * 7]))),
        "the same number of numbers in every row",
    ),
    "an end in the middle": (value("next.done", 3, True), "next.done is set in the middle"),
}


@pytest.mark.parametrize("name", FATAL)
def test_what_no_episode_survives_is_one_error_and_leaves_nothing(
    name: str, dataset: Path, tmp_path: Path
) -> None:
    damage, message = FATAL[name]
    damage(dataset)
    with pytest.raises(DatasetError, match=message):
        import_dataset(dataset, tmp_path / "store", data.MAPPING)
    assert nothing_left(tmp_path)


@pytest.mark.parametrize("name", LEFT_OUT)
def test_a_damaged_episode_is_left_out_by_name(name: str, dataset: Path, tmp_path: Path) -> None:
    damage, message = LEFT_OUT[name]
    damage(dataset)
    report = import_dataset(dataset, tmp_path / "store", data.MAPPING)
    (skipped,) = report.skipped
    assert skipped.source_episode == 1
    assert re.search(message, skipped.reason), skipped.reason
    reader = StoreReader(tmp_path / "store")
    assert reader.verify_all() == data.LENGTHS[0] + data.LENGTHS[2]
    assert [episode.source_episode for episode in report.episodes] == [0, 2]
    assert any("left out: episode 1" in line for line in report.describe())


def test_a_single_frame_is_no_episode(tmp_path: Path) -> None:
    data.write_dataset(tmp_path / "set", data.Recipe(lengths=(6, 1)))
    (skipped,) = import_dataset(tmp_path / "set", tmp_path / "store", data.MAPPING).skipped
    assert skipped.source_episode == 1 and "a single frame" in skipped.reason


def test_rows_out_of_order_are_sorted_and_it_is_told(dataset: Path, tmp_path: Path) -> None:
    data.edit_rows(dataset, 1, lambda table: table.take([0, 2, 1, 3, 4, 7, 6, 5]))
    report = import_dataset(dataset, tmp_path / "store", data.MAPPING)
    assert report.notes == ("episode 1: rows were out of order, sorted by frame_index",)
    episode = StoreReader(tmp_path / "store").episode(1)
    np.testing.assert_allclose(episode.proprio[:, :3], data.states(1, 8)[:, :3], atol=1e-6)


def test_a_gap_is_cut_on_demand(dataset: Path, tmp_path: Path) -> None:
    """The dataset keeps 8 rows of which row 4 is missing; its video has all frames."""

    def widen(table: pa.Table) -> pa.Table:
        for name in ("frame_index", "timestamp"):
            values = table[name].to_pylist()
            values[4:] = [entry + (1 if name == "frame_index" else 0.1) for entry in values[4:]]
            table = table.set_column(
                table.column_names.index(name), name, pa.array(values, table.schema.field(name).type)
            )
        return table.slice(0, 7)

    data.edit_rows(dataset, 1, widen)
    data.edit_table(
        dataset,
        lambda table: [{**row, "length": 7 if row["episode_index"] == 1 else row["length"]} for row in table],
    )
    report = import_dataset(dataset, tmp_path / "store", data.MAPPING, repair=True)
    assert "episode 1: cut into 2 at gaps in its rows" in report.notes
    parts = [(e.start, e.stop) for e in report.episodes if e.source_episode == 1]
    assert parts == [(0, 4), (4, 7)]
    reader = StoreReader(tmp_path / "store")
    first, second = reader.episode(1), reader.episode(2)
    assert first.truncated[-1] and not first.terminated.any()
    grey = [data.grey(1, frame) for frame in (5, 6, 7)]  # by their times, not by counting
    np.testing.assert_allclose(second.images["wrist"].mean(axis=(1, 2, 3)), grey, atol=2)


def test_a_lost_episode_table_is_rebuilt_on_demand(dataset: Path, tmp_path: Path) -> None:
    import_dataset(dataset, tmp_path / "before", data.MAPPING)
    data.merge_files(dataset)
    (dataset / TABLE).unlink()
    report = import_dataset(dataset, tmp_path / "after", data.MAPPING, repair=True)
    assert any("the episode table was rebuilt" in note for note in report.notes)
    before, after = StoreReader(tmp_path / "before"), StoreReader(tmp_path / "after")
    for number in range(3):
        np.testing.assert_array_equal(before.episode(number).action, after.episode(number).action)
        np.testing.assert_allclose(
            before.episode(number).images["front"], after.episode(number).images["front"], atol=3
        )


def test_frames_that_do_not_add_up_are_not_guessed(dataset: Path, tmp_path: Path) -> None:
    """One video has a frame more than its episode: whatever lies behind could be shifted."""
    images = np.stack([data.image(1, frame, (32, 32)) for frame in range(9)])
    data.encode(dataset / VIDEO, images, data.FPS, data.Encoding())
    (dataset / TABLE).unlink()
    report = import_dataset(dataset, tmp_path / "store", data.MAPPING, repair=True)
    assert [skipped.source_episode for skipped in report.skipped] == [1, 2]
    assert "could not be rebuilt" in report.skipped[0].reason


def test_an_error_in_the_middle_leaves_nothing(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = StoreWriter.end_episode

    def fail(self: StoreWriter, outcome: Any) -> Any:
        if self.num_episodes == 1:
            raise OSError(28, "No space left on device")
        return end(self, outcome)

    monkeypatch.setattr(StoreWriter, "end_episode", fail)
    with pytest.raises(OSError, match="No space left"):
        import_dataset(dataset, tmp_path / "store", data.MAPPING)
    assert nothing_left(tmp_path)


@pytest.mark.parametrize("frame", [0.4, 300.0, -1.0, float("nan")])
def test_numbers_that_are_no_picture_are_refused(frame: float, tmp_path: Path) -> None:
    root = data.write_dataset(tmp_path / "set", data.Recipe(views={}))
    image = Feature("image", (2, 2, 3), ("height", "width", "channels"))
    data.edit_info(
        root, lambda body: body["features"].update({"observation.images.front": data.as_json(image)})
    )
    for episode, length in enumerate(data.LENGTHS):
        pixels = np.full((length, 2, 2, 3), 7.0)
        if episode == 1:
            pixels[3] = frame
            pixels[3, 0, 0] = 7.3
        cells = pa.array(pixels.tolist())
        data.edit_rows(
            root, episode, lambda table, cells=cells: table.append_column("observation.images.front", cells)
        )
    mapping = replace(data.MAPPING, views={"front": "observation.images.front"}, height=2, width=2)
    (skipped,) = import_dataset(root, tmp_path / "store", mapping).skipped
    assert skipped.source_episode == 1 and "expected 0..255" in skipped.reason


def test_a_quaternion_of_no_length_is_left_out(dataset: Path, tmp_path: Path) -> None:
    pose = PoseConfig(
        position=["x", "y", "z"], rotation=["rx", "ry", "rz", "gripper"], kind=RotationKind.QUAT_XYZW
    )
    mapping = replace(data.MAPPING, state=StateConfig(pose=pose))
    data.edit_rows(dataset, 1, data.set_values("observation.state", 2, [0.1] * 3 + [0.0] * 4))
    (skipped,) = import_dataset(dataset, tmp_path / "store", mapping).skipped
    assert skipped.source_episode == 1 and "no rotation quat_xyzw" in skipped.reason


def test_tasks_in_words_may_be_missing(dataset: Path, tmp_path: Path) -> None:
    (dataset / "meta/tasks.parquet").unlink()
    report = import_dataset(dataset, tmp_path / "store", data.MAPPING)
    assert [episode.tasks for episode in report.episodes] == [("task 0",), ("task 1",), ("task 1",)]


WRONG = [
    (lambda: PoseConfig(position=["x"]), "expected 3 entries or none"),
    (
        lambda: PoseConfig(position=list("xyz"), rotation=list("abc"), kind=RotationKind.QUAT_XYZW),
        "has 4 entries",
    ),
    (
        lambda: PoseConfig(position=list("xyz"), rotation=list("abc"), kind=RotationKind.EULER),
        "euler_order: needed",
    ),
    (
        lambda: PoseConfig(
            position=list("xyz"), rotation=list("abc"), kind=RotationKind.EULER, euler_order="xYz"
        ),
        "three of xyz or three of XYZ",
    ),
    (lambda: MappingConfig(views={"a": "b"}, boxes={"c": [0, 0, 1, 1]}), "c is no view"),
    (lambda: MappingConfig(views={"a": "b"}, boxes={"a": [0, 0, 1]}), "expected .top, left, height, width."),
    (lambda: replace(data.MAPPING.action, metres=0.1), "expected both or neither"),
    (lambda: replace(data.derived(), joints=["0"]), "takes all from the state"),
]


@pytest.mark.parametrize(("make", "message"), WRONG)
def test_a_mapping_that_cannot_be_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
