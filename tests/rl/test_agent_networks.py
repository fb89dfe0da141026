"""The mathematics below the update: independent critics, an exact policy density, proprio at two scales."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from agent_cases import proprio_spec

from rl.agent.distribution import SquashedGaussian
from rl.agent.features import ProprioFeatures
from rl.agent.networks import EnsembleMLP, GaussianPolicy


def test_members_share_no_parameter_down_to_the_last_layer() -> None:
    torch.manual_seed(0)
    critic = EnsembleMLP(4, 6, 8, 1)
    x = torch.randn(5, 6)
    for member in range(4):
        critic.zero_grad()
        critic(x)[member].sum().backward()
        for parameter in critic.parameters():
            reached = parameter.grad.flatten(1).abs().sum(1) > 0
            assert reached.tolist() == [index == member for index in range(4)]


def test_members_disagree_at_the_start() -> None:
    torch.manual_seed(0)
    values = EnsembleMLP(4, 6, 8, 1)(torch.randn(32, 6)).squeeze(-1)
    assert values.std(dim=0).min() > 1e-4


def test_member_selection_matches_the_full_ensemble() -> None:
    torch.manual_seed(0)
    critic, x = EnsembleMLP(4, 6, 8, 3), torch.randn(5, 6)
    torch.testing.assert_close(critic(x, [3, 1]), critic(x)[[3, 1]])


def test_ensemble_equals_one_perceptron_per_member() -> None:
    torch.manual_seed(0)
    critic, x = EnsembleMLP(3, 6, 8, 1), torch.randn(5, 6)
    for member in range(3):
        h = x
        for weight, bias in zip(critic.weights[:-1], critic.biases[:-1], strict=True):
            h = torch.relu(torch.nn.functional.layer_norm(h @ weight[member] + bias[member], (8,)))
        expected = h @ critic.weights[-1][member] + critic.biases[-1][member]
        torch.testing.assert_close(critic(x)[member], expected)


def test_log_probability_matches_torch_distributions() -> None:
    torch.manual_seed(0)
    mean, log_std, noise = (torch.randn(64, 3, dtype=torch.float64) for _ in range(3))
    action, log_prob = SquashedGaussian(mean, log_std).sample(noise)
    reference = torch.distributions.TransformedDistribution(
        torch.distributions.Normal(mean, log_std.exp()), [torch.distributions.TanhTransform(cache_size=1)]
    )
    u = mean + noise * log_std.exp()
    expected = reference.base_dist.log_prob(u) - reference.transforms[0].log_abs_det_jacobian(u, action)
    torch.testing.assert_close(log_prob, expected.sum(-1))


def test_log_probability_is_finite_where_tanh_rounds_to_one() -> None:
    mean = torch.tensor([[-60.0, 60.0]], requires_grad=True)
    action, log_prob = SquashedGaussian(mean, torch.zeros(1, 2)).sample(torch.zeros(1, 2))
    log_prob.sum().backward()
    assert action.abs().min() == 1.0
    assert torch.isfinite(log_prob).all() and torch.isfinite(mean.grad).all()


def test_std_is_a_standard_deviation_not_a_variance() -> None:
    noise = torch.randn(20_000, 1, generator=torch.Generator().manual_seed(0))
    action, _ = SquashedGaussian(torch.zeros(1, 1), torch.full((1, 1), np.log(0.04))).sample(noise)
    assert torch.atanh(action).std().item() == pytest.approx(0.04, rel=0.03)


def test_policy_starts_near_zero_motion_at_its_std_and_clamps_it() -> None:
    torch.manual_seed(0)
    policy = GaussianPolicy(6, 16, 3, (-5.0, 1.0), 0.2)
    start = policy(torch.randn(32, 6))
    assert start.mean.abs().max() < 0.1
    assert (start.log_std.exp() - 0.2).abs().max() < 0.02
    with torch.no_grad():
        policy.head.bias[3:] = 99.0
    assert policy(torch.randn(2, 6)).log_std.unique().tolist() == [1.0]


def test_features_show_the_millimetre_and_the_metre() -> None:
    features = ProprioFeatures(proprio_spec(dim=3, fine=0.003))
    assert features.out_dim == 5
    near, far = torch.tensor([[0.1, 0.1, 0.1]]), torch.tensor([[0.102, 99.0, -99.0]])
    np.testing.assert_allclose(features(near)[0], np.zeros(5), atol=1e-6)
    expected = [0.002 / 0.5, 10.0, -10.0, np.tanh(0.002 / 0.003), 1.0]
    np.testing.assert_allclose(features(far)[0], expected, rtol=1e-4)


def test_readings_that_are_not_shown_change_nothing() -> None:
    spec = proprio_spec(dim=3, fine=0.003)
    features, whole = ProprioFeatures(spec, spec.names[1:2]), ProprioFeatures(spec)
    seen = torch.tensor([[0.102, 5.0, -0.3], [0.102, -5.0, -0.3]])
    shown = features(seen)
    assert features.out_dim == shown.shape[1] == 4 - int(spec.fine[1] > 0)
    torch.testing.assert_close(shown[0], shown[1])
    torch.testing.assert_close(shown[:, :2], whole(seen)[:, [0, 2]])
    with pytest.raises(ValueError, match="unseen: elbow is no reading of this robot; there are"):
        ProprioFeatures(spec, ["elbow"])
    with pytest.raises(ValueError, match="at least one reading"):
        ProprioFeatures(spec, spec.names)
