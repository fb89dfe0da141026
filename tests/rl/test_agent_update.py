"""The update's traps: ends, the subset minimum, the gripper's penalty, weights, bad data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from agent_cases import make_agent, make_batch, make_observation, make_spec

from rl.agent import gripper
from rl.agent.acting import MODE
from rl.agent.sac import SACAgent, SACConfig
from rl.agent.spec import AgentSpec, GripperControl
from rl.batch import SYNTHETIC
from robot.types import Source

PROPRIO_ONLY = make_spec(GripperControl.FIXED, views={})


def constant_targets(agent: SACAgent, values: list[float]) -> None:
    """Make target critic i answer values[i] everywhere."""
    with torch.no_grad():
        agent.target_critic.weights[-1].zero_()
        agent.target_critic.biases[-1].copy_(torch.tensor(values).view(-1, 1, 1))


def td_target(agent: SACAgent, **changes: object) -> np.ndarray:
    batch = make_batch(agent.spec, **changes)
    with torch.no_grad():
        following = agent._staging.next_observation(batch, agent._rng)
        features = agent.acting.encoder(following.stacks, following.proprio)
        return agent._td_target(agent._staging.step(batch), features).numpy()


def test_truncation_bootstraps_and_termination_does_not() -> None:
    agent = make_agent(PROPRIO_ONLY, discount=0.9)
    constant_targets(agent, [2.0] * 4)
    ends = {"terminated": np.array([False, False, True]), "truncated": np.array([False, True, False])}
    target = td_target(agent, rows=3, reward=np.ones(3, np.float32), **ends)
    np.testing.assert_allclose(target, [2.8, 2.8, 1.0], rtol=1e-6)


def test_a_target_that_looks_ahead_discounts_by_its_steps() -> None:
    agent = make_agent(PROPRIO_ONLY, discount=0.9)
    constant_targets(agent, [2.0] * 4)
    ends = {"terminated": np.array([False, False, True]), "truncated": np.zeros(3, bool)}
    target = td_target(
        agent, rows=3, reward=np.ones(3, np.float32), steps=np.array([1, 3, 3], np.uint8), **ends
    )
    np.testing.assert_allclose(target, [2.8, 1.0 + 0.9**3 * 2.0, 1.0], rtol=1e-6)


def test_two_state_chain_reaches_its_analytic_values() -> None:
    """s0 -> s1 (reward 0, truncated), s1 -> end (reward 1, terminal): Q(s1) = 1, Q(s0) = discount."""
    agent = make_agent(PROPRIO_ONLY, discount=0.5, tau=0.1, lr=3e-3, num_critics=2)
    proprio = np.array([[-1.0, 0, 0], [1.0, 0, 0]] * 4, np.float32)
    batch = make_batch(
        PROPRIO_ONLY,
        proprio=proprio,
        next_proprio=np.roll(proprio, -1, axis=0),
        reward=np.array([0, 1] * 4, np.float32),
        terminated=np.array([False, True] * 4),
        truncated=np.array([True, False] * 4),
        action=np.zeros((8, 7), np.float32),
    )
    for seed in range(400):
        action = np.random.default_rng(seed).uniform(-1, 1, (8, 7)).astype(np.float32)
        agent.update_critics_only(replace(batch, action=action))
    np.testing.assert_allclose(agent.q_values(batch)[:2], [0.5, 1.0], atol=0.06)


def test_target_is_the_minimum_over_a_random_subset() -> None:
    agent = make_agent(PROPRIO_ONLY, discount=0.5, num_critics=4, num_min_critics=2)
    constant_targets(agent, [4.0, 1.0, 3.0, 2.0])
    zeros = {"reward": np.zeros(8, np.float32), "terminated": np.zeros(8, bool)}
    seen = [td_target(agent, **zeros) / 0.5 for _ in range(60)]
    assert all(len(set(values.tolist())) == 1 for values in seen)  # one subset per update
    # The largest is never the minimum of two: one member alone would show 4, all members only 1.
    assert {float(values[0]) for values in seen} == {1.0, 2.0, 3.0}


def test_full_subset_is_the_minimum_of_all() -> None:
    agent = make_agent(PROPRIO_ONLY, discount=0.5, num_critics=3, num_min_critics=3)
    constant_targets(agent, [4.0, 1.0, 3.0])
    target = td_target(agent, reward=np.zeros(8, np.float32), terminated=np.zeros(8, bool))
    np.testing.assert_allclose(target, 0.5)


def test_backup_entropy_enters_only_when_asked() -> None:
    def target(backup: bool) -> np.ndarray:
        agent = make_agent(PROPRIO_ONLY, backup_entropy=backup, temperature_init=1.0)
        return td_target(agent, terminated=np.arange(8) < 4)

    without, with_entropy = target(False), target(True)
    np.testing.assert_array_equal(without[:4], with_entropy[:4])
    assert (without[4:] != with_entropy[4:]).all()


def test_penalty_is_taken_from_the_reward_of_real_changes_and_only_with_a_discrete_gripper() -> None:
    changed = np.array([False, True], np.float32)
    ends = {"reward": np.ones(2, np.float32), "terminated": np.ones(2, bool), "gripper_changed": changed}
    discrete, fixed = make_agent(gripper_penalty=0.25), make_agent(PROPRIO_ONLY, gripper_penalty=0.25)
    np.testing.assert_allclose(td_target(discrete, rows=2, **ends), [1.0, 0.75])
    np.testing.assert_allclose(td_target(fixed, rows=2, **ends), [1.0, 1.0])


def test_critics_and_their_target_see_the_command_and_the_motion() -> None:
    agent = make_agent(discount=1.0 - 1e-6, augment_px=0)
    with torch.no_grad():
        for critic in (agent.critic, agent.target_critic):
            critic.weights[0][:, :-1] = 0.0  # blind to all but the command
        agent.acting.gripper.weights[-1].zero_()
        agent.acting.gripper.biases[-1].copy_(torch.tensor([0.0, 0.0, 1.0]))  # always open
    action = np.zeros((3, 7), np.float32)
    action[:, 6] = gripper.COMMANDS
    values = agent.q_values(make_batch(rows=3, action=action))
    assert len(set(values.tolist())) == 3
    not_over = {"reward": np.zeros(3, np.float32), "terminated": np.zeros(3, bool)}
    target = td_target(agent, rows=3, gripper_changed=np.zeros(3, np.float32), **not_over)
    opened = agent.target_critic(
        torch.cat((torch.zeros(1, agent.critic.weights[0].shape[1] - 1), torch.ones(1, 1)), -1)
    )
    assert all(np.isclose(opened.flatten().tolist(), value, rtol=1e-5).any() for value in target)


def test_gripper_policy_prefers_the_valued_command_and_keeps_its_temperature() -> None:
    logits = torch.zeros(1, 3, requires_grad=True)
    values = torch.tensor([[0.1, 0.2, 0.4]])
    for _ in range(400):
        loss = gripper.policy_loss(logits, values, torch.tensor(0.1)).sum()
        (gradient,) = torch.autograd.grad(loss, logits)
        logits = (logits - 10.0 * gradient).detach().requires_grad_()
    torch.testing.assert_close(logits.softmax(-1), (values / 0.1).softmax(-1), atol=1e-3, rtol=0.0)


def test_gripper_commands_their_entries_and_cloning() -> None:
    index = gripper.command_index(torch.tensor([-1.0, -0.5, 0.0, 0.4, 1.0]))
    assert [gripper.COMMANDS[i] for i in index] == [-1.0, 0.0, 0.0, 0.0, 1.0]
    assert gripper.entry(index).flatten().tolist() == [-1.0, 0.0, 0.0, 0.0, 1.0]
    loss = gripper.cloning_loss(torch.log(torch.tensor([[0.2, 0.3, 0.5]])), torch.tensor([2]))
    torch.testing.assert_close(loss, -torch.log(torch.tensor([0.5])))


def test_gripper_policy_clones_experts_only() -> None:
    def loss(source: Source, intervened: bool = False) -> float:
        agent = make_agent(policy_every=1, bc_weight=0.5, bc_weight_final=0.5)
        batch = make_batch(source=np.full(8, source), intervened=np.full(8, intervened))
        return agent.update(batch)["learner/gripper_loss"]

    assert loss(Source.DEMO) == loss(Source.REAL, intervened=True) > loss(Source.REAL) + 0.1


def test_weight_scales_a_sample_and_zero_removes_it() -> None:
    weight = np.ones(8, np.float32)
    weight[:4] = 0.0
    reward = make_batch().reward.copy()
    reward[:4] += 100.0
    kept = make_agent().update(make_batch(weight=weight))
    changed = make_agent().update(make_batch(weight=weight, reward=reward))
    assert kept["learner/critic_loss"] == changed["learner/critic_loss"]
    full = make_agent().update(make_batch(reward=reward))
    assert full["learner/critic_loss"] > 100 * kept["learner/critic_loss"]


def test_critic_trains_the_encoder_and_the_policy_step_moves_neither() -> None:
    with_policy, critics_only = make_agent(policy_every=1), make_agent(policy_every=1)
    before = [p.clone() for p in with_policy.acting.encoder.parameters()]
    with_policy.update(make_batch())
    critics_only.update_critics_only(make_batch())
    for part in (lambda agent: agent.acting.encoder, lambda agent: agent.critic):
        pairs = zip(part(with_policy).parameters(), part(critics_only).parameters(), strict=True)
        assert all(torch.equal(one, other) for one, other in pairs)
    after = with_policy.acting.encoder.parameters()
    assert not any(torch.equal(p, q) for p, q in zip(before, after, strict=True))


def test_policy_and_temperature_move_every_nth_update_only() -> None:
    agent = make_agent(policy_every=3)
    first = agent.policy_tensors()["policy.head.weight"]
    for count in range(1, 4):
        metrics = agent.update(make_batch())
        assert ("learner/entropy" in metrics) == (count == 3)
        assert torch.equal(agent.policy_tensors()["policy.head.weight"], first) == (count < 3)


def test_critic_warm_start_leaves_the_policy_alone() -> None:
    agent = make_agent(policy_every=1)
    first = agent.policy_tensors()
    metrics = agent.update_critics_only(make_batch())
    assert "learner/entropy" not in metrics and agent.updates == 1
    after = agent.policy_tensors()
    assert all(torch.equal(first[name], after[name]) for name in first if name.startswith("policy."))


def test_temperature_falls_when_entropy_is_above_its_target() -> None:
    agent = make_agent(PROPRIO_ONLY, policy_every=1, lr=0.01, target_entropy_per_dim=-50.0)
    start = agent.update(make_batch(PROPRIO_ONLY))["learner/temperature"]
    assert agent.update(make_batch(PROPRIO_ONLY))["learner/temperature"] < start
    agent = make_agent(PROPRIO_ONLY, policy_every=1, lr=0.01, target_entropy_per_dim=50.0)
    start = agent.update(make_batch(PROPRIO_ONLY))["learner/temperature"]
    assert agent.update(make_batch(PROPRIO_ONLY))["learner/temperature"] > start


def test_targets_follow_by_tau() -> None:
    agent = make_agent(tau=0.25)
    old = [p.clone() for p in agent.target_critic.parameters()]
    agent.update(make_batch())
    pairs = zip(old, agent.critic.parameters(), agent.target_critic.parameters(), strict=True)
    for before, online, target in pairs:
        torch.testing.assert_close(target, before + 0.25 * (online - before))


def test_q_values_are_the_minimum_of_the_ensemble_and_leave_no_trace() -> None:
    agent = make_agent()
    with torch.no_grad():
        agent.critic.weights[-1].zero_()
        agent.critic.biases[-1].copy_(torch.tensor([3.0, -1.0, 2.0, 0.0]).view(-1, 1, 1))
    before = agent.state()
    np.testing.assert_allclose(agent.q_values(make_batch()), np.full(8, -1.0))
    after = agent.state()
    assert before[1] == after[1]
    assert all(torch.equal(before[0][name], after[0][name]) for name in before[0])


def test_cloning_weight_falls_linearly_and_counts_experts_only() -> None:
    agent = make_agent(bc_weight=0.5, bc_weight_final=0.1, bc_decay_updates=100, policy_every=1)
    assert agent.bc_weight == 0.5
    agent.updates = 50
    assert agent.bc_weight == pytest.approx(0.3)
    agent.updates = 1000
    assert agent.bc_weight == pytest.approx(0.1)
    staged = agent._staging.step(
        make_batch(
            source=np.array([Source.REAL, Source.DEMO, Source.CORRECTION, Source.SYNTHETIC] * 2, np.uint8),
            intervened=np.array([True] + [False] * 7),
        )
    )
    assert staged.expert.tolist() == [1, 1, 1, 0, 0, 1, 1, 0]


def test_cloning_term_pulls_the_policy_to_expert_actions() -> None:
    demo = np.full(8, Source.DEMO, np.uint8)
    plain, cloned = (make_agent(bc_weight=weight, policy_every=1) for weight in (0.0, 10.0))
    losses = [agent.update(make_batch(source=demo))["learner/policy_loss"] for agent in (plain, cloned)]
    assert losses[1] > losses[0] + 1.0
    agent = make_agent(bc_weight=10.0, policy_every=1)
    assert agent.update(make_batch())["learner/policy_loss"] == losses[0]  # no expert row: no pull


def test_what_is_imitated_enters_the_cloning_terms_alone() -> None:
    source = np.array([Source.DEMO] * 2 + [Source.REAL] * 3 + [Source.SYNTHETIC] * 3, np.uint8)

    def update(number: int, **settings: object) -> tuple[dict[str, float], SACAgent]:
        """One update on a batch whose three synthetic rows are those of another seed, the real ones the same."""
        batch, other = make_batch(rows=8), make_batch(rows=8, seed=number)
        for array in ("action", "reward", "proprio", "next_proprio", "terminated"):
            getattr(batch, array)[5:] = getattr(other, array)[5:]
        agent = make_agent(policy_every=1, bc_weight=1.0, bc_weight_final=1.0, **settings)
        shares = {"demo": 2, "online": 3, SYNTHETIC: 3}
        return agent.update(replace(batch, source=source, shares=shares)), agent

    (one, first), (two, second) = update(1, synthetic_imitated=True), update(2, synthetic_imitated=True)
    imitated = {"policy_loss", "policy_grad_norm", "gripper_loss", "gripper_grad_norm"}
    assert {name for name in one if one[name] != two[name]} == {f"learner/{name}" for name in imitated}
    pairs = zip(first.critic.parameters(), second.critic.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    seen = [update(number)[0]["learner/critic_loss"] for number in (1, 2)]
    assert seen[0] != seen[1], "the critics learn from what is not imitated"


def test_imitation_follows_imagined_actions_as_demonstrated_ones() -> None:
    def loss(source: Source) -> float:
        rows = np.array([Source.DEMO] * 4 + [source] * 4, np.uint8)
        shares = {"demo": 4, SYNTHETIC: 4}
        agent = make_agent(policy_every=1, bc_weight=10.0, bc_weight_final=10.0, synthetic_imitated=True)
        return agent.update(make_batch(source=rows, shares=shares))["learner/policy_loss"]

    assert loss(Source.SYNTHETIC) == loss(Source.DEMO)
    assert abs(loss(Source.SYNTHETIC) - loss(Source.REAL)) > 0.1


@pytest.mark.parametrize(
    ("mode", "dims"),
    [(GripperControl.FIXED, 2), (GripperControl.CONTINUOUS, 3), (GripperControl.DISCRETE, 2)],
)
def test_only_controlled_entries_of_the_action_are_filled(mode: GripperControl, dims: int) -> None:
    spec = make_spec(mode, active=(1, 4))
    agent = make_agent(spec)
    assert spec.policy_dim == dims
    action = agent.act(make_observation(spec))
    assert action.dtype == np.float32 and np.abs(action).max() <= 1.0
    free = {
        GripperControl.FIXED: {1, 4},
        GripperControl.CONTINUOUS: {1, 4, 6},
        GripperControl.DISCRETE: {1, 4},
    }[mode]
    filled = set(np.flatnonzero(action).tolist())
    assert filled - {6} == {1, 4} and (mode is GripperControl.DISCRETE or filled == free)
    assert mode is not GripperControl.DISCRETE or action[6] in gripper.COMMANDS
    agent.update(make_batch(spec))


def test_deterministic_action_repeats_and_a_sample_does_not() -> None:
    agent, observation = make_agent(), make_observation()
    mode = [agent.act(observation, noise=MODE) for _ in range(2)]
    sample = [agent.act(observation) for _ in range(2)]
    np.testing.assert_array_equal(mode[0], mode[1])
    assert (sample[0][:6] != sample[1][:6]).all()


def test_noise_counts_in_standard_deviations_and_leaves_the_generator_alone() -> None:
    agent, observation = make_agent(std_init=0.5), make_observation()
    before = agent.acting.generator.get_state()
    mode, off = (agent.act(observation, noise=noise) for noise in (MODE, np.full_like(MODE, 0.8)))
    np.testing.assert_allclose(np.arctanh(off[:6]) - np.arctanh(mode[:6]), 0.8 * 0.5, rtol=0.05)
    assert torch.equal(before, agent.acting.generator.get_state())


def test_nan_names_the_loss_and_applies_nothing() -> None:
    agent = make_agent(policy_every=1)
    agent.update(make_batch())
    before = agent.policy_tensors()
    critic = [p.clone() for p in agent.critic.parameters()]
    bad = np.full(8, np.nan, np.float32)
    with pytest.raises(FloatingPointError, match=r"critic loss is nan.*after 1 updates"):
        agent.update(make_batch(reward=bad))
    after = agent.policy_tensors()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert all(torch.equal(p, q) for p, q in zip(critic, agent.critic.parameters(), strict=True))
    with torch.no_grad():
        agent.log_temperature.fill_(float("nan"))
    with pytest.raises(FloatingPointError, match="policy loss"):
        agent.update(make_batch())


def test_a_sensor_that_is_not_finite_never_becomes_an_action() -> None:
    observation = make_observation()
    observation.proprio[1] = np.nan
    with pytest.raises(FloatingPointError, match="finite action"):
        make_agent().act(observation, noise=MODE)


def test_other_views_or_sizes_are_named() -> None:
    agent = make_agent()
    other = make_batch(make_spec(views={"front": (24, 24), "side": (24, 24)}))
    with pytest.raises(ValueError, match=r"expected views \['front', 'wrist'\], got \['front', 'side'\]"):
        agent.update(other)
    small = make_spec(views={"front": (24, 24), "wrist": (16, 24)})
    with pytest.raises(
        ValueError, match=r"batch\.images\[wrist\]: expected \(8, 24, 24, 3\).*\(8, 16, 24, 3\)"
    ):
        agent.behaviour_cloning(make_batch(small))
    with pytest.raises(ValueError, match=r"observation\.images\[wrist\]"):
        agent.act(make_observation(small), noise=MODE)
    with pytest.raises(ValueError, match=r"batch\.action: expected \(8, 7\), got \(8, 6\)"):
        agent.q_values(make_batch(action=np.zeros((8, 6), np.float32)))


@pytest.mark.parametrize(
    "changes",
    [
        {"discount": 1.0},
        {"tau": 0.0},
        {"num_min_critics": 5},
        {"bc_weight_final": 1.0},
        {"hidden": 0},
        {"lr": -1.0},
        {"synthetic_imitated": True},
        {"synthetic_trains_policy": True, "synthetic_imitated": True, "bc_weight": 1, "bc_weight_final": 1},
    ],
)
def test_configuration_out_of_range_is_refused(changes: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(changes))):
        SACConfig(**changes)


def test_spec_survives_json_and_refuses_bad_dimensions() -> None:
    spec = make_spec(GripperControl.CONTINUOUS, active=(0, 2))
    restored = AgentSpec.from_json(spec.to_json())
    assert restored.to_json() == spec.to_json() and restored.fingerprint() == spec.fingerprint()
    assert restored.policy_indices == (0, 2, 6)
    for active in ((), (2, 0), (0, 6), (1, 1)):
        with pytest.raises(ValueError, match=r"AgentSpec\.active"):
            make_spec(active=active)
