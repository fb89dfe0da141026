"""The vendor's release: a model from its files, the download's errors, and the cost that is computed beforehand."""

from __future__ import annotations

from pathlib import Path

import huggingface_hub
import numpy as np
import pytest
import torch
from huggingface_hub import errors
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from robot.geometry import DeltaFrame
from tests.worldmodel.cosmos_cases import CPU, FixedClips, release, tiny_config, tiny_model, tiny_spec
from worldmodel.cosmos.actions import ActionConfig, ActionConvention
from worldmodel.cosmos.adaptation import Adapt, trained
from worldmodel.cosmos.cost import cost, forward_operations
from worldmodel.cosmos.model import CosmosConfig
from worldmodel.cosmos.release import download, start_from
from worldmodel.cosmos.transformer import TransformerConfig
from worldmodel.interface import ActionNormalisation, WorldModelError, WorldModelSpec

RELEASED = ActionConfig(ActionConvention.RELEASED, DeltaFrame.TOOL, position_scale=0.02, rotation_scale=0.1)


def test_a_model_from_the_files_keeps_the_released_action_embedding(tmp_path: Path) -> None:
    files = release(tmp_path)
    model = start_from(files, tiny_spec(), tiny_config(actions=RELEASED), CPU)
    same = tiny_model(tiny_config(actions=RELEASED))
    ours, theirs = model.network.state_dict(), same.network.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs) and ours.keys() == theirs.keys()
    torch.testing.assert_close(model.text, same.text, atol=0.1, rtol=0.1)  # the file's embedding is bfloat16


def test_a_learned_action_embedding_starts_without_effect_and_then_learns(tmp_path: Path) -> None:
    model = start_from(release(tmp_path), tiny_spec(), tiny_config(adapt=Adapt.LORA), CPU, seed=5)
    mlps = model.network.action_mlps()
    assert all(not mlp(torch.ones(1, 28)).any() for mlp in mlps)
    assert all(weight.requires_grad for mlp in mlps for weight in mlp.parameters())
    model.adapt(FixedClips(), 2, np.random.default_rng(0))
    assert all(mlp(torch.ones(1, 28)).any() for mlp in mlps)


def test_actions_of_another_width_are_learned_and_never_converted(tmp_path: Path) -> None:
    files = release(tmp_path)
    spec = WorldModelSpec({"side": (16, 16)}, ActionNormalisation.identity(2), 1, 12)
    model = start_from(files, spec, tiny_config(), CPU)
    assert model.network.config.action_inputs == 8
    with pytest.raises(WorldModelError, match="learn its action embedding anew"):
        start_from(files, spec, tiny_config(actions=RELEASED), CPU)
    scaled = ActionNormalisation(np.zeros(7, np.float32), np.full(7, 2, np.float32))
    with pytest.raises(WorldModelError, match="no action normalisation"):
        start_from(files, tiny_spec(scaled), tiny_config(actions=RELEASED), CPU)


def test_without_a_token_or_access_the_remedy_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    failure: list[Exception] = []

    def fetch(repository: str, name: str, local_files_only: bool = False) -> str:
        if repository.startswith("Wan-AI"):
            return str(tmp_path / name)
        raise errors.LocalEntryNotFoundError("not cached") if local_files_only else failure[0]

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", fetch)
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: None)
    with pytest.raises(WorldModelError, match="HF_TOKEN"):
        download()
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: "hf_x")
    failure.append(OSError("no route to host"))
    with pytest.raises(WorldModelError, match=r"cannot be fetched \(no route to host\)"):
        download()


def test_the_released_model_has_the_published_size() -> None:
    # 2,126.8 M weights with the text projection of 102.8 M, which is applied once and dropped.
    found = cost(CosmosConfig(adapt=Adapt.FULL), views=2)
    assert found.parameters == 2_024_005_632 and found.trained == found.parameters
    assert found.step_operations > found.chunk_operations > 35 * 11.2e12


def test_the_cost_counts_the_weights_that_are_there() -> None:
    config = tiny_config(adapt=Adapt.LORA)
    model = tiny_model(config)
    found = cost(config, views=2, shape=model.network.config)
    assert found.parameters == sum(weight.numel() for weight in model.network.parameters())
    assert found.trained == sum(weight.numel() for _, weight in trained(model.network))
    text = "\n".join(found.lines(config, 2, 1e12))
    assert "GiB" in text and "lora" in text and "2 view(s) at 16x32" in text


def test_counted_operations_are_those_of_a_forward_pass() -> None:
    model = tiny_model()
    noisy, given = torch.randn(1, 16, 4, 4, 4), torch.zeros(1, 1, 4, 4, 4)
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH), torch.no_grad():
        model.network(noisy, torch.ones(1), model.text, torch.zeros(1, 12, 7), given)
    counted = counter.get_total_flops()
    time = 2 * 4 * 4 * 64 * 64 + 2 * 3 * 40 * (2 * 28 + 4 * 64)  # its embedding and that of the actions
    assert counted == forward_operations(model.network.config, tokens=16, text=5) + time


def test_the_cost_of_a_forward_pass_grows_as_attention_does() -> None:
    one, two = (forward_operations(TransformerConfig(), tokens, 512) for tokens in (1280, 2560))
    assert 5.2e12 < one < 5.4e12 and 2.0 < two / one < 2.2
