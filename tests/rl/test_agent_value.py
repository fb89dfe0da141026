"""ValueModel: outside the learner the critics say what they say inside, on the encoder that they learn with."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from agent_cases import CPU, make_agent, make_batch, make_spec

from rl.agent.value import ValueModel
from rl.agent.weights import WeightsError

SPEC = make_spec()


def test_values_are_those_of_the_learner_also_where_an_average_acts() -> None:
    agent = make_agent(SPEC, policy_every=1, policy_average=0.01, lr=0.02, num_min_critics=4)
    for seed in range(5):
        agent.update(make_batch(SPEC, seed=seed))
    batch = make_batch(SPEC, seed=9)
    value = ValueModel(agent.config, SPEC, device=CPU)
    value.load_tensors(agent.value_tensors())

    def by_hand(encoder: torch.nn.Module) -> np.ndarray:
        with torch.inference_mode():
            now, step = agent._staging.observation(batch, None), agent._staging.step(batch)
            inputs = agent.acting.critic_input(encoder(now.stacks, now.proprio), step.action, step.gripper)
            return agent.target_critic(inputs).squeeze(-1).amin(dim=0).numpy()

    np.testing.assert_allclose(value.q(batch), by_hand(agent.acting.encoder), atol=1e-6)
    other = np.abs(by_hand(agent.robot_policy.encoder) - value.q(batch)).max()
    assert other > 1e-4, "the two encoders have to differ, or this test says nothing"


def test_values_of_another_learner_are_refused_whole() -> None:
    agent = make_agent(SPEC)
    value = ValueModel(agent.config, SPEC, device=CPU)
    value.load_tensors(agent.value_tensors())
    before = value.q(make_batch(SPEC))
    with pytest.raises(WeightsError):
        value.load_tensors({name: t for name, t in agent.value_tensors().items() if "critic" in name})
    np.testing.assert_array_equal(value.q(make_batch(SPEC)), before)
