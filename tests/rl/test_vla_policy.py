"""The small policy keeps its interface's promises: probabilities, randomness, words, files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from vla_toy import CHUNK, INSTRUCTIONS, PROPRIO, toy_builder, toy_policy

from rl.agent.acting import MODE
from rl.vla.acting import ChunkActor
from rl.vla.factory import load_policy
from rl.vla.imitation import ImitationConfig, Lessons, chunks, imitate
from rl.vla.inputs import InputBuilder, merge
from rl.vla.policy import PolicyError, PolicyInputs, PolicySpec, concatenate
from rl.vla.small import SmallConfig, SmallPolicy
from robot.types import ACTION_DIM, Observation, ProprioSpec

CPU = torch.device("cpu")
SEEING = SmallConfig(chunk=3, bins=7, hidden=32, feature_dim=16)


def seeing_policy(seed: int = 0) -> SmallPolicy:
    spec = PolicySpec(("wrist", "side"), (32, 32), PROPRIO, chunk=3, tokens=ACTION_DIM)
    policy = SmallPolicy(SEEING, spec, device=CPU, seed=seed)
    # Far from uniform, so that a wrong probability shows.
    torch.nn.init.normal_(policy.network.head.weight, std=0.5, generator=torch.Generator().manual_seed(seed))
    return policy


def seeing_inputs(batch: int, seed: int = 0) -> PolicyInputs:
    rng = np.random.default_rng(seed)
    images = rng.integers(256, size=(batch, 2, 32, 32, 3), dtype=np.uint8)
    proprio = torch.from_numpy(rng.standard_normal((batch, 2)).astype(np.float32))
    texts = [INSTRUCTIONS["left" if i % 2 else "right"] for i in range(batch)]
    return PolicyInputs(texts, torch.from_numpy(images), proprio)


@pytest.mark.parametrize("temperature", [1.0, 1.6])
def test_sampled_probabilities_are_those_of_log_prob(temperature: float) -> None:
    policy, inputs = seeing_policy(), seeing_inputs(6)
    drawn = policy.sample(inputs, torch.Generator().manual_seed(1), temperature)
    again = policy.log_prob(inputs, drawn.tokens, temperature)
    assert again.requires_grad and not drawn.log_prob.requires_grad
    torch.testing.assert_close(again.detach(), drawn.log_prob)
    assert drawn.actions.shape == (6, 3, ACTION_DIM) and drawn.log_prob.shape == (6, 3, ACTION_DIM)
    assert set(drawn.actions[..., -1].unique().tolist()) <= {-1.0, 1.0}  # closed or open, nothing between
    assert float(drawn.actions.abs().max()) <= 1.0


def test_frequencies_follow_the_probabilities() -> None:
    policy = seeing_policy()
    inputs = seeing_inputs(1)
    many = concatenate([inputs] * 4000)
    tokens = policy.sample(many, torch.Generator().manual_seed(0)).tokens[:, 1, 2]
    for token in range(SEEING.bins):
        chosen = torch.full((1, 3, ACTION_DIM), token)
        chosen[..., -1] = 0
        expected = float(policy.log_prob(inputs, chosen)[0, 1, 2].exp().detach())
        assert float((tokens == token).float().mean()) == pytest.approx(expected, abs=0.03)


def test_all_randomness_is_the_generators() -> None:
    policy, inputs = seeing_policy(), seeing_inputs(3)
    before = torch.random.get_rng_state()
    first, second = (policy.sample(inputs, torch.Generator().manual_seed(7)) for _ in range(2))
    assert torch.equal(first.tokens, second.tokens)
    assert torch.equal(policy.mode(inputs), policy.mode(inputs))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(seeing_policy(3).tensors()["head.bias"], seeing_policy(3).tensors()["head.bias"])


def test_a_decision_does_not_depend_on_the_others_of_its_batch() -> None:
    policy, inputs = seeing_policy(), seeing_inputs(5)
    tokens = policy.sample(inputs, torch.Generator().manual_seed(0)).tokens
    together = policy.log_prob(inputs, tokens).detach()
    for index in range(5):
        alone = policy.log_prob(inputs.rows(torch.tensor([index])), tokens[index : index + 1]).detach()
        torch.testing.assert_close(alone[0], together[index], rtol=1e-4, atol=1e-5)


def test_imitation_learns_what_the_words_say() -> None:
    """The same picture and reading, two instructions, opposite actions."""
    policy = toy_policy()
    texts = list(INSTRUCTIONS.values()) * 8
    inputs = PolicyInputs(texts, torch.zeros(16, 0, 1, 1, 3, dtype=torch.uint8), torch.zeros(16, 2))
    actions = torch.zeros(16, CHUNK, ACTION_DIM)
    actions[0::2, :, 0], actions[1::2, :, 0] = -1.0, 0.5
    actions[..., -1] = 1.0
    valid = torch.ones(16, CHUNK, dtype=torch.bool)
    valid[:, 1] = False
    actions[:, 1] = -1.0  # padding, not to be learned
    lessons = Lessons(inputs, actions, valid)
    config = ImitationConfig(steps=60, batch_size=16, learning_rate=1e-2)
    losses = [m["imitation/loss"] for m in imitate(policy, lessons, config, np.random.default_rng(0))]
    assert losses[-1] < 0.1 < losses[0]
    shown = policy.mode(inputs.rows(torch.tensor([0, 1])))
    assert shown[:, 0, 0].tolist() == [-1.0, 0.5] and shown[:, 0, -1].tolist() == [1.0, 1.0]


def test_chunks_end_with_the_episode() -> None:
    actions = np.arange(1, 4, dtype=np.float32)[:, None].repeat(ACTION_DIM, axis=1)
    cut, valid = chunks(actions, 2)
    assert cut[:, :, 0].tolist() == [[1, 2], [2, 3], [3, 0]]
    assert valid.tolist() == [[True, True], [True, True], [True, False]]


def test_a_chunk_is_acted_out_and_forgotten_at_a_reset() -> None:
    policy = toy_policy()
    actor = ChunkActor(policy, toy_builder(policy), "left")
    calls = []
    inner = policy.mode
    policy.mode = lambda inputs: (calls.append(inputs), inner(inputs))[1]  # type: ignore[method-assign, func-returns-value]
    seen = Observation({}, np.zeros(2, np.float32), 0.0)
    for _ in range(CHUNK + 1):
        assert actor.act(seen, noise=MODE).shape == (ACTION_DIM,)
    assert len(calls) == 2
    actor.forget()
    actor.act(seen, noise=MODE)
    assert len(calls) == 3
    with pytest.raises(ValueError, match="noise of zeros"):
        actor.act(seen, noise=np.ones_like(MODE))


def test_saved_and_loaded_it_is_the_same(tmp_path: Path) -> None:
    policy, inputs = seeing_policy(), seeing_inputs(4)
    policy.save(tmp_path / "policy")
    loaded = load_policy(tmp_path / "policy", CPU)
    assert loaded.spec.to_json() == policy.spec.to_json()
    assert torch.equal(loaded.mode(inputs), policy.mode(inputs))
    assert {path.name for path in (tmp_path / "policy").iterdir()} == {"policy.safetensors", "policy.json"}


def test_damaged_files_and_foreign_weights_are_refused_by_name(tmp_path: Path) -> None:
    policy = toy_policy()
    policy.save(tmp_path)
    with pytest.raises(PolicyError, match=r"policy.json: missing; is .* a policy's directory"):
        load_policy(tmp_path / "none", CPU)
    weights = tmp_path / "policy.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-4])
    with pytest.raises(PolicyError, match="does not match its checksum"):
        load_policy(tmp_path, CPU)
    weights.write_bytes(whole)
    meta = json.loads((tmp_path / "policy.json").read_text())
    (tmp_path / "policy.json").write_text(json.dumps(meta | {"kind": "other"}))
    with pytest.raises(PolicyError, match="kind 'other'; known"):
        load_policy(tmp_path, CPU)
    (tmp_path / "policy.json").write_text("{")
    with pytest.raises(PolicyError, match="torn or no policy"):
        load_policy(tmp_path, CPU)
    before = policy.tensors()
    with pytest.raises(PolicyError, match="weights"):
        policy.load_tensors(seeing_policy().tensors())
    assert all(torch.equal(before[name], tensor) for name, tensor in policy.tensors().items())


def test_wrong_inputs_are_refused_by_name() -> None:
    policy, inputs = seeing_policy(), seeing_inputs(2)
    with pytest.raises(PolicyError, match=r"images: expected \(2, 2, 32, 32, 3\)"):
        policy.mode(PolicyInputs(inputs.instruction, inputs.images[:, :1], inputs.proprio))
    with pytest.raises(PolicyError, match="proprio: expected"):
        policy.mode(PolicyInputs(inputs.instruction, inputs.images, inputs.proprio.double()))
    with pytest.raises(PolicyError, match="tokens: expected"):
        policy.log_prob(inputs, torch.zeros(2, 3, ACTION_DIM))


def test_several_tasks_share_one_vector_of_readings() -> None:
    other = ProprioSpec(
        ("place", "height"),
        np.array([5.0, 2.0], np.float32),
        np.ones(2, np.float32),
        np.array([0.3, 0.0], np.float32),
    )
    both = merge([PROPRIO, other])
    assert both.names == ("place", "noise", "height") and both.offset.tolist() == [0.0, 0.0, 2.0]
    spec = PolicySpec((), (1, 1), both, chunk=CHUNK, tokens=ACTION_DIM)
    builder = InputBuilder(spec, {"a": "do a", "b": "do b"}, {"a": PROPRIO, "b": other})
    seen = Observation({}, np.array([7.0, 8.0], np.float32), 0.0)
    assert builder.build("a", [seen]).proprio.tolist() == [
        [7.0, 8.0, 2.0]
    ]  # what it lacks reads as its offset
    assert builder.build("b", [seen]).proprio.tolist() == [[7.0, 0.0, 8.0]]
    assert builder.build("b", [seen]).instruction == ["do b"]
    with pytest.raises(PolicyError, match="knows no reading 'height'"):
        InputBuilder(PolicySpec((), (1, 1), PROPRIO, 1, 7), {"b": "do b"}, {"b": other})
    camera = PolicySpec(("wrist",), (8, 8), PROPRIO, chunk=1, tokens=7)
    with pytest.raises(PolicyError, match="needs the view 'wrist'"):
        InputBuilder(camera, {"a": "do a"}, {"a": PROPRIO}).build("a", [seen])


def test_the_spec_survives_json() -> None:
    spec = seeing_policy().spec
    assert PolicySpec.from_json(json.loads(json.dumps(spec.to_json()))).to_json() == spec.to_json()
    with pytest.raises(PolicyError, match="expected the form of to_json"):
        PolicySpec.from_json({"views": []})
