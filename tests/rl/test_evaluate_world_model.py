"""`groundhog evaluate-world-model`: rows, pictures, and inputs that do not fit; on the copied frame as a model."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as PilImage

from rl.config import CONFIG_DIR, load
from rl.evaluate_world_model import main
from rl.replay.journal import EndReason, EpisodeOutcome
from rl.replay.reader import StoreReader
from rl.replay.schema import StoreSchema
from rl.replay.writer import StoreWriter
from rl.world_models.config import (
    AuditWorldModelConfig,
    EvaluateWorldModelConfig,
    FinetuneWorldModelConfig,
)
from rl.world_models.data import make_spec
from robot.types import Observation, ProprioSpec, Transition
from worldmodel import lpips
from worldmodel.adapt import Scores, Versions
from worldmodel.baselines import CopyLastFrame

STEPS = 12
PIXELS = 16
NO_LPIPS = "LPIPS needs its published weights"


def observation(episode: int, step: int) -> Observation:
    """A gray picture that grows brighter, with a pattern."""
    rng = np.random.default_rng(episode)
    image = (rng.integers(0, 100, (PIXELS, PIXELS, 3)) + 4 * step).astype(np.uint8)
    return Observation({"top": image}, np.zeros(2, np.float32), 0.1 * step, {"top": 0.1 * step})


def record(path: Path, hz: float = 10.0) -> Path:
    zeros, ones = np.zeros(2, np.float32), np.ones(2, np.float32)
    schema = StoreSchema(
        task="brighten",
        views={"top": (PIXELS, PIXELS)},
        proprio=ProprioSpec(("a", "b"), zeros, ones, zeros),
        metadata={"control_hz": hz, "action_frame": "base"},
    )
    with StoreWriter(path, schema) as writer:
        for episode in range(4):
            writer.begin_episode(observation(episode, 0))
            for step in range(STEPS):
                action = np.full(7, 0.1 * episode, np.float32)
                end = step == STEPS - 1
                before, after = observation(episode, step), observation(episode, step + 1)
                writer.add(Transition(before, action, action, 0.0, after, False, end))
            writer.end_episode(EpisodeOutcome(EndReason.TIMEOUT))
    return path


def publish(store: Path, out: Path) -> Path:
    model = CopyLastFrame(make_spec(StoreReader(store).schema, context_frames=2, max_horizon=10))
    Versions(out / "versions").publish(model, Scores(20.0))
    return out


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A store, and where a model for it was published."""
    base = tmp_path_factory.mktemp("evaluate")
    store = record(base / "store")
    return store, publish(store, base / "wm")


@pytest.fixture(autouse=True)
def without_lpips(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine without its weights; the metric has its own tests."""

    def missing(path: Path | None) -> None:
        raise lpips.LpipsWeightsError(NO_LPIPS)

    monkeypatch.setattr(lpips, "_find", missing)


def run(place: tuple[Path, Path], out: Path, *more: str) -> int:
    return main([f"data={place[0]}", f"model={place[1]}", f"out={out}", "horizons=[0.2,1.0]", *more])


def test_rows_pictures_and_what_is_unknown(
    place: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(place, tmp_path, "all_episodes=true", "pictures=2") == 0
    content = json.loads((tmp_path / "evaluation.json").read_text())
    near, far = content["rows"]
    assert (near["data"], near["view"], near["px"], near["episodes"]) == ("brighten", "top", PIXELS, 4)
    assert near["psnr"] == near["copy_psnr"] > far["psnr"]
    assert near["psnr_gain"] == 0.0 and near["lpips"] is None
    assert {"commit", "machine", "versions", "command"} <= set(content)
    text = capsys.readouterr().out
    assert NO_LPIPS in text and "n/a" in text and "16x16 px" in text
    sheet = PilImage.open(tmp_path / "imagined.png")
    assert sheet.size == (10 * 128, 2 * 3 * 128)
    assert (tmp_path / "imagined.mp4").stat().st_size > 1000


def test_held_out_episodes_alone_are_judged(place: tuple[Path, Path], tmp_path: Path) -> None:
    assert run(place, tmp_path, "holdout.episodes=[2]") == 0
    row = json.loads((tmp_path / "evaluation.json").read_text())["rows"][0]
    assert (row["episodes"], row["clips"]) == (1, STEPS - 10 + 1)
    assert row["psnr_low"] is None  # one episode gives no interval


def test_rows_replace_their_own_in_a_results_file_and_leave_others(
    place: tuple[Path, Path], tmp_path: Path
) -> None:
    results = tmp_path / "world_model.json"
    others = [
        {"data": "press", "model": "copy_last"},
        {"data": "brighten", "model": "copy_last", "psnr": 0.0},
    ]
    results.write_text(json.dumps({"rows": others}))
    assert run(place, tmp_path / "out", "all_episodes=true", f"results={results}") == 0
    rows = json.loads(results.read_text())["rows"]
    assert [row["data"] for row in rows] == ["press", "brighten", "brighten"]
    assert all(row.get("psnr") != 0.0 for row in rows)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["horizons=[-1.0]"], "expected seconds > 0"),
        (["horizons=[3.0]", "all_episodes=true"], "ask for a shorter horizon"),
        (["lpips=nothing.ckpt"], NO_LPIPS),
        (["model=nowhere"], "no world model was published here"),
        (["data=nowhere"], "neither a store nor a run directory"),
    ],
)
def test_wrong_inputs_are_one_readable_line(
    more: list[str],
    message: str,
    place: tuple[Path, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(place, tmp_path, *more) == 2
    error = capsys.readouterr().err
    assert message in error and "Traceback" not in error


def test_a_model_of_another_rate_is_refused(
    place: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = record(tmp_path / "slow", hz=4.0)
    assert run((slow, place[1]), tmp_path / "out", "all_episodes=true") == 2
    assert "says nothing about another" in capsys.readouterr().err


@pytest.mark.parametrize("preset", sorted(p.stem for p in (CONFIG_DIR / "world_model").glob("*.yaml")))
def test_every_training_preset_composes(preset: str) -> None:
    config = load("finetune-world-model", [f"world_model={preset}", "data=somewhere"])
    assert isinstance(config, FinetuneWorldModelConfig)
    assert set(config.views) <= set(config.mapping.views)


def test_the_commands_that_judge_compose() -> None:
    assert isinstance(load("evaluate-world-model", ["model=a", "data=b"]), EvaluateWorldModelConfig)
    assert isinstance(load("audit-world-model", ["model=a"]), AuditWorldModelConfig)
