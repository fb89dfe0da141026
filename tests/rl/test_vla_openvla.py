"""OpenVLA as a policy, on a small random checkpoint in the published layout: probabilities, layout, LoRA, files."""

from __future__ import annotations

import builtins
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import openvla_tiny as tiny
import pytest
import torch
import torch.nn.functional as F
from openvla_official import official_llama, official_tower
from openvla_tiny import CHUNK, SPEC, tiny_inputs, tiny_policy, write_checkpoint
from PIL import Image

from rl.config import ConfigError, load
from rl.vla.factory import load_policy, new_policy
from rl.vla.grpo import GRPO, GRPOBatch, GRPOConfig
from rl.vla.imitation import ImitationConfig, Lessons, imitate
from rl.vla.openvla.adaptation import trained
from rl.vla.openvla.config import OpenVLAConfig
from rl.vla.openvla.network import NetworkShape, OpenVLANetwork, TowerShape, attend, positions
from rl.vla.openvla.policy import OpenVLAPolicy
from rl.vla.openvla.preprocessing import PromptReader, pixels, prompt
from rl.vla.openvla.tokens import ActionRange, ActionTokens
from rl.vla.policy import PolicyError, PolicyInputs, concatenate
from rl.vla.small import SmallConfig
from robot.types import ACTION_DIM

CPU = torch.device("cpu")
SCALES = {"position_scale": 0.04, "rotation_scale": 0.2}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("openvla"))


@pytest.fixture(scope="module")
def moved(checkpoint: Path) -> OpenVLAPolicy:
    """Not to be trained: shared by the tests that only ask it."""
    return tiny_policy(checkpoint)


@pytest.mark.parametrize("temperature", [1.0, 1.6])
def test_sampled_probabilities_are_those_of_log_prob(moved: OpenVLAPolicy, temperature: float) -> None:
    inputs = tiny_inputs(5)  # two passes of three and two
    drawn = moved.sample(inputs, torch.Generator().manual_seed(1), temperature)
    assert drawn.actions.shape == drawn.log_prob.shape == drawn.tokens.shape == (5, CHUNK, ACTION_DIM)
    again = moved.log_prob(inputs, drawn.tokens, temperature)
    assert again.requires_grad and not drawn.log_prob.requires_grad
    torch.testing.assert_close(again.detach(), drawn.log_prob, rtol=1e-4, atol=1e-5)
    assert set(drawn.actions[..., -1].unique().tolist()) == {-1.0, 1.0}
    assert float(drawn.actions.abs().max()) <= 1.0
    again = moved.sample(inputs, torch.Generator().manual_seed(1), temperature)
    assert torch.equal(again.tokens, drawn.tokens)


def test_probabilities_of_all_bins_sum_to_one(checkpoint: Path) -> None:
    policy = tiny_policy(checkpoint, pass_batch=256)
    every = torch.arange(256)[:, None, None].expand(256, CHUNK, ACTION_DIM)
    with torch.no_grad():
        chances = policy.log_prob(concatenate([tiny_inputs(1)] * 256), every).exp()
    torch.testing.assert_close(chances.sum(dim=0), torch.ones(CHUNK, ACTION_DIM), rtol=1e-4, atol=1e-4)


def test_a_decision_does_not_depend_on_the_others_of_its_batch(moved: OpenVLAPolicy) -> None:
    """Instructions of different lengths are padded; that must not show."""
    inputs = tiny_inputs(4)
    lengths = {len(moved._prompts.ids(text)) for text in inputs.instruction}
    assert len(lengths) == 2
    with torch.no_grad():
        together = moved.distribution(inputs)
        for index in range(4):
            alone = moved.distribution(inputs.rows(torch.tensor([index])))
            torch.testing.assert_close(alone[0], together[index], rtol=1e-4, atol=1e-4)


def test_views_words_and_readings_all_matter(moved: OpenVLAPolicy) -> None:
    inputs = tiny_inputs(1)
    changed = inputs.images.clone()
    changed[:, 1] = 0
    swapped = inputs.images.flip(1)
    others = [
        PolicyInputs(inputs.instruction, changed, inputs.proprio),
        PolicyInputs(inputs.instruction, swapped, inputs.proprio),
        PolicyInputs([tiny.INSTRUCTIONS[1]], inputs.images, inputs.proprio),
        PolicyInputs(inputs.instruction, inputs.images, inputs.proprio + 1.0),
    ]
    with torch.no_grad():
        known = moved.distribution(inputs).exp()
        for other in others:
            assert float((moved.distribution(other).exp() - known).abs().max()) > 1e-4


def test_the_whole_pass_equals_a_second_implementation_on_the_published_names(checkpoint: Path) -> None:
    """Towers, projector, order of the sequence, no mask, shifted read-out, bins: nothing of ours but the readings."""
    policy, inputs = tiny_policy(checkpoint, moved=False), tiny_inputs(1)
    weights = tiny.official_tensors()
    towers = {
        name: {
            key.removeprefix(f"vision_backbone.{name}."): tensor
            for key, tensor in weights.items()
            if key.startswith(f"vision_backbone.{name}.")
        }
        for name in ("featurizer", "fused_featurizer")
    }
    patches = []
    for view in inputs.images[0]:
        dino, siglip = pixels(view[None], tiny.SIDE)
        with torch.no_grad():  # closely, because the two GELUs differ by a thousandth
            found = policy.network.siglip(siglip)
        expected = official_tower(towers["fused_featurizer"], siglip, dino=False)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
        seen = torch.cat(
            (
                official_tower(towers["featurizer"], dino, dino=True),
                official_tower(towers["fused_featurizer"], siglip, dino=False),
            ),
            dim=-1,
        )
        for layer in ("fc1", "fc2", "fc3"):
            seen = F.linear(seen, weights[f"projector.{layer}.weight"], weights[f"projector.{layer}.bias"])
            seen = F.gelu(seen) if layer != "fc3" else seen
        patches.append(seen)
    sentence = "In : What action should the robot take to press the red button ? Out : ▁"
    ids = [3 + tiny.WORDS.index(word) for word in re.findall(r"\S+", sentence)]
    table = weights["language_model.model.embed_tokens.weight"]
    with torch.no_grad():
        felt = policy.network.proprio_projector(inputs.proprio)
    slots = torch.zeros(1, CHUNK * ACTION_DIM, tiny.TEXT)
    sequence = torch.cat((table[[1]][None], *patches, felt, table[ids][None], slots, table[[2]][None]), dim=1)
    hidden = official_llama(weights, sequence)
    logits = F.linear(hidden, weights["language_model.lm_head.weight"])
    last = 1 + 2 * 4 + 1 + len(ids) - 1
    expected = torch.empty(CHUNK, ACTION_DIM, 256)
    for entry in range(CHUNK * ACTION_DIM):
        for bin in range(256):  # np.digitize gives bin + 1; its token is the vocabulary's size less that
            token = tiny.VOCABULARY - tiny.PADDED_BY - (bin + 1)
            expected[entry // ACTION_DIM, entry % ACTION_DIM, bin] = logits[0, last + entry, token]
    with torch.no_grad():
        found = policy.distribution(inputs)[0]
    expected = torch.log_softmax(expected[:, :6], dim=-1)  # the gripper has fewer bins
    torch.testing.assert_close(found[:, :6], expected, rtol=1e-4, atol=1e-4)


def test_attention_and_places_by_hand() -> None:
    kept = torch.tensor([[True, True, False, False, True], [True, True, True, True, True]])
    mask, place = attend(kept), positions(kept)
    for row, asks, answers in np.ndindex(2, 5, 5):
        assert bool(mask[row, 0, asks, answers]) == bool(kept[row, answers])
    assert place[0, [0, 1, 4]].tolist() == [0, 1, 2] and place[1].tolist() == [0, 1, 2, 3, 4]


def test_bins_and_ranges_by_hand() -> None:
    """Against NumPy's digitize and the published formula of un-normalising."""
    config = OpenVLAConfig(statistics="bridge_orig", **SCALES)
    tokens = ActionTokens(ActionRange.make(config, tiny.STATS, ACTION_DIM), CPU)
    low, high = (np.array(tiny.STATS["bridge_orig"]["action"][name]) for name in ("q01", "q99"))
    edges = np.linspace(-1.0, 1.0, 256)
    centres = (edges[:-1] + edges[1:]) / 2.0
    scale = np.array([0.04] * 3 + [0.2] * 3)
    rng = np.random.default_rng(0)
    bins = rng.integers(256, size=(50, ACTION_DIM))
    bins[0], bins[1] = 0, 255
    metres = 0.5 * (centres[np.clip(bins, 0, 254)] + 1.0) * (high - low) + low
    expected = np.clip(metres[:, :6] / scale, -1.0, 1.0)
    np.testing.assert_allclose(tokens.decode(torch.from_numpy(bins))[:, :6].numpy(), expected, atol=1e-6)
    ours = rng.uniform(-1.0, 1.0, size=(200, ACTION_DIM)).astype(np.float32)
    normalised = np.clip(2.0 * (ours[:, :6] * scale - low[:6]) / (high - low)[:6] - 1.0, -1.0, 1.0)
    found = tokens.encode(torch.from_numpy(ours))
    differing = found[:, :6].numpy() != np.digitize(normalised, edges) - 1
    assert differing.mean() < 0.01  # float32 at an edge
    opened = ours[:, 6] > 0
    assert (tokens.decode(found)[:, 6].numpy() == np.where(opened, 1.0, -1.0)).all()
    assert (found[:, 6].numpy() == np.digitize(opened.astype(float), edges) - 1).all()


def test_without_statistics_the_bins_span_our_range() -> None:
    tokens = ActionTokens(ActionRange.make(OpenVLAConfig(), {}, ACTION_DIM), CPU)
    actions = torch.linspace(-1.0, 1.0, 401)[:, None].repeat(1, ACTION_DIM)
    back = tokens.decode(tokens.encode(actions))
    assert float((back - actions)[:, :6].abs().max()) <= 1.0 / 255.0 + 1e-6
    assert (tokens.encode(actions)[1:, 0] >= tokens.encode(actions)[:-1, 0]).all()
    assert tokens.allowed[-1].sum() == 2 and tokens.allowed[:-1].all()


def test_images_and_prompts_are_prepared_as_published(checkpoint: Path) -> None:
    images = tiny_inputs(1).images[0, :1]
    dino, siglip = pixels(images, 8)
    pillow = Image.fromarray(images[0].numpy()).resize((8, 8), Image.Resampling.BICUBIC)
    expected = torch.from_numpy(np.asarray(pillow).copy()).permute(2, 0, 1).float() / 255.0
    assert float((siglip[0] * 0.5 + 0.5 - expected).abs().max()) < 1.5 / 255.0
    torch.testing.assert_close(dino[0, 0] * 0.228515625 + 0.484375, siglip[0, 0] * 0.5 + 0.5)
    assert prompt("  Press the Red\nbutton. ") == (
        "In: What action should the robot take to press the red button?\nOut:"
    )
    ids, real = PromptReader(checkpoint, begin=1).batch(list(tiny.INSTRUCTIONS), CPU)
    assert real.sum(dim=1).tolist() == [17, 18] and real[:, -1].all() and not real[0, 0]
    assert (ids[:, -1] == 3 + tiny.WORDS.index("▁")).all()


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("language_model.model.norm.weight", "missing"),
        ("vision_backbone.fused_featurizer.blocks.1.mlp.fc1.bias", "missing"),
        ("language_model.model.layers.7.mlp.up_proj.weight", "surplus"),
        ("vision_backbone.featurizer.blocks.1.ls3.scale_factor", "surplus"),
        ("action_head.fc1.weight", "surplus"),
        ("projector.fc3.bias", "expected a shape"),
    ],
)
def test_a_checkpoint_that_is_not_the_published_layout_is_refused(
    tmp_path: Path, name: str, change: str
) -> None:
    tensors = tiny.official_tensors()
    if change == "missing":
        del tensors[name]
    else:
        tensors[name] = torch.zeros(3)
    inner = name.split(".")[-1]
    with pytest.raises(PolicyError, match=rf"{change}.*{inner}|{inner}.*{change}"):
        tiny_policy(write_checkpoint(tmp_path, tensors))


def test_missing_and_foreign_things_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = write_checkpoint(tmp_path / "good")
    cases: list[tuple[dict[str, Any], str]] = [
        ({"checkpoint": str(tmp_path / "none")}, "no such directory"),
        ({"statistics": "droid", **SCALES}, "has: bridge_orig"),
        ({"chunk": 5}, "expected a spec of 5 actions"),
    ]
    for change, message in cases:
        config = replace(tiny.CONFIG, checkpoint=str(good))
        with pytest.raises(PolicyError, match=message):
            OpenVLAPolicy(replace(config, **change), SPEC, device=CPU, seed=0)
    with pytest.raises(PolicyError, match=r"use robot.obs=pixels"):
        spec = replace(SPEC, views=())
        new_policy(SmallConfig(), replace(tiny.CONFIG, checkpoint=str(good)), spec, CPU, 0)
    six = {"six": {"action": {"q01": [0.0] * 6, "q99": [1.0] * 6}}}
    with pytest.raises(PolicyError, match="expected 7 action entries, got 6"):
        ActionRange.make(OpenVLAConfig(statistics="six", **SCALES), six, ACTION_DIM)
    with pytest.raises(ValueError, match="expected position_scale"):
        OpenVLAConfig(statistics="bridge_orig")
    (good / "model-1.safetensors").unlink()
    with pytest.raises(PolicyError, match=r"model-1.safetensors: missing"):
        tiny_policy(good)
    (good / "config.json").write_text(json.dumps(tiny.official_config() | {"model_type": "llava"}))
    with pytest.raises(PolicyError, match=r"expected model_type openvla.*got llava"):
        tiny_policy(good)
    imported = builtins.__import__

    def without_peft(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "peft":
            raise ImportError("no", name="peft")
        return imported(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_peft)
    with pytest.raises(PolicyError, match=r"needs peft.*groundhog\[vla\]"):
        tiny_policy(good)


def test_only_additions_and_the_readings_projector_learn(checkpoint: Path) -> None:
    policy = tiny_policy(checkpoint, moved=False)
    reference, inputs = policy.reference(), tiny_inputs(8)
    plain = policy.sample(inputs, torch.Generator().manual_seed(0))
    frozen = {
        name: weight.clone() for name, weight in policy.network.named_parameters() if not weight.requires_grad
    }
    before = policy.tensors()
    known = reference.log_prob(inputs, plain.tokens)
    torch.testing.assert_close(known, plain.log_prob, rtol=1e-4, atol=1e-5)
    actions = torch.zeros(8, CHUNK, ACTION_DIM)
    actions[::2, :, 0], actions[..., -1] = 0.6, 1.0
    valid = torch.ones(8, CHUNK, dtype=torch.bool)
    valid[:, 1] = False
    config = ImitationConfig(steps=20, batch_size=8, learning_rate=1e-2)
    lessons = Lessons(inputs, actions, valid)
    losses = [m["imitation/loss"] for m in imitate(policy, lessons, config, np.random.default_rng(0))]
    assert losses[-1] < 0.5 * losses[0]
    now = dict(policy.network.named_parameters())
    assert all(torch.equal(now[name], weight) for name, weight in frozen.items())
    after = policy.tensors()
    assert all("lora_" in name or name.startswith("proprio_projector.") for name in after)
    assert not any(torch.equal(after[name], before[name]) for name in before)
    torch.testing.assert_close(reference.log_prob(inputs, plain.tokens), known)  # it stayed
    assert float((policy.log_prob(inputs, plain.tokens) - known).abs().max().detach()) > 0.1


def test_one_group_relative_update_makes_the_better_likelier(checkpoint: Path) -> None:
    policy = tiny_policy(checkpoint)
    inputs = tiny_inputs(4)
    drawn = policy.sample(inputs, torch.Generator().manual_seed(0), 1.6)
    advantage = torch.tensor([1.0, -1.0, 1.0, -1.0])
    valid = torch.ones(4, CHUNK, dtype=torch.bool)
    batch = GRPOBatch(inputs, drawn.tokens, drawn.log_prob, advantage, valid)
    config = GRPOConfig(learning_rate=1e-3, epochs=2, minibatch=2, temperature=1.6)
    grpo = GRPO(policy, policy.reference(), config)
    metrics = grpo.update(batch, np.random.default_rng(0))
    assert all(np.isfinite(value) for value in metrics.values()) and grpo.updates == 4
    gained = (policy.log_prob(inputs, drawn.tokens, 1.6).detach() - drawn.log_prob).sum(dim=(1, 2))
    assert float((gained * advantage).sum()) > 0.0


def test_saved_and_loaded_it_is_the_same_and_small(checkpoint: Path, tmp_path: Path) -> None:
    policy, inputs = tiny_policy(checkpoint, statistics="bridge_orig", **SCALES), tiny_inputs(3)
    policy.save(tmp_path / "policy")
    loaded = load_policy(tmp_path / "policy", CPU)
    assert isinstance(loaded, OpenVLAPolicy) and loaded.config == policy.config
    assert torch.equal(loaded.mode(inputs), policy.mode(inputs))
    assert {path.name for path in (tmp_path / "policy").iterdir()} == {"policy.safetensors", "policy.json"}
    assert policy.tensors().keys() == trained(policy.network).keys()
    with pytest.raises(PolicyError, match="weights"):
        policy.load_tensors({})
    again = write_checkpoint(tmp_path / "other", tiny.official_tensors(seed=1))
    meta = json.loads((tmp_path / "policy" / "policy.json").read_text())
    for place, message in ((again, "another checkpoint"), (tmp_path / "gone", "no such directory")):
        meta["config"]["checkpoint"] = str(place)
        (tmp_path / "policy" / "policy.json").write_text(json.dumps(meta))
        with pytest.raises(PolicyError, match=message):
            load_policy(tmp_path / "policy", CPU)


def test_the_full_size_network_has_the_published_number_of_weights() -> None:
    """7,541,237,184 in the released index, less what stands behind the layers that are used."""
    shape = NetworkShape(
        TowerShape(1024, 24, 4096, 14, 224, registers=4),
        TowerShape(1152, 27, 4304, 14, 224),
        {"vocab_size": 32064},
        32000,
    )
    with torch.device("meta"):
        network = OpenVLANetwork(shape, SPEC)
    held = sum(
        weight.numel()
        for name, weight in network.named_parameters()
        if not name.startswith("proprio_projector.")
    )
    held -= 2 * 1024  # transformers' rows for the class token's place and for masked patches

    def block(width: int, mlp: int) -> int:
        return 4 * width * (width + 1) + width * mlp + mlp + mlp * width + width + 4 * width

    dino = block(1024, 4096) + 2 * 1024 + 2 * 1024  # two scales; the last norm
    pool = 1152 + 4 * 1152 * 1153 + 2 * 1152 + 2 * 1152 * 4304 + 4304 + 1152
    siglip = block(1152, 4304) + 2 * 1152 + pool
    assert held + dino + siglip == 7_541_237_184


def test_the_command_takes_a_checkpoint(tmp_path: Path) -> None:
    command, options = "post-train-vla", ["openvla.checkpoint=/models/openvla", "robot.obs=PIXELS"]
    assert load(command, options).openvla.checkpoint == "/models/openvla"
    with pytest.raises(ConfigError, match=r"use robot.obs=pixels"):
        load(command, [options[0], "robot.obs=STATE"])
    with pytest.raises(ConfigError, match="give one of them"):
        load(command, [*options, "policy=there"])
