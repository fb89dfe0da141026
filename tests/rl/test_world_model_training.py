"""`groundhog finetune-world-model` on small stores: it publishes, resumes exactly, and names what does not fit."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from replay_data import observation, schema, transition

from rl.finetune_world_model import main
from rl.replay.clip_mixer import ClipMixer
from rl.replay.errors import EmptyShareError
from rl.replay.fingerprint import fingerprint, fingerprints
from rl.replay.journal import EndReason, EpisodeOutcome
from rl.replay.reader import StoreReader
from rl.replay.sampler import ClipSampler, Holdout, PartConfig, Split
from rl.replay.writer import StoreWriter
from rl.world_models.data import ClipData, make_spec, real_stores
from rl.world_models.training import MARK
from robot.types import Observation
from worldmodel import checkpoint
from worldmodel.checkpoint import read
from worldmodel.interface import WorldModelError

STEPS = 8
SMALL = [
    "cpu_minutes=null",
    "horizon=4",
    "clips=6",
    "holdout.every=3",
    "model.context_frames=2",
    "model.max_horizon=6",
    "model.flow_warp.network.pixels=16",
    "model.flow_warp.network.stride=2",
    "model.flow_warp.network.channels=[16]",
    "model.flow_warp.single_batch=4",
    "model.flow_warp.unroll_batch=2",
    "model.flow_warp.unroll=1",
]


VIEWS = {"front": (12, 16), "wrist": (16, 14)}


def seen(episode: int, step: int) -> Observation:
    rng = np.random.default_rng([episode, step])
    images = {view: rng.integers(0, 256, (*size, 3), dtype=np.uint8) for view, size in VIEWS.items()}
    return dataclasses.replace(observation(episode, step), images=images)


def record(path: Path, episodes: int = 6, **changes: object) -> Path:
    with StoreWriter(path, schema(**({"views": VIEWS} | changes))) as writer:  # type: ignore[arg-type]
        for episode in range(episodes):
            before = seen(episode, 0)
            writer.begin_episode(before)
            for step in range(STEPS):
                after = seen(episode, step + 1)
                made = transition(episode, step, truncated=step == STEPS - 1)
                writer.add(dataclasses.replace(made, observation=before, next_observation=after))
                before = after
            writer.end_episode(EpisodeOutcome(EndReason.TIMEOUT))
    return path


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("data") / "real")


def train(store: Path, out: Path, *more: str) -> int:
    return main([f"data={store}", f"out={out}", *SMALL, *more])


def test_it_publishes_a_version_that_carries_its_scores(store: Path, tmp_path: Path) -> None:
    assert train(store, tmp_path / "wm", "steps=3") == 0
    stored = read(tmp_path / "wm" / "versions" / "000001.safetensors")
    assert stored.updates == 3 and stored.version == 1
    assert {"psnr", "copy_psnr", "ssim", "psnr_front", "psnr_wrist"} <= set(stored.scores)
    reader = StoreReader(store)
    held_out = {fingerprint(reader, number) for number in (2, 5)}
    assert stored.learned == fingerprints(reader) - held_out, "what it never learned from is not named"
    lines = [json.loads(line) for line in (tmp_path / "wm" / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["updates"] == 3 and "world_model/single_loss" in lines[-1]


def test_a_training_cut_in_two_ends_as_one_that_ran_through(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Cut:
        """Ctrl-C after the first round."""

        seen = True

        def restore(self) -> None: ...

    assert train(store, tmp_path / "whole", "steps=5", "round_steps=2") == 0
    with monkeypatch.context() as patch:
        patch.setattr("rl.finetune_world_model.InterruptFlag", Cut)
        assert train(store, tmp_path / "cut", "steps=5", "round_steps=2") == 130
    assert not (tmp_path / "cut" / "versions").exists()
    assert train(store, tmp_path / "cut", "steps=5", "round_steps=2", "resume=true") == 0
    whole, cut = (
        (tmp_path / name / "versions" / "000001.safetensors").read_bytes() for name in ("whole", "cut")
    )
    assert whole == cut


def test_a_finished_training_is_published_once_and_says_how_to_train_on(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "wm"
    versions = out / "versions"
    assert train(store, out, "steps=3") == 0
    first = versions / "000001.safetensors"
    content = first.read_bytes()
    assert train(store, out, "steps=9", "resume=true") == 2
    said = capsys.readouterr().err.replace("\n", "")
    assert "finished after 3 updates, and published" in said and f"start={first}" in said
    assert list(versions.iterdir()) == [first] and first.read_bytes() == content
    first.unlink()
    assert train(store, out, "steps=3", "resume=true") == 0, "it was killed before it could be published"
    assert first.read_bytes() == content


def test_a_resumed_training_ends_where_it_was_to_end(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(store, tmp_path / "wm", "steps=3") == 0
    mark = tmp_path / "wm" / MARK
    mark.write_text(json.dumps({"updates": 3, "target": 4}))
    assert train(store, tmp_path / "wm", "steps=9", "resume=true") == 0
    assert "continues at update 3 of 4" in capsys.readouterr().out
    assert read(tmp_path / "wm" / "versions" / "000002.safetensors").updates == 4


def test_a_budget_in_minutes_becomes_steps(store: Path, tmp_path: Path) -> None:
    overrides = [o for o in SMALL if o != "cpu_minutes=null"]
    assert main([f"data={store}", f"out={tmp_path / 'wm'}", *overrides, "cpu_minutes=0.01"]) == 0
    assert read(tmp_path / "wm" / "versions" / "000001.safetensors").updates >= 1


def test_it_starts_from_a_published_version(store: Path, tmp_path: Path) -> None:
    train(store, tmp_path / "a", "steps=2")
    start = tmp_path / "a" / "versions" / "000001.safetensors"
    assert train(store, tmp_path / "b", "steps=1", f"start={start}") == 0
    assert read(tmp_path / "b" / "versions" / "000001.safetensors").updates == 3


def test_a_version_also_names_what_it_had_learned_from_before_it_was_started_from(tmp_path: Path) -> None:
    first, second = record(tmp_path / "first", 6), record(tmp_path / "second", 7)
    train(first, tmp_path / "a", "steps=1", "holdout.episodes=[0]")
    start = tmp_path / "a" / "versions" / "000001.safetensors"
    train(second, tmp_path / "b", "steps=1", f"start={start}", "holdout.episodes=[1,6]")
    learned = read(tmp_path / "b" / "versions" / "000001.safetensors").learned
    assert learned == fingerprints(StoreReader(first)), (
        "episode 0 from the second, 1 from the first; 6 from neither"
    )
    stored = read(start)
    checkpoint.write(start, dataclasses.replace(stored, learned=None))  # as of an older file
    train(second, tmp_path / "c", "steps=1", f"start={start}")
    assert read(tmp_path / "c" / "versions" / "000001.safetensors").learned is None, "nobody knows"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["steps=2", "views=[side]"], "side was not recorded"),
        (["steps=2", "horizon=6", "holdout.episodes=[99]"], "no held-out episode has 6 steps"),
        (["steps=2", "holdout.episodes=[0,1,2,3,4,5]"], "every episode is held out"),
        (["steps=2", "cpu_minutes=1"], "one of cpu_minutes and steps"),
        (["steps=2", "resume=true"], "nothing to resume"),
        (["steps=2", "start=/nowhere.safetensors"], "nowhere"),
        (["steps=2", "data=/nowhere"], "neither a store nor a run"),
        (["steps=2", "horizon=7"], "at most model.max_horizon=6"),
    ],
)
def test_bad_input_is_one_readable_line(
    overrides: list[str], message: str, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(store, tmp_path / "wm", *overrides) == 2
    error = capsys.readouterr().err
    assert message in error and len(error.strip().splitlines()) == 1


def test_an_occupied_directory_and_another_cameras_version_are_refused(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(store, tmp_path / "wm", "steps=1")
    assert train(store, tmp_path / "wm", "steps=1") == 2
    assert "holds a training already" in capsys.readouterr().err
    start = tmp_path / "wm" / "versions" / "000001.safetensors"
    assert train(store, tmp_path / "b", "steps=1", f"start={start}", "views=[wrist]") == 2
    assert "views (height, width): expected" in capsys.readouterr().err


def test_a_store_of_another_action_scale_is_another_normalisation(store: Path, tmp_path: Path) -> None:
    other = record(tmp_path / "other", 1, metadata={"action_scale": [0.02, 0.06, 1.0]})
    specs = [make_spec(StoreReader(path).schema, 2, 6) for path in (store, other)]
    assert specs[0].action.meaning != specs[1].action.meaning


def test_state_observations_have_nothing_to_imagine(tmp_path: Path) -> None:
    with pytest.raises(WorldModelError, match="holds no images"):
        make_spec(schema(views={}), 2, 6)


def test_a_run_gives_its_real_stores_and_never_the_imagined_one(tmp_path: Path) -> None:
    for name in ("real", "demo", "synthetic"):
        record(tmp_path / name, 1)
    assert [path.name for path in real_stores(tmp_path)] == ["demo", "real"]


def test_held_out_clips_are_whole_and_come_from_held_out_episodes(store: Path, tmp_path: Path) -> None:
    data = ClipData.open([store, record(tmp_path / "more", 3)], Holdout(every=3))
    clip = data.held_out(100, 6, 1, np.random.default_rng(0))
    assert len(clip) == 3 * (STEPS - 6 + 1) and clip.valid[:, 1:].all()
    assert sorted(set(clip.episode.tolist())) == [4, 5, 10]  # 2 and 5 of the first store, 2 of the second
    drawn = data.sampler(Split.TRAIN).sample(200, 1, np.random.default_rng(0))
    assert set(drawn.episode.tolist()) == {0, 1, 3, 4}


def test_mixed_clips_come_in_their_shares(store: Path, tmp_path: Path) -> None:
    full, empty = ClipSampler([PartConfig(StoreReader(store))]), record(tmp_path / "empty", 0)
    none = ClipSampler([PartConfig(StoreReader(empty))])
    rng = np.random.default_rng(0)
    newest = ClipSampler([PartConfig(StoreReader(store), newest=4)])
    clip = ClipMixer({"newest": (newest, 0.75), "demo": (full, 0.25)}).sample(8, 2, rng, 1)
    assert (clip.episode[:6] == 5).all() and len(clip) == 8
    assert len(ClipMixer({"newest": (newest, 0.5), "demo": (none, 0.5)}).sample(8, 2, rng)) == 8
    with pytest.raises(EmptyShareError):
        ClipMixer({"demo": (none, 1.0)}).sample(1, 2, rng)
    with pytest.raises(ValueError, match="sum to 1"):
        ClipMixer({"demo": (full, 0.5)})
