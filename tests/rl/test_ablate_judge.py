"""The judge of an ablation lets the policy act that the robot would run, not the newest weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from agent_cases import CPU, make_agent, make_batch, make_observation, make_spec

from rl.ablation.judge import Judge
from rl.agent.acting import MODE, ActingPolicy
from rl.agent.sac import SACAgent
from rl.diagnostics.value import state_values
from rl.replay.journal import EndReason, EpisodeOutcome
from rl.replay.reader import StoreReader
from rl.replay.schema import StoreSchema
from rl.replay.writer import StoreWriter
from robot.types import ACTION_DIM, Float32, Transition

SPEC = make_spec()
STEPS = 12
SEEN = [make_observation(SPEC, seed) for seed in range(STEPS + 1)]  # of the one recorded episode


def record(path: Path) -> StoreReader:
    """A success in which the robot stood still."""
    still = np.zeros(ACTION_DIM, np.float32)
    with StoreWriter(path, StoreSchema("toy", dict(SPEC.views), SPEC.proprio)) as writer:
        writer.begin_episode(SEEN[0])
        for step in range(STEPS):
            last = step == STEPS - 1
            writer.add(Transition(SEEN[step], still, still, float(last), SEEN[step + 1], last, False))
        writer.end_episode(EpisodeOutcome(EndReason.SUCCESS))
    return StoreReader(path)


def averaged() -> SACAgent:
    """An agent whose average lies far behind its newest weights."""
    agent = make_agent(SPEC, policy_every=1, policy_average=0.01, lr=0.02, num_min_critics=4)
    for seed in range(5):
        agent.update(make_batch(SPEC, seed=seed))
    return agent


def acted(policy: ActingPolicy) -> Float32:
    """What it does in the recorded episode, (STEPS + 1, 7)."""
    return policy.act_batch(SEEN, noise=MODE)


def on_robot(agent: SACAgent) -> Float32:
    """The same, of the policy that an actor would load."""
    actor = ActingPolicy(agent.config, agent.spec, device=CPU, seed=1)
    actor.load_tensors(agent.policy_tensors())
    return acted(actor)


def test_agreement_is_that_of_the_policy_on_the_robot(tmp_path: Path) -> None:
    agent, reader = averaged(), record(tmp_path)
    robot, newest = np.abs(on_robot(agent)[:-1, :6]).mean(), np.abs(acted(agent.acting)[:-1, :6]).mean()
    assert abs(robot - newest) > 0.05, "the two have to differ, or this test says nothing"
    said = Judge(agent, reader).measures(reader.episodes())["successes"]
    assert said["steps"] == STEPS and said["error"] == pytest.approx(robot, abs=1e-6)


def test_the_value_of_a_state_is_that_of_the_action_on_the_robot(tmp_path: Path) -> None:
    agent, reader = averaged(), record(tmp_path)
    batch = make_batch(
        SPEC,
        rows=len(SEEN),
        images={view: np.stack([one.images[view] for one in SEEN]) for view in SPEC.views},
        proprio=np.stack([one.proprio for one in SEEN]),
        action=on_robot(agent),
    )
    np.testing.assert_allclose(state_values(agent, reader.schema, SEEN), agent.q_values(batch), atol=1e-6)


def test_fitted_q_evaluates_the_policy_on_the_robot(tmp_path: Path) -> None:
    agent, reader = averaged(), record(tmp_path)
    data = Judge(agent, reader)._evaluation_data(reader.episodes())
    width = agent.acting.encoder.out_dim
    motion = torch.from_numpy(on_robot(agent)[:, list(SPEC.policy_indices)])
    torch.testing.assert_close(data.following[:, width : width + SPEC.policy_dim], motion[1:])
    torch.testing.assert_close(data.first[:, width : width + SPEC.policy_dim], motion[:1])
    # The state is what the critics of this agent see: their encoder, not that of the average.
    torch.testing.assert_close(data.taken[1:, :width], data.following[:-1, :width])
