"""`groundhog finetune-world-model model.kind=cosmos`: what it needs is said first, then refused or done."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import replay_data
import torch
from replay_data import observation, schema, transition

from rl.config import load
from rl.finetune_world_model import main
from rl.replay.journal import EndReason, EpisodeOutcome
from rl.replay.writer import StoreWriter
from rl.world_models.config import FinetuneWorldModelConfig
from rl.world_models.cost import foretell
from tests.worldmodel import cosmos_cases
from worldmodel.checkpoint import read
from worldmodel.cosmos import release
from worldmodel.cosmos.actions import ActionConvention
from worldmodel.interface import WorldModelError

COSMOS = ["data=x", "model.kind=cosmos", "cpu_minutes=null", "steps=200"]


def config(*more: str) -> FinetuneWorldModelConfig:
    loaded = load("finetune-world-model", [*COSMOS, *more])
    assert isinstance(loaded, FinetuneWorldModelConfig)
    return loaded


def test_without_a_gpu_memory_and_time_are_said_and_the_run_is_refused() -> None:
    lines = []
    with pytest.raises(WorldModelError, match="needs a CUDA GPU"):
        for line in foretell(config(), views=2):
            lines.append(line)
    text = "\n".join(lines)
    assert "2.07 B parameters, 113 M of them learn (lora); 2 view(s) at 256x320" in text
    assert "GiB while adapting" in text and "s per rollout" in text and "200 steps 4 min" in text


def test_a_gpu_that_is_too_small_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (8 * 2**30, 8 * 2**30))
    monkeypatch.setattr("rl.world_models.cost.measured_rate", lambda _: 50e12)
    wanted = FinetuneWorldModelConfig(data="x", model=config().model, device="cuda")
    with pytest.raises(WorldModelError, match=r"8 GiB are free, about \d+ GiB are needed"):
        list(foretell(wanted, views=2))


def test_small_models_are_not_announced() -> None:
    assert not list(foretell(FinetuneWorldModelConfig(data="x"), views=2))


def test_settings_reach_the_model_through_the_command_line() -> None:
    changes = ["convention=released", "frame=tool", "position_scale=0.02", "rotation_scale=0.08"]
    model = config(*(f"model.cosmos.actions.{change}" for change in changes), "model.cosmos.adapt=full").model
    assert model.cosmos.actions.convention is ActionConvention.RELEASED
    assert model.cosmos.actions.gripper_from_tool == [0, 0, 0, 1]


@pytest.fixture
def other_sizes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Frames large enough for a video model; the drawn ones are kept between tests, and must not be mixed up."""
    for view, size in (("front", (16, 16)), ("wrist", (12, 20))):
        monkeypatch.setitem(replay_data.VIEWS, view, size)
    replay_data.image.cache_clear()
    yield
    replay_data.image.cache_clear()


@pytest.mark.usefixtures("other_sizes")
def test_the_command_adapts_the_released_files_and_publishes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    files = cosmos_cases.release(tmp_path)
    monkeypatch.setattr(release, "download", lambda: files)
    monkeypatch.setattr("rl.finetune_world_model.foretell", lambda *_: ())
    small = ["height=16", "width=16", "batch=2", "lora_rank=2", "num_denoising_steps=4", "precision=float32"]
    with StoreWriter(tmp_path / "real", schema()) as writer:
        for episode in range(6):
            writer.begin_episode(observation(episode, 0))
            for step in range(8):
                writer.add(transition(episode, step, truncated=step == 7))
            writer.end_episode(EpisodeOutcome(EndReason.TIMEOUT))
    arguments = [f"model.cosmos.{change}" for change in small]
    out = tmp_path / "wm"
    data = ["horizon=4", "clips=3", "holdout.every=3", "model.context_frames=2", "steps=2", f"out={out}"]
    assert main([*COSMOS, f"data={tmp_path / 'real'}", *data, *arguments]) == 0
    stored = read(out / "versions" / "000001.safetensors")
    assert stored.kind == "cosmos" and stored.updates == 2 and "copy_psnr" in stored.scores
