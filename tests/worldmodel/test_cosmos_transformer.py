"""The transformer against an independent forward from the vendor's names, and the reading of its checkpoints."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.worldmodel.cosmos_cases import HEAD_DIM, HEADS, LAYERS, WIDTH, official_checkpoint, text_embedding
from worldmodel.cosmos.checkpoint import read_official, read_tensor, translate
from worldmodel.cosmos.text import project_text
from worldmodel.interface import WorldModelError


class Reference:
    """The published network written out once more: plain matrix products on the vendor's own tensor names."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        self._weights = weights

    def __call__(self, x: Tensor, t: Tensor, text: Tensor, actions: Tensor, mask: Tensor) -> Tensor:
        b, c, frames, height, width = x.shape
        h, w = height // 2, width // 2
        patches = torch.cat((x, mask, torch.zeros_like(mask)), 1).reshape(b, c + 2, frames, h, 2, w, 2)
        z = self._dot(patches.permute(0, 2, 3, 5, 1, 4, 6).reshape(b, -1, 72), "x_embedder.proj.1")
        time, adaln = self._conditioning(t, actions, mask, b, frames)
        context = F.gelu(self._dot(text, "crossattn_proj.0"))
        angles = self._angles(frames, h, w)
        for layer in range(LAYERS):
            name = f"blocks.{layer}."
            y, gate = self._modulated(z, time, adaln, name + "adaln_modulation_self_attn", h * w)
            z = z + gate * self._attend(y, y, name + "self_attn", angles)
            y, gate = self._modulated(z, time, adaln, name + "adaln_modulation_cross_attn", h * w)
            z = z + gate * self._attend(y, context.expand(b, -1, -1), name + "cross_attn", None)
            y, gate = self._modulated(z, time, adaln, name + "adaln_modulation_mlp", h * w)
            z = z + gate * self._dot(F.gelu(self._dot(y, name + "mlp.layer1")), name + "mlp.layer2")
        y, _ = self._modulated(z, time, adaln[..., : 2 * WIDTH], "final_layer.adaln_modulation", h * w)
        out = self._dot(y, "final_layer.linear").reshape(b, frames, h, w, 2, 2, c)
        return out.permute(0, 6, 1, 2, 4, 3, 5).reshape(b, c, frames, height, width)

    def _conditioning(
        self, t: Tensor, actions: Tensor, mask: Tensor, b: int, frames: int
    ) -> tuple[Tensor, Tensor]:
        frequency = torch.exp(-math.log(10000) * torch.arange(WIDTH // 2) / (WIDTH // 2))
        angle = t[:, None, None] * frequency
        time = torch.cat((angle.cos(), angle.sin()), -1).expand(b, frames, WIDTH)
        adaln = self._dot(F.silu(self._dot(time, "t_embedder.1.linear_1")), "t_embedder.1.linear_2")
        whole = self._weights["net.action_embedder_B_D.fc1.weight"].shape[1] == 84
        terms = []
        for name in ("action_embedder_B_D", "action_embedder_B_3D"):
            grouped = actions.reshape(b, 1 if whole else frames - 1, -1)
            term = self._dot(F.gelu(self._dot(grouped, name + ".fc1"), approximate="tanh"), name + ".fc2")
            if not whole:
                predicted = 1 - mask[:, 0, :, 0, 0, None]
                term = torch.cat((torch.zeros_like(term[:, :1]), term), 1) * predicted
            terms.append(term)
        return self._rms(time + terms[0], "t_embedding_norm"), adaln + terms[1]

    def _modulated(
        self, z: Tensor, time: Tensor, adaln: Tensor, name: str, per_frame: int
    ) -> tuple[Tensor, Tensor]:
        terms = self._dot(self._dot(F.silu(time), name + ".1"), name + ".2") + adaln
        parts = terms.repeat_interleave(per_frame, 1).split(WIDTH, -1)
        return F.layer_norm(z, (WIDTH,), eps=1e-6) * (1 + parts[1]) + parts[0], parts[-1]

    def _attend(self, y: Tensor, context: Tensor, name: str, angles: Tensor | None) -> Tensor:
        b = len(y)
        q, k, v = (
            self._dot(source, f"{name}.{which}_proj").reshape(b, -1, HEADS, HEAD_DIM).transpose(1, 2)
            for which, source in (("q", y), ("k", context), ("v", context))
        )
        q, k = self._rms(q, name + ".q_norm"), self._rms(k, name + ".k_norm")
        if angles is not None:
            q, k = self._rotate(q, angles), self._rotate(k, angles)
        weight = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(HEAD_DIM), -1)
        return self._dot((weight @ v).transpose(1, 2).reshape(b, -1, WIDTH), name + ".output_proj")

    def _rotate(self, q: Tensor, angles: Tensor) -> Tensor:
        half = HEAD_DIM // 2
        first, second = q[..., :half], q[..., half:]
        cos, sin = angles.cos(), angles.sin()
        return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)

    def _angles(self, frames: int, h: int, w: int) -> Tensor:
        space = HEAD_DIM // 6 * 2
        time = HEAD_DIM - 2 * space
        stretched = 10000 * 3.0 ** (space / (space - 2))
        in_space = stretched ** (-torch.arange(0, space, 2) / space)
        in_time = 10000 ** (-torch.arange(0, time, 2) / time)
        rows = [
            torch.cat((t * in_time, y * in_space, x * in_space))
            for t in range(frames)
            for y in range(h)
            for x in range(w)
        ]
        return torch.stack(rows)

    def _dot(self, x: Tensor, name: str) -> Tensor:
        bias = self._weights.get(f"net.{name}.bias")
        y = x @ self._weights[f"net.{name}.weight"].T
        return y if bias is None else y + bias

    def _rms(self, x: Tensor, name: str) -> Tensor:
        return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * self._weights[f"net.{name}.weight"]


def inputs(seed: int = 5) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    mask = torch.zeros(2, 1, 4, 4, 6)
    mask[:, :, 0] = 1
    return {
        "x": torch.randn(2, 16, 4, 4, 6, generator=generator),
        "t": torch.tensor([0.3, 0.9]),
        "actions": torch.randn(2, 12, 7, generator=generator),
        "mask": mask,
    }


@pytest.mark.parametrize("action_inputs", [28, 84])
def test_forward_equals_the_published_network(action_inputs: int) -> None:
    weights = official_checkpoint(action_inputs)
    official = translate(weights, "tiny")
    model = official.transformer()
    text = project_text(text_embedding(), official.text_projection)
    given = inputs()
    with torch.no_grad():
        ours = model(given["x"], given["t"], text.expand(2, -1, -1), given["actions"], given["mask"])
        reference = Reference(weights)
        theirs = reference(given["x"], given["t"], text_embedding(), given["actions"], given["mask"])
        still = model(given["x"], given["t"], text.expand(2, -1, -1), 0 * given["actions"], given["mask"])
    assert float(theirs.abs().mean()) > 0.05
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    assert float((ours - still).abs().mean()) > 1e-3  # actions matter


def test_actions_reach_their_own_latent_frames_through_the_embedding() -> None:
    model = translate(official_checkpoint(), "tiny").transformer()
    embedding = model.time_embedding
    actions = torch.zeros(1, 12, 7)
    moving = torch.tensor([[0.0, 1, 1, 1]])

    def terms() -> Tensor:
        embedding.set_actions(actions, moving, whole_chunk=False)
        assert embedding._terms is not None
        return embedding._terms[0]

    before = terms()
    actions[0, 5] = 1.0  # the sixth action belongs to the second predicted latent frame
    changed = (terms() - before).abs().sum(-1)
    assert changed[[0, 1, 3]].max() == 0 and changed[2] > 0
    assert before[0].abs().max() == 0  # the given frame gets none


def test_the_shape_is_read_from_the_tensors() -> None:
    config = translate(official_checkpoint(84), "tiny").config
    assert (config.heads, config.head_dim, config.layers) == (HEADS, HEAD_DIM, LAYERS)
    assert (config.whole_chunk, config.action_inputs, config.action_hidden) == (True, 84, 40)
    assert (config.adaln_rank, config.text_dim, config.latent_channels, config.mlp_ratio) == (16, 32, 16, 4)


@pytest.mark.parametrize("nested", [False, True])
def test_a_file_in_the_official_layout_loads_strictly(tmp_path: Path, nested: bool) -> None:
    weights = official_checkpoint()
    weights["net.final_layer.linear._extra_state"] = io.BytesIO(b"from an older Transformer Engine")
    torch.save({"model": weights} if nested else weights, tmp_path / "official.pt")
    network = read_official(tmp_path / "official.pt").transformer()
    loaded = network.state_dict()
    assert torch.equal(
        loaded["backbone.transformer_blocks.1.attn2.to_out.0.weight"],
        weights["net.blocks.1.cross_attn.output_proj.weight"],
    )
    kept = [k for k in weights if not any(w in k for w in ("pos_embedder", "accum_", "_extra", "crossattn_"))]
    assert len(loaded) == len(kept)


@pytest.mark.parametrize(
    "key",
    ["net.blocks.1.mlp.layer2.weight", "net.crossattn_proj.0.bias", "net.action_embedder_B_3D.fc2.bias"],
)
def test_a_missing_key_is_named(key: str) -> None:
    weights = official_checkpoint()
    del weights[key]
    ours = {"net.blocks.1.mlp.layer2.weight": "transformer_blocks.1.ff.net.2.weight"}
    expected = ours.get(key, key.removeprefix("net.").replace("action_embedder_B_3D", "to_adaln"))
    with pytest.raises(WorldModelError, match=expected.replace(".", r"\.")):
        translate(weights, "tiny").transformer()


@pytest.mark.parametrize("key", ["net.blocks.0.img_attn.q_proj.weight", "net.blocks.0.mlp.layer1.bias"])
def test_a_surplus_key_is_named(key: str) -> None:
    weights = official_checkpoint() | {key: torch.zeros(1)}
    found = {"net.blocks.0.mlp.layer1.bias": "ff.net.0.proj.bias"}.get(key, key.removeprefix("net."))
    with pytest.raises(WorldModelError, match=found.replace(".", r"\.")):
        translate(weights, "tiny").transformer()


def test_a_wrong_shape_is_named() -> None:
    weights = official_checkpoint()
    weights["net.blocks.1.mlp.layer1.weight"] = torch.zeros(3, WIDTH)
    with pytest.raises(WorldModelError, match=r"blocks\.1\.ff.*\(256, 64\).*\(3, 64\)"):
        translate(weights, "tiny").transformer()


def test_actions_of_another_robot_are_refused() -> None:
    with pytest.raises(WorldModelError, match=r"28 .* or 84 .* got 40"):
        translate(official_checkpoint(40), "tiny")


class Malicious:
    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("code from a checkpoint ran",)


def test_code_and_rubbish_in_a_file_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save({"net.x": Malicious()}, tmp_path / "bad.pt")
    (tmp_path / "torn.pt").write_bytes(b"PK\x03\x04 torn")
    for name in ("bad.pt", "torn.pt", "absent.pt"):
        with pytest.raises(WorldModelError, match=name):
            read_official(tmp_path / name)
    assert "ran" not in capsys.readouterr().out


def test_text_is_projected_once_and_checked(tmp_path: Path) -> None:
    projection = translate(official_checkpoint(), "tiny").text_projection
    torch.save(text_embedding().bfloat16(), tmp_path / "text.pt")
    embedding = read_tensor(tmp_path / "text.pt")
    assert project_text(embedding, projection).shape == (1, 5, 32)
    assert torch.equal(project_text(embedding[0], projection), project_text(embedding, projection))
    with pytest.raises(WorldModelError, match=r"\(1, length, 96\)"):
        project_text(torch.ones(1, 5, 95), projection)
    with pytest.raises(WorldModelError, match="all zero"):
        project_text(torch.zeros(1, 5, 96), projection)
