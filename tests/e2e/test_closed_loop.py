"""The closed loop: with no synthetic share nothing changes at all; what is imagined says where it comes from."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image as PilImage

from reward_model.classifier import ClassifierConfig, SuccessClassifier
from reward_model.labels import Thresholds
from rl import cli
from rl.batch import SYNTHETIC
from rl.config import load_dict
from rl.metrics import read_metrics
from rl.pictures import TILE
from rl.relived import CAPTION, read_relived
from rl.replay.reader import StoreReader
from rl.replay.rows import provenance_of
from rl.runtime import imagining
from rl.runtime.run_dir import RunDir
from rl.selection.pacing import EntropyPacingConfig
from rl.workers.synthetic import SyntheticShare, SyntheticShareConfig
from rl.world_models.data import make_spec
from robot.types import Label, Source
from tests.e2e.harness import SMALL
from worldmodel.baselines import CopyLastFrame
from worldmodel.factory import WorldModelConfig

# Warm start and two short episodes: enough for a ratio to act, and what is counted here is no learning.
SHORT = (
    "actor.max_env_steps=40",
    "runtime.kind=inline",
    "learner.bc_updates=10",
    "learner.log_every=10",
    "learner.diagnose_every=0",
)
IMAGINE = ("synthetic.model=oracle", "synthetic.imagination.parallel=4")
OPEN = (
    "synthetic.selection.mode=none",
    "synthetic.share.pacing.rule=constant",
    "synthetic.share.pacing.rise_per_100=100",
)


def train(path: Path, *overrides: str) -> RunDir:
    assert cli.main(["train", f"runs_dir={path}", "name=run", *SMALL, *SHORT, *overrides]) == 0
    return RunDir(path / "run")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    return train(tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def imagined(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    return train(tmp_path_factory.mktemp("imagined"), *IMAGINE, *OPEN)


def same_learning(one: RunDir, two: RunDir) -> bool:
    a, b = one.weights().load().tensors, two.weights().load().tensors
    first, second = StoreReader(one.real), StoreReader(two.real)
    rows = np.arange(first.num_rows)
    return (
        all(torch.equal(a[name], b[name]) for name in a)
        and first.num_rows == second.num_rows
        and np.array_equal(first.records(rows)["observation"], second.records(rows)["observation"])
        and np.array_equal(
            first.records(rows)["transition"]["action"], second.records(rows)["transition"]["action"]
        )
    )


def test_selection_that_admits_too_little_is_plain_learning_bit_by_bit(plain: RunDir, tmp_path: Path) -> None:
    """A closed gate, not a switch: entropy is measured and clips are valued beside, and nothing else changes."""
    none_used = train(tmp_path, *IMAGINE, "synthetic.selection.min_clips=1000")
    assert StoreReader(none_used.synthetic).num_transitions > 20, "it did imagine beside"
    records = read_metrics(none_used.metrics_path)
    assert all(r["selection/ratio"] == 0.0 for r in records if "selection/ratio" in r)
    assert any(r.get("selection/residual") is not None for r in records)
    assert any("selection/entropy" in r for r in records)
    assert same_learning(plain, none_used)


def test_a_ratio_of_zero_asks_nothing() -> None:
    share = SyntheticShare(
        None,  # type: ignore[arg-type]
        None,  # type: ignore[arg-type]
        SyntheticShareConfig(pacing=EntropyPacingConfig(ratio_max=0.0)),
        action_dim=6,
        certainty=lambda: pytest.fail("it was asked"),
        alive=lambda: pytest.fail("it was asked"),
        policy_version=lambda: pytest.fail("it was asked"),
    )
    assert share.shares({"demo": 0.5, "online": 0.5}, 64, 100, 100) == {"demo": 0.5, "online": 0.5}


def test_imagined_data_change_what_is_learnt(plain: RunDir, imagined: RunDir) -> None:
    assert not same_learning(plain, imagined)
    used = [r["selection/used"] for r in read_metrics(imagined.metrics_path) if "selection/used" in r]
    assert used[-1] > 20
    ratios = [r["selection/ratio"] for r in read_metrics(imagined.metrics_path) if "selection/ratio" in r]
    assert 0.0 < max(ratios) <= 0.30


def test_an_arm_that_imitates_keeps_imagined_successes_alone(plain: RunDir, tmp_path: Path) -> None:
    arm = ("arm=vlaw", "synthetic.selection.min_clips=1")  # the simulator shows what a video model would
    run = train(tmp_path, *arm, *IMAGINE, "synthetic.imagination.policy_share=0")
    reader, records = StoreReader(run.synthetic), read_metrics(run.metrics_path)
    labels = reader.records(reader.valid_starts)["transition"]["label"]
    assert len(labels) and (labels == Label.SUCCESS).all()
    assert max(r.get("selection/refused/failed", 0.0) for r in records) > 0.0
    assert max(r.get("selection/used", 0.0) for r in records) > 20.0
    assert 0.0 < max(r.get("selection/ratio", 0.0) for r in records) <= 0.30
    assert not same_learning(plain, run)


def test_every_imagined_transition_says_where_it_comes_from(imagined: RunDir) -> None:
    reader = StoreReader(imagined.synthetic)
    demo, real = StoreReader(imagined.demo), StoreReader(imagined.real)
    for record in reader.records(reader.valid_starts):
        transition, told = record["transition"], provenance_of(record)
        assert transition["source"] == Source.SYNTHETIC and transition["label"] != Label.UNKNOWN
        assert told.source_origin in (0, 1) and told.admission == 1 and told.world_model_version == 0
        source = (demo if told.source_origin == 0 else real).episode(told.source_episode)
        if record["observation"]["step"] == 0:
            np.testing.assert_allclose(
                record["observation"]["proprio"], source.proprio[told.source_step], atol=5e-3
            )
    assert SYNTHETIC not in {info.outcome.reason.value for info in real.episodes()}


def test_real_and_imagined_data_stay_apart(imagined: RunDir) -> None:
    for store in (imagined.real, imagined.demo):
        reader = StoreReader(store)
        sources = reader.records(reader.valid_starts)["transition"]["source"]
        assert (sources != Source.SYNTHETIC).all()


def test_a_run_that_could_not_imagine_is_refused_before_it_starts(
    plain: RunDir, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    demos = plain.demo
    arguments = ["train", f"runs_dir={tmp_path}", "name=run", *SMALL, *SHORT, *IMAGINE, f"demos.path={demos}"]
    assert cli.main(arguments) == 2
    assert "re-enacts" in capsys.readouterr().err
    assert not (tmp_path / "run" / "config.yaml").exists()


def test_imagined_clips_of_a_state_run_are_shown_without_pictures(
    imagined: RunDir, plain: RunDir, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["show", f"path={imagined.path}", "source=synthetic"]) == 0
    assert "no pictures" in capsys.readouterr().out
    assert cli.main(["show", f"path={plain.path}", "source=synthetic"]) == 2
    assert "expected a run that imagines" in capsys.readouterr().err


def test_optimisers_come_before_the_cameras(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other way round the process crashes as soon as the world model learns."""
    order: list[str] = []

    def cameras(*_: object, **__: object) -> None:
        order.append("cameras")
        raise InterruptedError

    monkeypatch.setattr(imagining, "load_optimiser", lambda: order.append("optimiser"))
    monkeypatch.setattr(imagining, "make_robot_env", cameras)
    run = RunDir.create(tmp_path / "run", load_dict("train", ["synthetic.model=video"]))
    with pytest.raises(InterruptedError):
        imagining.make_world_model(run)
    assert order == ["optimiser", "cameras"]


def test_the_summary_counts_what_was_imagined(imagined: RunDir) -> None:
    summary = json.loads((imagined.path / "summary.json").read_text())
    assert summary["generated"] >= summary["admitted"] > 0 and summary["used"] > 0
    assert 0.0 < summary["ratio_mean"] <= 0.30 + 1e-9


def test_a_run_imagines_video_and_uses_none_of_it_before_its_labels_have_proven_right(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pixels = ("robot.obs=pixels", "robot.image_px=32", "agent.encoder.channels=[4,8,8]")
    demos = tmp_path / "demos"
    recordings = tmp_path / "recordings"
    for number, (store, episodes) in enumerate(((demos, 5), (recordings, 12))):
        asked = [f"out={store}", f"seed={number}", "robot.image_px=32", f"demos.episodes={episodes}"]
        assert cli.main(["record", *asked]) == 0
    schema = StoreReader(demos).schema
    model, judge = tmp_path / "model.safetensors", tmp_path / "judge.safetensors"
    scores = {"psnr": 24.0, "copy_psnr": 20.0, "following": 0.9}
    seen = WorldModelConfig()
    CopyLastFrame(make_spec(schema, seen.context_frames, seen.max_horizon), version=7).save(model, scores)
    classifier = SuccessClassifier(
        ClassifierConfig(channels=(4,)), "press", schema.views, seed=0, device=torch.device("cpu"), version=3
    )
    replace_thresholds(classifier).save(judge)
    video = (
        "synthetic.model=video",
        f"synthetic.video.world_model={model}",
        f"synthetic.video.reward_model={judge}",
        f"synthetic.video.recordings={recordings}",
        "synthetic.video.model.kind=copy_last",
        "synthetic.video.holdout.every=5",
        "synthetic.imagination.replay_share=0.25",
        "synthetic.imagination.parallel=4",
    )
    run = train(
        tmp_path, *pixels, *video, f"demos.path={demos}", "demos.episodes=5", "actor.max_env_steps=20"
    )
    records = read_metrics(run.metrics_path)
    last = [r for r in records if "world_model/generated" in r][-1]
    assert last["world_model/generated"] > 20 and last["calibration/gate"] == 0.0
    assert all(r["selection/ratio"] == 0.0 for r in records if "selection/ratio" in r)
    gates = [r["selection/gate_world_model"] for r in records if "selection/gate_world_model" in r]
    assert gates[-1] == 0.0, "a copied frame gains nothing over itself, whatever its file says"
    measured = [r["world_model/held_out_psnr"] for r in records if "world_model/held_out_psnr" in r]
    assert len(measured) == 1 and measured != [scores["psnr"]], "measured once, when the session begins"
    assert [path.stem for path in (run.path / "world_model" / "versions").iterdir()] == ["000007"], (
        "the given version is the run's first, and its successors are numbered behind it"
    )
    assert last["world_model/admitted"] > 0
    capsys.readouterr()
    assert cli.main(["show", f"path={run.path}", "source=synthetic", "clips=3"]) == 0
    (sheet,) = (run.synthetic / "show").glob("clips_*.png")
    shown = capsys.readouterr().out
    assert "really" in shown and "admitted" in shown and sheet.name in shown.replace("\n", "")
    clips = read_relived(run.synthetic, run.demo, run.real, -1, 3)
    assert [clip.number for clip in clips] == sorted(clip.number for clip in clips) and len(clips) == 3
    for clip in clips:
        for view, frames in clip.imagined.images.items():
            np.testing.assert_array_equal(frames[0], clip.real.images[view][clip.first])
    with PilImage.open(sheet) as picture:
        assert picture.height == 3 * 2 * (CAPTION + 2 * TILE), "each clip twice, with both cameras"


def replace_thresholds(classifier: SuccessClassifier) -> SuccessClassifier:
    """Thresholds that call every clip something, as an untrained network scores about one half."""
    classifier.thresholds = Thresholds(0.5, 0.4999)
    return classifier
