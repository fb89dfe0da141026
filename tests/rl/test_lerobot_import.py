"""Import: every layout and codec gives the same store; all that is in the dataset is in the store or beside it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import lerobot_data as data
import numpy as np
import pyarrow.parquet as pq
import pytest

from rl.cli import main
from rl.replay.journal import EndReason
from rl.replay.lerobot.encode import VideoCodec
from rl.replay.lerobot.errors import DatasetError
from rl.replay.lerobot.importer import import_dataset
from rl.replay.lerobot.layout import Feature, read_layout
from rl.replay.lerobot.mapping import Crop, MappingConfig, View
from rl.replay.lerobot.report import ImportReport
from rl.replay.lerobot.resize import fit_image
from rl.replay.reader import StoreReader
from rl.replay.sampler import ClipSampler, PartConfig
from robot.types import Label, Source


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return data.write_dataset(tmp_path_factory.mktemp("lerobot") / "set")


def check_pictures(reader: StoreReader, tolerance: int) -> None:
    """Every image of every episode is the one of its frame."""
    for number, length in enumerate(data.LENGTHS):
        episode = reader.episode(number)
        for frames in episode.images.values():
            expected = [data.grey(number, frame) for frame in range(length)]
            np.testing.assert_allclose(frames.mean(axis=(1, 2, 3)), expected, atol=tolerance)


def test_a_dataset_becomes_a_store(dataset: Path, tmp_path: Path) -> None:
    report = import_dataset(dataset, tmp_path / "store", data.MAPPING)
    reader = StoreReader(tmp_path / "store")
    assert reader.verify_all() == sum(data.LENGTHS)
    assert [info.num_transitions for info in reader.episodes()] == [n - 1 for n in data.LENGTHS]
    check_pictures(reader, 2)
    scale = np.array(reader.schema.metadata["action_scale"])
    for number, length in enumerate(data.LENGTHS):
        episode, state = reader.episode(number), data.states(number, length)
        np.testing.assert_allclose(episode.proprio[:, :3], state[:, :3], atol=1e-6)
        np.testing.assert_allclose(episode.proprio[:, 6], 1.0 - state[:, 6])
        expected = data.deltas(state)[:-1]
        expected[:, 6] = 1.0 - 2.0 * expected[:, 6]
        np.testing.assert_allclose(episode.requested_action * scale, expected, atol=1e-6)
        np.testing.assert_array_equal(episode.action, np.clip(episode.requested_action, -1, 1))
        np.testing.assert_allclose(episode.timestamp, np.arange(length) / data.FPS, atol=1e-6)
        assert np.flatnonzero(episode.gripper_changed).tolist() == [length // 2 - 1]
        assert np.flatnonzero(episode.intervened).tolist() == [1]
        assert episode.source.tolist() == [
            Source.CORRECTION if t == 1 else Source.DEMO for t in range(length - 1)
        ]
        success = number % 2 == 0
        assert (bool(episode.terminated[-1]), bool(episode.truncated[-1])) == (success, not success)
        assert episode.label[0] == (Label.SUCCESS if success else Label.UNKNOWN)
        assert episode.reward.tolist() == [0.0] * (length - 2) + [float(success)]
    outcomes = [info.outcome.reason for info in reader.episodes()]
    assert outcomes == [EndReason.SUCCESS, EndReason.TIMEOUT, EndReason.SUCCESS]
    assert not report.skipped and report == ImportReport.load(tmp_path / "store")
    assert [e.tasks for e in report.episodes] == [("task 0",), ("task 1",), ("task 1",)]
    assert [e.remarks for e in report.episodes] == [{"collector": f"rig {i}"} for i in range(3)]


def test_the_tool_that_points_down_does_not_jump(dataset: Path, tmp_path: Path) -> None:
    import_dataset(dataset, tmp_path / "store", data.MAPPING)
    reader = StoreReader(tmp_path / "store")
    written = np.concatenate([data.states(i, n)[:, 3:6] for i, n in enumerate(data.LENGTHS)])
    assert np.abs(np.diff(written, axis=0)).max() > 3.0  # the dataset's own numbers do
    for number in range(3):
        assert np.abs(np.diff(reader.episode(number).proprio[:, 3:6], axis=0)).max() < 0.2


def test_clips_are_drawn_as_from_any_store(dataset: Path, tmp_path: Path) -> None:
    import_dataset(dataset, tmp_path / "store", data.MAPPING)
    sampler = ClipSampler([PartConfig(StoreReader(tmp_path / "store"))])
    clip = sampler.sample(5, length=4, rng=np.random.default_rng(0), history=1)
    assert clip.images["front"].shape == (5, 6, 32, 32, 3) and clip.action.shape == (5, 5, 7)


def test_what_no_column_of_the_store_holds_lies_beside_it(dataset: Path, tmp_path: Path) -> None:
    import_dataset(dataset, tmp_path / "store", data.MAPPING)
    extra = pq.read_table(tmp_path / "store/extra.parquet")
    assert extra.column_names == ["row", *data.FEATURES]
    assert extra["row"].to_pylist() == list(range(sum(data.LENGTHS)))
    assert set(extra["operator"].to_pylist()) == {"Ada"}
    first = data.columns(0, data.LENGTHS[0])
    for name in ("motor_current", "action"):
        written = np.array(extra[name].to_pylist())[: data.LENGTHS[0]]
        np.testing.assert_allclose(written, first[name], rtol=1e-6)


def test_every_layout_gives_the_same_rows(dataset: Path, tmp_path: Path) -> None:
    merged = data.write_dataset(tmp_path / "merged")
    data.merge_files(merged)
    layouts = {"plain": dataset, "merged": merged, "v21": data.as_v21(dataset, tmp_path / "v21")}
    records = {}
    for name, root in layouts.items():
        import_dataset(root, tmp_path / f"{name}_store", data.MAPPING)
        reader = StoreReader(tmp_path / f"{name}_store")
        check_pictures(reader, 2)
        records[name] = reader.records(np.arange(reader.num_rows))
    for name in ("merged", "v21"):
        for half in ("observation", "transition"):
            for column in records["plain"][half].dtype.names or ():
                given, plain = records[name][half][column], records["plain"][half][column]
                assert given.tobytes() == plain.tobytes(), column


@pytest.mark.parametrize("codec", VideoCodec)
def test_every_codec_is_decoded(codec: VideoCodec, tmp_path: Path) -> None:
    views = dict.fromkeys(data.VIEWS, (64, 64))  # AV1 knows no smaller pictures
    data.write_dataset(tmp_path / "set", data.Recipe(codec=codec, views=views))
    import_dataset(tmp_path / "set", tmp_path / "store", data.MAPPING)
    check_pictures(StoreReader(tmp_path / "store"), 0 if codec is VideoCodec.LOSSLESS else 3)


def test_a_missing_action_is_derived_and_marked(tmp_path: Path) -> None:
    features = {name: feature for name, feature in data.FEATURES.items() if name != "action"}
    data.write_dataset(tmp_path / "set", data.Recipe(features=features))
    with pytest.raises(DatasetError, match="the column action is missing"):
        import_dataset(tmp_path / "set", tmp_path / "store", data.MAPPING)
    derived = replace(data.MAPPING, action=data.derived())
    import_dataset(tmp_path / "set", tmp_path / "store", derived)
    reader = StoreReader(tmp_path / "store")
    assert reader.schema.metadata["action_source"] == "derived"
    scale = np.array(reader.schema.metadata["action_scale"])
    expected = data.deltas(data.states(1, data.LENGTHS[1]))[:-1]
    np.testing.assert_allclose(
        (reader.episode(1).requested_action * scale)[:, :6], expected[:, :6], atol=1e-6
    )


def test_without_rewards_the_outcome_is_unknown_unless_it_is_said(tmp_path: Path) -> None:
    features = {name: feature for name, feature in data.FEATURES.items() if not name.startswith("next.")}
    data.write_dataset(tmp_path / "set", data.Recipe(features=features))
    import_dataset(tmp_path / "set", tmp_path / "unknown", data.MAPPING)
    reader = StoreReader(tmp_path / "unknown")
    assert not any(info.success for info in reader.episodes())
    assert (reader.episode(0).label == Label.UNKNOWN).all()
    assert reader.episodes()[0].outcome.reason is EndReason.STOPPED
    import_dataset(tmp_path / "set", tmp_path / "said", replace(data.MAPPING, assume_success=True))
    reader = StoreReader(tmp_path / "said")
    assert all(info.success for info in reader.episodes()) and reader.schema.metadata["reward_assumed"]


@pytest.mark.parametrize("kind", ["bytes", "uint8", "float", "unit"])
def test_images_in_the_rows(kind: str, tmp_path: Path) -> None:
    size = (4, 6)
    shape = Feature("image", (*size, 3), ("height", "width", "channels"))
    root = data.write_dataset(tmp_path / "set", data.Recipe(views={}))
    data.store_images(root, "observation.images.front", kind, size)
    data.edit_info(
        root, lambda info: info["features"].update({"observation.images.front": data.as_json(shape)})
    )
    mapping = replace(data.MAPPING, views={"front": "observation.images.front"}, height=4, width=6)
    import_dataset(root, tmp_path / "store", mapping)
    check_pictures(StoreReader(tmp_path / "store"), 0)


def test_chosen_episodes_only(dataset: Path, tmp_path: Path) -> None:
    report = import_dataset(dataset, tmp_path / "store", data.MAPPING, episodes=[2, 0])
    assert [episode.source_episode for episode in report.episodes] == [0, 2]
    with pytest.raises(DatasetError, match=r"\[7\] are not in the dataset, which has 0 to 2"):
        import_dataset(dataset, tmp_path / "other", data.MAPPING, episodes=[7])


def test_nothing_is_overwritten(dataset: Path, tmp_path: Path) -> None:
    import_dataset(dataset, tmp_path / "store", data.MAPPING)
    with pytest.raises(DatasetError, match="exists already"):
        import_dataset(dataset, tmp_path / "store", data.MAPPING)


def test_crops_and_sizes() -> None:
    frame = np.zeros((20, 40, 3), np.uint8)
    frame[:, 10:30] = 200
    assert (fit_image(frame, View("f", 10, 10, Crop.CENTER)) == 200).all()
    assert fit_image(frame, View("f", 10, 10, Crop.NONE)).mean() == pytest.approx(100, abs=1)
    assert (fit_image(frame, View("f", 5, 5, box=(0, 12, 10, 10))) == 200).all()
    np.testing.assert_array_equal(fit_image(frame, View("f", 20, 40)), frame)
    with pytest.raises(DatasetError, match="leaves the frame of 20 x 40 px"):
        fit_image(frame, View("f", 5, 5, box=(15, 0, 10, 10)))


def test_the_command_imports_and_its_words_are_checked(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        f"path={dataset}",
        f"out={tmp_path / 'store'}",
        "mapping.views.front=observation.images.front",
        "mapping.state.pose.position=[x,y,z]",
        "mapping.action.source=derived",
    ]
    assert main(["import-dataset", *words]) == 0
    assert "3 episodes, 16 transitions at 10 Hz" in capsys.readouterr().out
    assert StoreReader(tmp_path / "store").schema.views == {"front": (128, 128)}
    assert main(["import-dataset", f"path={dataset}", f"out={tmp_path / 'b'}"]) == 2
    assert "choose a mapping" in capsys.readouterr().err


def test_the_preset_fits_the_dataset_it_is_named_after() -> None:
    from rl.config import load

    config = load("import-dataset", ["path=x", "out=y", "mapping=droid_lab"])
    assert isinstance(config.mapping, MappingConfig)
    assert list(config.mapping.views) == ["side", "side2", "wrist"]


def test_a_layout_is_read_without_touching_rows(dataset: Path) -> None:
    layout = read_layout(dataset)
    assert [entry.length for entry in layout.episodes] == list(data.LENGTHS)
    assert layout.tasks == {0: "task 0", 1: "task 1"} and layout.version == "v3.0"
    assert layout.features["observation.images.front"].image_size == (32, 48)
