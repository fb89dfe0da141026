"""GRPO: against bandits whose gradient is known in closed form, and what it must leave out."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from vla_toy import CHUNK, toy_policy

from reward_model.calibration.advantages import AdvantageConfig, group_advantages
from reward_model.calibration.weight import InverseVarianceWeighter, Law, Scale, WeightConfig, step_scale
from rl.vla.grpo import GRPO, GRPOBatch, GRPOConfig, divergence, informative, make_batch, surrogate
from rl.vla.policy import PolicyInputs
from rl.vla.trajectory import Trajectory
from robot.types import Array, Label

MEANS = np.linspace(0.0, 1.0, 10)  # reward of each arm of the bandit
SIZE = 8  # of a group
NOISE = 0.4  # of a cheap score


def policy_gradients(arms: Array, advantages: Array) -> Array:
    """What the trainer's loss gives for each of G groups alone (G, arms), a uniform policy and a ratio of 1."""
    logits = torch.zeros(len(arms), len(MEANS), dtype=torch.float64, requires_grad=True)
    log_prob = torch.log_softmax(logits, -1).gather(1, torch.from_numpy(arms))
    tokens = log_prob.reshape(-1, 1, 1)
    loss = surrogate(tokens, tokens.detach(), torch.from_numpy(advantages).reshape(-1), 0.2, 0.28)
    (gradient,) = torch.autograd.grad(-loss.view(arms.shape).mean(dim=1).sum(), logits)
    found: Array = gradient.numpy()
    return found


def draw(rng: np.random.Generator, groups: int, noise: float, *, standardise: bool) -> tuple[Array, Array]:
    """Arms and advantages (G, N) of a uniform policy whose rewards carry `noise`."""
    arms = rng.integers(len(MEANS), size=(groups, SIZE))
    rewards = MEANS[arms] + noise * rng.standard_normal(arms.shape)
    config = AdvantageConfig(standardise=standardise)
    return arms, np.stack(group_advantages(list(rewards), [1.0] * groups, config))


def gradients(noise: float, *, standardise: bool, groups: int = 4000) -> Array:
    """One gradient per group (G, arms)."""
    arms, advantages = draw(np.random.default_rng(3), groups, noise, standardise=standardise)
    return policy_gradients(arms, advantages)


def test_the_mean_gradient_is_the_closed_form_one() -> None:
    """d/d logit_a E[r] = pi_a (r_a - E[r]); centring within the group itself scales it by (N - 1) / N."""
    exact = (MEANS - MEANS.mean()) / len(MEANS) * (SIZE - 1) / SIZE
    clean, noisy = gradients(0.0, standardise=False), gradients(NOISE, standardise=False)
    for found in (clean, noisy):
        error = 4.0 * found.std(axis=0) / math.sqrt(len(found))
        assert (np.abs(found.mean(axis=0) - exact) < error).all()
    assert np.corrcoef(gradients(NOISE, standardise=True).mean(axis=0), exact)[0, 1] > 0.98


def test_centred_variance_grows_by_one_plus_s2_and_the_weight_is_that() -> None:
    s2 = measured_disagreement(Law.LINEAR)
    clean, noisy = gradients(0.0, standardise=False), gradients(NOISE, standardise=False)
    ratio = noisy.var(axis=0).sum() / clean.var(axis=0).sum()
    assert ratio == pytest.approx(1.0 + s2, rel=0.12)


def test_standardised_signal_shrinks_by_the_root_of_one_plus_s2() -> None:
    s2 = measured_disagreement(Law.ROOT)
    clean, noisy = gradients(0.0, standardise=True), gradients(NOISE, standardise=True)
    assert noisy.var(axis=0).sum() / clean.var(axis=0).sum() == pytest.approx(1.0, rel=0.1)
    signal = np.linalg.norm(noisy.mean(axis=0)) / np.linalg.norm(clean.mean(axis=0))
    assert signal == pytest.approx(1.0 / math.sqrt(1.0 + s2), rel=0.12)


def measured_disagreement(law: Law) -> float:
    """s^2 as the weighter measures it; its weight must follow the law."""
    weighter = InverseVarianceWeighter(WeightConfig(half_life=1e6), law, Scale.UNIT)
    rng = np.random.default_rng(4)
    for _ in range(600):
        arms = rng.integers(len(MEANS), size=SIZE)
        weighter.observe(MEANS[arms] + NOISE * rng.standard_normal(SIZE), MEANS[arms])
    s2 = weighter.disagreement
    expected = 1.0 + s2 if law is Law.LINEAR else math.sqrt(1.0 + s2)
    assert weighter.weight == pytest.approx(expected)
    return s2


def test_weighted_mixture_has_less_variance_and_the_same_step() -> None:
    """Two anchors among eight groups: weighted by 1 + s^2 and renormalised, the mean stays and the variance falls."""
    s2 = measured_disagreement(Law.LINEAR)
    real, cheap = gradients(0.0, standardise=False), gradients(NOISE, standardise=False)
    rng = np.random.default_rng(5)

    def steps(weight: float) -> Array:
        scale = step_scale(weight, 2, 6)
        picks = rng.integers(len(real), size=(3000, 8))
        sums = weight * real[picks[:, :2]].sum(axis=1) + cheap[picks[:, 2:]].sum(axis=1)
        return sums / (8.0 * scale)

    plain, weighted = steps(1.0), steps(1.0 + s2)
    np.testing.assert_allclose(weighted.mean(axis=0), plain.mean(axis=0), atol=4e-3)
    predicted = 8.0 * (1.0 + s2) / ((2.0 * (1.0 + s2) + 6.0) * (2.0 + 6.0 * (1.0 + s2)) / 8.0)
    assert weighted.var(axis=0).sum() / plain.var(axis=0).sum() == pytest.approx(predicted, rel=0.1)
    assert predicted < 0.9


def test_the_ratio_counts_within_its_clip_only() -> None:
    old = torch.zeros(4, 1, 1)
    log_prob = torch.log(torch.tensor([0.5, 0.9, 1.2, 2.0])).view(4, 1, 1)
    gain = surrogate(log_prob, old, torch.ones(4), 0.2, 0.28).flatten()
    loss = surrogate(log_prob, old, -torch.ones(4), 0.2, 0.28).flatten()
    assert gain.tolist() == pytest.approx([-0.5, -0.9, -1.2, -1.28])
    assert loss.tolist() == pytest.approx([0.8, 0.9, 1.2, 2.0])  # what got worse is always felt


def test_the_divergence_is_that_of_the_distributions() -> None:
    first, second = torch.tensor([0.7, 0.2, 0.1]).log(), torch.tensor([0.4, 0.4, 0.2]).log()
    estimate = (first.exp() * divergence(first, second)).sum()
    assert float(estimate) == pytest.approx(float((first.exp() * (first - second)).sum()), rel=1e-5)
    assert (divergence(first, second) >= 0.0).all()


def test_groups_that_teach_nothing_are_left_out() -> None:
    nan = math.nan
    rewards = [
        np.array(r) for r in ([1, 1, 1], [0, 0, 1], [nan, nan, 1], [0.50, 0.51, 0.5], [nan, 0, 1], [0, 1, 1])
    ]
    factors = [1.0, 1.0, 1.0, 1.0, 1.0, 0.0]  # the last one lies behind a closed gate
    advantages = group_advantages(rewards, factors, AdvantageConfig())
    assert informative(rewards, advantages, min_spread=0.02) == [1, 4]


def trajectory(policy_seed: int, steps: int) -> Trajectory:
    policy = toy_policy(policy_seed)
    inputs = PolicyInputs(
        ["move to the left"] * 2, torch.zeros(2, 0, 1, 1, 3, dtype=torch.uint8), torch.zeros(2, 2)
    )
    drawn = policy.sample(inputs, torch.Generator().manual_seed(policy_seed))
    valid = torch.arange(2 * CHUNK).view(2, CHUNK) < steps
    return Trajectory(
        "left",
        [],
        np.zeros((steps, 7), np.float32),
        inputs,
        drawn.tokens,
        drawn.log_prob,
        valid,
        Label.SUCCESS,
        True,
    )


def test_unknown_members_do_not_enter_the_batch() -> None:
    group = [trajectory(seed, 3) for seed in range(3)]
    batch = make_batch([group, group], [np.array([0.5, math.nan, -0.5]), np.array([9.0, 9.0, 9.0])], [0])
    assert batch is not None
    assert batch.advantage.tolist() == [0.5, 0.5, -0.5, -0.5]
    assert make_batch([group], [np.full(3, math.nan)], [0]) is None
    assert make_batch([group], [np.ones(3)], []) is None


def test_what_was_never_done_teaches_nothing() -> None:
    """Tokens behind the end of an episode change neither the loss nor the policy."""

    def updated(tail: int) -> list[torch.Tensor]:
        policy = toy_policy()
        one = trajectory(0, 3)
        tokens = one.tokens.clone()
        tokens[1, 1] = tail
        batch = GRPOBatch(one.inputs, tokens, one.log_prob, torch.ones(2), one.valid)
        GRPO(policy, policy.reference(), GRPOConfig()).update(batch, np.random.default_rng(0))
        return list(policy.tensors().values())

    for first, second in zip(updated(0), updated(4), strict=True):
        assert torch.equal(first, second)


def test_an_update_makes_good_tokens_likelier_and_the_second_epoch_is_clipped() -> None:
    policy = toy_policy()
    reference = policy.reference()
    good, bad = trajectory(0, 4), trajectory(1, 4)
    batch = make_batch([[good, bad]], [np.array([1.0, -1.0])], [0])
    assert batch is not None
    config = GRPOConfig(learning_rate=0.02, epochs=6, kl=0.0)
    grpo = GRPO(policy, reference, config)
    metrics = grpo.update(batch, np.random.default_rng(0))
    after = {
        name: float(policy.log_prob(one.inputs, one.tokens).detach().sum())
        for name, one in (("good", good), ("bad", bad))
    }
    assert after["good"] > float(good.log_prob.sum()) and after["bad"] < float(bad.log_prob.sum())
    assert metrics["learner/clipped"] > 0.0 and grpo.updates == 6
    assert torch.equal(reference.log_prob(good.inputs, good.tokens), good.log_prob)  # it stays what it was


def test_the_penalty_keeps_the_policy_near_its_reference() -> None:
    kept = {}
    for kl in (0.0, 5.0):
        policy = toy_policy()
        grpo = GRPO(policy, policy.reference(), GRPOConfig(learning_rate=0.01, epochs=20, kl=kl))
        batch = make_batch([[trajectory(0, 4), trajectory(1, 4)]], [np.array([1.0, -1.0])], [0])
        assert batch is not None
        grpo.update(batch, np.random.default_rng(0))
        kept[kl] = grpo.update(batch, np.random.default_rng(0))["learner/kl"]
    assert kept[5.0] < 0.5 * kept[0.0]


def test_a_loss_that_is_no_number_is_refused_before_the_policy_changes() -> None:
    policy = toy_policy()
    before = policy.tensors()
    one = trajectory(0, 4)
    batch = GRPOBatch(one.inputs, one.tokens, one.log_prob, torch.full((2,), math.nan), one.valid)
    with pytest.raises(FloatingPointError, match="grpo: loss nan"):
        GRPO(policy, policy.reference(), GRPOConfig()).update(batch, np.random.default_rng(0))
    assert all(torch.equal(before[name], tensor) for name, tensor in policy.tensors().items())
