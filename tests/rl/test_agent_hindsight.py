"""The hindsight head: its labels, where its gradient goes and where not, and that it learns what an image shows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from agent_cases import CPU, TINY, make_agent, make_batch, make_observation, make_spec, proprio_spec

from rl import checkpoint
from rl.agent.acting import MODE, ActingPolicy
from rl.agent.encoders import HeadKind
from rl.agent.hindsight import HindsightConfig, HindsightHead
from rl.agent.sac import SACAgent
from rl.agent.spec import AgentSpec, GoalOffset, GoalUnit, GripperControl
from rl.agent.weights import WeightsError
from rl.batch import Batch

GOAL = (GoalOffset(0, GoalUnit.METRE, 0.03, 0.003), GoalOffset(2, GoalUnit.RADIAN, 0.15, 0.06))
SPEC = make_spec(goal=GOAL)
ON = HindsightConfig(enabled=True, hidden=16)


def seeing_agent(spec: AgentSpec = SPEC, seed: int = 0, **changes: Any) -> SACAgent:
    return make_agent(spec, seed, **{"hindsight": ON, **changes})


def head_of(agent: SACAgent) -> HindsightHead:
    head = agent.acting.encoder.hindsight
    assert head is not None
    return head


def test_offsets_are_pose_differences_in_coarse_scales() -> None:
    head = HindsightHead(ON, GOAL, 4)
    proprio = torch.tensor([[0.05, 9.0, 0.2]])
    offset = head.offset(proprio, torch.tensor([[0.02, 5.0, 0.5]]))
    torch.testing.assert_close(offset, torch.tensor([[1.0, -2.0]]))
    features = head.features(torch.tensor([[0.1, -0.4]]))
    expected = [0.1, -0.4, np.tanh(0.003 / 0.003), np.tanh(-0.06 / 0.06)]
    torch.testing.assert_close(features, torch.tensor([expected], dtype=torch.float32))


def test_loss_and_errors_count_labelled_rows_only() -> None:
    head = HindsightHead(ON, GOAL, 4)
    predicted = torch.tensor([[0.0, 0.0], [0.5, 0.0], [7.0, 7.0]], requires_grad=True)
    known = torch.tensor([True, True, False])
    loss = head.loss(predicted, torch.tensor([[0.0, 0.05], [0.2, 0.0], [0.0, 0.0]]), known)
    # Quadratic below beta = .1, then linear: .05^2 / .2 in the first row, .3 - .05 in the second; their mean.
    assert loss.item() == pytest.approx((0.0125 + 0.25) / 2)
    loss.backward()
    assert predicted.grad is not None and not predicted.grad[2].any() and predicted.grad[:2].any()
    offset = torch.tensor([[0.1, -0.2], [0.1, 0.0], [0.0, 0.0]])
    errors = head.errors(predicted, offset, torch.tensor([True, False, False]))
    assert errors["hindsight_error_mm"].item() == pytest.approx(3.0)
    assert errors["hindsight_error_rad"].item() == pytest.approx(0.03)
    nothing = head.loss(predicted, offset, torch.zeros(3, dtype=torch.bool))
    assert nothing.item() == 0.0


@pytest.mark.parametrize("head_kind", list(HeadKind))
def test_its_gradient_reaches_the_trunk_and_no_other_loss_reaches_it(head_kind: HeadKind) -> None:
    agent = seeing_agent(encoder=replace(TINY, head=head_kind))
    batch = make_batch(SPEC)
    now = agent._staging.observation(batch, None)
    features, predicted = agent.acting.encoder.encode(now.stacks, now.proprio)
    assert predicted is not None and features.shape == (8, agent.acting.encoder.out_dim)
    head = list(head_of(agent).parameters())
    trunk = list(agent.acting.encoder.trunk.parameters())  # type: ignore[union-attr]
    losses, _ = agent._hindsight(batch, now, predicted)
    reached = torch.autograd.grad(losses["hindsight"], head + trunk, retain_graph=True)
    assert all(bool(gradient.any()) for gradient in reached)
    critic = agent.critic(torch.cat((features, torch.zeros(8, SPEC.policy_dim + 1)), -1)).sum()
    assert agent.acting.gripper is not None
    others = critic + agent.acting.policy(features).mode.sum() + agent.acting.gripper(features).sum()
    blocked = torch.autograd.grad(others, head + trunk, allow_unused=True)
    assert all(gradient is None for gradient in blocked[: len(head)])
    assert all(gradient is not None and bool(gradient.any()) for gradient in blocked[len(head) :])


def test_policy_and_critics_see_the_prediction() -> None:
    agent, batch = seeing_agent(), make_batch(SPEC)
    blind = make_agent(SPEC)
    assert agent.acting.encoder.out_dim == blind.acting.encoder.out_dim + 2 * len(GOAL)
    before = agent.q_values(batch), agent.act(make_observation(SPEC), noise=MODE)
    with torch.no_grad():
        head_of(agent).layers[-1].bias += 1.0
    assert not np.array_equal(before[0], agent.q_values(batch))
    assert not np.array_equal(before[1], agent.act(make_observation(SPEC), noise=MODE))


def parameters(agent: SACAgent, prefix: str) -> dict[str, torch.Tensor]:
    tensors = agent.policy_tensors()
    return {name: tensor for name, tensor in tensors.items() if name.startswith(prefix)}


@pytest.mark.parametrize("verb", [SACAgent.update, SACAgent.update_critics_only, SACAgent.behaviour_cloning])
def test_every_verb_trains_it_and_reports_its_error(verb: Any) -> None:
    agent, batch = seeing_agent(), make_batch(SPEC)
    before = parameters(agent, "encoder.hindsight.")
    metrics = verb(agent, batch)
    after = parameters(agent, "encoder.hindsight.")
    assert all(not torch.equal(before[name], after[name]) for name in before)
    assert {"learner/hindsight_loss", "learner/hindsight_error_mm", "learner/hindsight_error_rad"} <= {
        *metrics
    }
    assert all(np.isfinite(value) for value in metrics.values())


def test_the_loss_of_the_critic_stays_apart_from_it() -> None:
    light, heavy = (seeing_agent(hindsight=replace(ON, weight=weight)) for weight in (1.0, 10.0))
    one, other = light.update(make_batch(SPEC)), heavy.update(make_batch(SPEC))
    assert one["learner/critic_loss"] == other["learner/critic_loss"]
    assert other["learner/hindsight_loss"] == pytest.approx(10 * one["learner/hindsight_loss"], rel=1e-5)
    assert other["learner/critic_grad_norm"] > 2 * one["learner/critic_grad_norm"]  # through the encoder


def test_a_batch_without_goals_teaches_it_nothing() -> None:
    agent = seeing_agent()
    before = parameters(agent, "encoder.hindsight.")
    metrics = agent.update(make_batch(SPEC, goal_known=np.zeros(8, bool)))
    assert metrics["learner/hindsight_loss"] == 0.0 and "learner/hindsight_error_mm" not in metrics
    after = parameters(agent, "encoder.hindsight.")
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_unlabelled_rows_do_not_change_an_update() -> None:
    goal = make_batch(SPEC).goal_proprio.copy()
    goal[3::4] += 5.0  # the rows of `make_batch` whose goal is not known
    one, other = seeing_agent(), seeing_agent()
    assert one.update(make_batch(SPEC)) == other.update(make_batch(SPEC, goal_proprio=goal))


@pytest.mark.parametrize("mode", list(GripperControl))
def test_actor_and_learner_act_bit_for_bit_alike(mode: GripperControl) -> None:
    spec = make_spec(mode, goal=GOAL)
    agent = seeing_agent(spec, policy_every=1)
    for seed in range(3):
        agent.update(make_batch(spec, seed=seed))
    actor = ActingPolicy(agent.config, spec, device=CPU, seed=5)
    actor.load_tensors(agent.policy_tensors())
    actor.generator.set_state(agent.acting.generator.get_state())
    for seed in range(3):
        observation = make_observation(spec, seed)
        for noise in (MODE, None):
            expected = agent.act(observation, noise=noise)
            np.testing.assert_array_equal(actor.act(observation, noise=noise), expected)
    with pytest.raises(WeightsError):
        ActingPolicy(make_agent(spec).config, spec, device=CPU, seed=5).load_tensors(agent.policy_tensors())


def test_resume_is_bit_equal(tmp_path: Path) -> None:
    straight, first = (seeing_agent(policy_every=2, grad_clip=10.0) for _ in range(2))
    for agent in (straight, first):
        agent.behaviour_cloning(make_batch(SPEC, seed=99))
        for seed in range(4):
            agent.update(make_batch(SPEC, seed=seed))
    checkpoint.save(tmp_path, *first.state())
    loaded = checkpoint.load_latest(tmp_path)
    assert loaded is not None
    second = seeing_agent(seed=7, policy_every=2, grad_clip=10.0)
    second.load_state(loaded.tensors, loaded.meta)
    for seed in range(4, 8):
        assert second.update(make_batch(SPEC, seed=seed)) == straight.update(make_batch(SPEC, seed=seed))
    (tensors, meta), (others, other_meta) = straight.state(), second.state()
    assert meta == other_meta and tensors.keys() == others.keys()
    assert all(torch.equal(tensors[name], others[name]) for name in tensors)


@pytest.mark.parametrize(
    ("spec", "missing"), [(make_spec(views={}, goal=GOAL), "camera images"), (make_spec(), "goal offsets")]
)
def test_an_agent_that_cannot_have_one_is_refused(spec: AgentSpec, missing: str) -> None:
    with pytest.raises(ValueError, match=rf"agent\.hindsight\.enabled: expected {missing}"):
        seeing_agent(spec)
    make_agent(spec)  # switched off it stands in nobody's way


def test_goals_are_part_of_the_spec() -> None:
    restored = AgentSpec.from_json(SPEC.to_json())
    assert restored.goal == GOAL and restored.fingerprint() == SPEC.fingerprint()
    finer = make_spec(goal=(replace(GOAL[0], fine=0.001), GOAL[1]))
    assert finer.fingerprint() != SPEC.fingerprint() != make_spec().fingerprint()
    for wrong in ((GOAL[0], GOAL[0]), (replace(GOAL[0], index=3),)):
        with pytest.raises(ValueError, match=r"AgentSpec\.goal: expected distinct indices below 3"):
            make_spec(goal=wrong)
    with pytest.raises(ValueError, match=r"GoalOffset.*fine > 0"):
        replace(GOAL[0], fine=0.0)


PX, RANGE = 32, 0.03  # image side; largest offset, m
DOT = AgentSpec(
    {"zoom": (PX, PX)},
    proprio_spec(dim=2),
    goal=tuple(GoalOffset(axis, GoalUnit.METRE, RANGE, 0.003) for axis in range(2)),
)


def dots(rows: int, seed: int) -> Batch:
    """A bright dot, 1 pixel per 2.5 mm from the middle, shows the offset; pose and goal alone say nothing of it."""
    rng = np.random.default_rng(seed)
    offset = rng.uniform(-RANGE, RANGE, (rows, 2)).astype(np.float32)
    goal = rng.uniform(-0.5, 0.5, (rows, 2)).astype(np.float32)
    place = PX / 2 - 0.5 + offset / 0.0025
    pixel = np.arange(PX)
    distance = [(pixel[None] - place[:, axis, None]) ** 2 for axis in range(2)]
    bright = 255 * np.exp(-(distance[0][:, :, None] + distance[1][:, None, :]) / 4)
    images = {"zoom": np.repeat(bright[..., None], 3, axis=-1).astype(np.uint8)}
    return make_batch(
        DOT,
        rows,
        seed,
        images=images,
        next_images=images,
        proprio=goal + offset,
        goal_proprio=goal,
        goal_known=rng.random(rows) < 0.7,
    )


def test_it_learns_millimetres_from_pixels() -> None:
    """Every batch is new, and its error is taken before the step: an error on unseen images."""
    agent = seeing_agent(DOT, hindsight=replace(ON, hidden=64), lr=1e-3, augment_px=0)
    errors = [agent.update(dots(64, seed))["learner/hindsight_error_mm"] for seed in range(250)]
    assert errors[0] > 0.2 * 1e3 * RANGE
    assert np.median(errors[-10:]) < 0.1 * 1e3 * RANGE
