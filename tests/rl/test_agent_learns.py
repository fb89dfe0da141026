"""Does it learn: a one-dimensional reach from proprio, and a warm start from demonstrations."""

from __future__ import annotations

import numpy as np
from agent_cases import make_agent, make_batch, make_spec, proprio_spec

from rl.agent.acting import MODE
from rl.agent.sac import SACAgent
from rl.agent.spec import AgentSpec, GripperControl
from robot.types import Float32, Observation, Source

STEP, GOAL, LIMIT = 0.1, 0.05, 20
SPEC = AgentSpec({}, proprio_spec(dim=1, fine=0.1), GripperControl.FIXED, active=(0,))


def observe(x: float) -> Observation:
    return Observation({}, np.array([x + 0.1], np.float32), 0.0)


def reach(
    agent: SACAgent, start: float, noise: Float32 | None
) -> list[tuple[float, np.ndarray, float, float]]:
    """x moves by STEP * action; reward 1 and the end within GOAL of 0."""
    x, steps = start, []
    for _ in range(LIMIT):
        action = agent.act(observe(x), noise=noise)
        x_next = float(np.clip(x + STEP * action[0], -1, 1))
        reward = float(abs(x_next) < GOAL)
        steps.append((x, action, reward, x_next))
        if reward:
            break
        x = x_next
    return steps


def success(agent: SACAgent) -> float:
    starts = [-0.9, -0.6, -0.3, 0.3, 0.6, 0.9]
    return float(np.mean([reach(agent, start, MODE)[-1][2] for start in starts]))


def test_sparse_reach_is_learnt_from_its_own_experience() -> None:
    rng = np.random.default_rng(0)
    agent = make_agent(SPEC, hidden=32, lr=1e-3, discount=0.9, tau=0.02, policy_every=1, num_critics=2)
    assert success(agent) < 0.5
    data: list[tuple[float, np.ndarray, float, float]] = []
    for _ in range(60):
        data += reach(agent, float(rng.uniform(-1, 1)), None)
        for _ in range(12):
            rows = [data[index] for index in rng.integers(len(data), size=64)]
            reward = np.array([row[2] for row in rows], np.float32)
            agent.update(
                make_batch(
                    SPEC,
                    rows=64,
                    proprio=np.array([[row[0] + 0.1] for row in rows], np.float32),
                    next_proprio=np.array([[row[3] + 0.1] for row in rows], np.float32),
                    action=np.stack([row[1] for row in rows]),
                    reward=reward,
                    terminated=reward > 0,
                )
            )
    assert success(agent) == 1.0


def test_behaviour_cloning_fits_actions_through_the_encoder() -> None:
    spec = make_spec()
    agent = make_agent(spec, bc_lr=3e-3, augment_px=0)
    batch = make_batch(spec, rows=16, source=np.full(16, Source.DEMO, np.uint8))
    before = agent.policy_tensors()
    losses = [agent.behaviour_cloning(batch)["learner/cloning_loss"] for _ in range(150)]
    assert losses[-1] < 0.3 * losses[0]
    after = agent.policy_tensors()
    for part in ("encoder.trunk.layers.0.weight", "policy.head.weight", "gripper.weights.2"):
        assert not np.array_equal(before[part], after[part])
    agreed = [
        agent.act(
            Observation({v: im[i] for v, im in batch.images.items()}, batch.proprio[i], 0.0),
            noise=MODE,
        )[6]
        == batch.action[i, 6]
        for i in range(16)
    ]
    assert np.mean(agreed) >= 0.9
