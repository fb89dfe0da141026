"""Export: what goes out comes back, bit for bit but for re-encoded pixels; a dataset appears whole or not at all."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import lerobot_data as data
import numpy as np
import pyarrow.parquet as pq
import pytest
import replay_data

from rl.cli import main
from rl.replay.journal import EndReason, EpisodeOutcome
from rl.replay.lerobot.decode import video_frames
from rl.replay.lerobot.encode import Encoding, VideoCodec
from rl.replay.lerobot.errors import DatasetError
from rl.replay.lerobot.exporter import export_dataset
from rl.replay.lerobot.importer import import_dataset
from rl.replay.lerobot.layout import VideoSpan, read_layout
from rl.replay.lerobot.mapping import MappingConfig
from rl.replay.lerobot.stats import histogram, image_stats, vector_stats
from rl.replay.reader import StoreReader
from rl.replay.schema import StoreSchema
from rl.replay.writer import StoreWriter
from robot.types import Label, Provenance, Source

LOSSLESS = Encoding(VideoCodec.LOSSLESS)


def schema(**changes: object) -> StoreSchema:
    return replay_data.schema(**{"metadata": {"control_hz": 10.0, "frame": "base"}, **changes})


def write_store(path: Path, *, synthetic: bool = False) -> Path:
    """A store with every kind of step and end that there is."""
    rng = np.random.default_rng(0)
    ends = [
        EpisodeOutcome(EndReason.SUCCESS),
        EpisodeOutcome(EndReason.FAULT, "joint 3 too fast"),
        EpisodeOutcome(EndReason.DISCARDED),
        EpisodeOutcome(EndReason.TIMEOUT),
    ]
    with StoreWriter(path, schema()) as writer:
        for number, end in enumerate(ends):
            writer.begin_episode(replay_data.observation(number, 0))
            steps = 1 if number == 1 else 6
            for t in range(steps):
                last, success = t == steps - 1, number == 0
                step = replay_data.transition(
                    number, t, terminated=last and success, truncated=last and not success, intervened=t == 2
                )
                provenance = Provenance(3, 2**60 + t, 1, q=0.25, success_prob=float(rng.random()))
                writer.add(
                    replace(
                        step,
                        reward=float(np.float32(rng.normal())),
                        gripper_changed=t % 3 == 0,
                        label=Label.SUCCESS if success else Label.UNKNOWN,
                        source=Source.SYNTHETIC if synthetic and t == 1 else step.source,
                        provenance=provenance if synthetic and t == 1 else None,
                    )
                )
            writer.end_episode(end)
    return path


def check_equal(first: StoreReader, second: StoreReader, pairs: dict[int, int], *, images: bool) -> None:
    """Episodes `pairs` of two stores are the same to the last bit."""
    assert first.schema.to_json() == second.schema.to_json()
    for mine, theirs in pairs.items():
        a, b = first.episodes()[mine], second.episodes()[theirs]
        assert replace(a, episode=0, first_row=0) == replace(b, episode=0, first_row=0)
        ours = first.records(np.arange(a.first_row, a.end_row))
        other = second.records(np.arange(b.first_row, b.end_row))
        for half in ("observation", "transition"):
            for name in ours[half].dtype.names or ():
                if name not in ("episode", "env_step"):  # counted anew where an episode was left out
                    assert ours[half][name].tobytes() == other[half][name].tobytes(), name
        for view in first.schema.views if images else ():
            np.testing.assert_array_equal(
                first.frames(view, np.arange(a.first_row, a.end_row)),
                second.frames(view, np.arange(b.first_row, b.end_row)),
            )


@pytest.mark.parametrize("synthetic", [False, True])
def test_a_store_comes_back_bit_for_bit(synthetic: bool, tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", synthetic=synthetic)
    report = export_dataset(store, tmp_path / "set", LOSSLESS)
    assert report.skipped == {2: "discarded"} and report.episodes == 3
    import_dataset(tmp_path / "set", tmp_path / "back", MappingConfig())
    check_equal(StoreReader(store), StoreReader(tmp_path / "back"), {0: 0, 1: 1, 3: 2}, images=True)


def test_an_imported_store_comes_back_with_all_its_columns(tmp_path: Path) -> None:
    data.write_dataset(tmp_path / "source")
    import_dataset(tmp_path / "source", tmp_path / "store", data.MAPPING)
    export_dataset(tmp_path / "store", tmp_path / "set", LOSSLESS)
    report = import_dataset(tmp_path / "set", tmp_path / "back", MappingConfig())
    every = {number: number for number in range(3)}
    check_equal(StoreReader(tmp_path / "store"), StoreReader(tmp_path / "back"), every, images=True)
    before, after = (pq.read_table(tmp_path / name / "extra.parquet") for name in ("store", "back"))
    assert before.equals(after)
    assert [e.tasks for e in report.episodes] == [("task 0",), ("task 1",), ("task 1",)]
    assert [e.remarks for e in report.episodes] == [{"collector": f"rig {i}"} for i in range(3)]


def test_videos_are_carried_byte_for_byte(tmp_path: Path) -> None:
    source = data.write_dataset(tmp_path / "source")
    import_dataset(source, tmp_path / "store", data.MAPPING)
    export_dataset(tmp_path / "store", tmp_path / "set", Encoding(), videos_from=source)
    for view in ("front", "wrist"):
        for episode in range(3):
            name = f"videos/observation.images.{view}/chunk-000/file-{episode:03d}.mp4"
            assert (source / name).read_bytes() == (tmp_path / "set" / name).read_bytes()
    import_dataset(tmp_path / "set", tmp_path / "back", MappingConfig())
    every = {number: number for number in range(3)}
    check_equal(StoreReader(tmp_path / "store"), StoreReader(tmp_path / "back"), every, images=True)


def test_episodes_of_a_shared_video_are_cut_out_without_re_encoding(tmp_path: Path) -> None:
    source = data.write_dataset(tmp_path / "source")
    data.merge_files(source)
    import_dataset(source, tmp_path / "store", data.MAPPING)
    export_dataset(tmp_path / "store", tmp_path / "set", Encoding(), videos_from=source)
    import_dataset(tmp_path / "set", tmp_path / "back", MappingConfig())
    every = {number: number for number in range(3)}
    check_equal(StoreReader(tmp_path / "store"), StoreReader(tmp_path / "back"), every, images=True)


def test_an_episode_that_begins_between_key_frames_cannot_be_carried(tmp_path: Path) -> None:
    source = data.write_dataset(tmp_path / "source", data.Recipe(lengths=(5, 8)))
    data.merge_files(source, key_frames=False)
    import_dataset(source, tmp_path / "store", data.MAPPING)
    with pytest.raises(DatasetError, match=r"at 0.500 s is no key frame.*export without videos_from"):
        export_dataset(tmp_path / "store", tmp_path / "set", Encoding(), videos_from=source)
    assert not [path for path in tmp_path.iterdir() if "set" in path.name]


@pytest.mark.parametrize("codec", [VideoCodec.H264, VideoCodec.AV1])
def test_re_encoded_pixels_stay_near(codec: VideoCodec, tmp_path: Path) -> None:
    views = dict.fromkeys(data.VIEWS, (64, 64))
    data.write_dataset(tmp_path / "source", data.Recipe(views=views))
    mapping = replace(data.MAPPING, height=64, width=64)
    import_dataset(tmp_path / "source", tmp_path / "store", mapping)
    export_dataset(tmp_path / "store", tmp_path / "set", Encoding(codec))
    import_dataset(tmp_path / "set", tmp_path / "back", MappingConfig())
    before, after = StoreReader(tmp_path / "store"), StoreReader(tmp_path / "back")
    check_equal(before, after, {number: number for number in range(3)}, images=False)
    rows = np.arange(before.num_rows)
    difference = before.frames("front", rows).astype(int) - after.frames("front", rows)
    assert np.abs(difference).max() <= 6


def test_the_statistics_are_those_of_the_data(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store")
    export_dataset(store, tmp_path / "set", LOSSLESS)
    stats = json.loads((tmp_path / "set/meta/stats.json").read_text())
    layout = read_layout(tmp_path / "set")
    frames = np.concatenate(
        [
            np.stack(list(video_frames(e.videos["observation.images.front"], np.arange(e.length) / 10, 1e-4)))
            for e in layout.episodes
        ]
    )
    values = frames.reshape(-1, 3) / 255.0
    given = stats["observation.images.front"]
    for name, expected in (("min", values.min(0)), ("max", values.max(0)), ("mean", values.mean(0))):
        np.testing.assert_allclose(np.ravel(given[name]), expected, atol=1e-9)
    np.testing.assert_allclose(np.ravel(given["std"]), values.std(0), atol=1e-9)
    expected = np.quantile(values, 0.9, axis=0, method="inverted_cdf")
    np.testing.assert_allclose(np.ravel(given["q90"]), expected, atol=1e-9)
    assert np.shape(given["mean"]) == (3, 1, 1) and given["count"] == [len(frames)]
    assert stats["action"]["count"] == [len(frames)]


def test_statistics_by_hand() -> None:
    image = np.zeros((2, 2, 3), np.uint8)
    image[0, 0] = (255, 51, 0)
    stats = image_stats([histogram(image), histogram(image)])
    assert np.ravel(stats["max"]).tolist() == [1.0, 0.2, 0.0] and np.ravel(stats["q50"]).tolist() == [0.0] * 3
    np.testing.assert_allclose(np.ravel(stats["mean"]), [0.25, 0.05, 0.0])
    assert vector_stats(np.array([1.0, np.nan])) is None


def test_an_interrupted_export_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = write_store(tmp_path / "store")

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("rl.replay.lerobot.writing.DatasetWriter.finish", fail)
    with pytest.raises(KeyboardInterrupt):
        export_dataset(store, tmp_path / "set", LOSSLESS)
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_info_is_the_last_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, seen = write_store(tmp_path / "store"), []
    text = Path.write_text

    def spy(self: Path, *args: object, **kwargs: object) -> int:
        if "meta" in self.parts:
            seen.append(self.name)
        return text(self, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(Path, "write_text", spy)
    export_dataset(store, tmp_path / "set", LOSSLESS)
    assert seen[-1] == "info.json"


def test_odd_sizes_need_the_lossless_codec(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store")  # 3 x 4 and 2 x 5 pixels
    with pytest.raises(DatasetError, match=r"needs even sizes; use codec=lossless"):
        export_dataset(store, tmp_path / "set", Encoding())


@pytest.mark.parametrize("rate", [None, 12.5])
def test_a_rate_that_lerobot_cannot_count_must_be_chosen(rate: float | None, tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "store", schema(metadata={"control_hz": rate})) as writer:
        writer.begin_episode(replay_data.observation(0, 0))
        writer.add(replay_data.transition(0, 0, truncated=True))
        writer.end_episode(EpisodeOutcome(EndReason.TIMEOUT))
    with pytest.raises(DatasetError, match="give fps="):
        export_dataset(tmp_path / "store", tmp_path / "set", LOSSLESS)
    export_dataset(tmp_path / "store", tmp_path / "set", LOSSLESS, fps=12)
    import_dataset(tmp_path / "set", tmp_path / "back", MappingConfig())
    check_equal(StoreReader(tmp_path / "store"), StoreReader(tmp_path / "back"), {0: 0}, images=True)


def test_a_store_from_elsewhere_has_no_videos_to_carry(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store")
    with pytest.raises(DatasetError, match="not an imported store"):
        export_dataset(store, tmp_path / "set", Encoding(), videos_from=tmp_path)


def test_a_torn_self_description_is_an_error(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store")
    export_dataset(store, tmp_path / "set", LOSSLESS)
    (tmp_path / "set/meta/groundhog/content.json").write_text("{")
    with pytest.raises(DatasetError, match=r"content.json: cannot be read"):
        import_dataset(tmp_path / "set", tmp_path / "back", MappingConfig())


def test_frames_are_found_by_time_not_by_count(tmp_path: Path) -> None:
    data.write_dataset(tmp_path / "source", data.Recipe(lengths=(9,)))
    span = VideoSpan(tmp_path / "source/videos/observation.images.wrist/chunk-000/file-000.mp4")
    some = [frame.mean() for frame in video_frames(span, np.array([0.2, 0.3, 0.7]), 1e-4)]
    np.testing.assert_allclose(some, [data.grey(0, 2), data.grey(0, 3), data.grey(0, 7)], atol=2)
    late = [frame.mean() for frame in video_frames(replace(span, start=0.5), np.array([0.0, 0.1]), 1e-4)]
    np.testing.assert_allclose(late, [data.grey(0, 5), data.grey(0, 6)], atol=2)


def test_the_commands_go_round(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = write_store(tmp_path / "store")
    words = [f"path={store}", f"out={tmp_path / 'set'}", "codec=lossless"]
    assert main(["export-dataset", *words]) == 0
    assert "3 episodes, 16 frames" in capsys.readouterr().out
    assert main(["export-dataset", *words]) == 2
    assert "exists already" in capsys.readouterr().err
    assert main(["import-dataset", f"path={tmp_path / 'set'}", f"out={tmp_path / 'back'}"]) == 0
    assert StoreReader(tmp_path / "back").num_episodes == 3
