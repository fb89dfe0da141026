"""Fitted Q evaluation on a Markov decision process whose values are known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from rl.ablation.fqe import FQEConfig, FQEData, fitted_q_evaluation

GAMMA = 0.9
STATES = 4  # 0 -> 1 -> 2 -> 3 -> success; action 1 walks on with probability P, action 0 never does
P = 0.7
CONFIG = FQEConfig(updates=400, batch_size=64, members=6, hidden=16, lr=5e-3, tau=0.05)


def inputs(state: int, action: int) -> np.ndarray:
    return np.eye(2 * STATES, dtype=np.float32)[2 * state + action]


def recorded(policy_action: int, episodes: int = 150, seed: int = 0) -> FQEData:
    """Episodes of a uniformly random behaviour; the policy in question always takes `policy_action`."""
    rng = np.random.default_rng(seed)
    rows: list[tuple[np.ndarray, np.ndarray, float, float, int]] = []
    for episode in range(episodes):
        state = 0
        for _ in range(20):
            action = int(rng.integers(2))
            following = state + int(action == 1 and rng.random() < P)
            over = following == STATES
            seen = inputs(min(following, STATES - 1), policy_action)
            rows.append((inputs(state, action), seen, float(over), float(not over), episode))
            state = following
            if over:
                break
    taken, later, reward, going_on, number = zip(*rows, strict=True)
    return FQEData(
        taken=torch.from_numpy(np.stack(taken)),
        following=torch.from_numpy(np.stack(later)),
        reward=torch.tensor(reward),
        not_terminated=torch.tensor(going_on),
        episode=torch.tensor(number),
        first=torch.from_numpy(np.stack([inputs(0, policy_action)] * episodes)),
        bounds=(0.0, 1.0),
    )


def true_value() -> float:
    """V(0) of always walking: each state is left after a geometric number of steps."""
    per_state = P / (1.0 - GAMMA * (1.0 - P))
    return float(per_state**STATES * GAMMA ** (STATES - 1))


def test_it_finds_the_value_of_a_policy_that_never_acted() -> None:
    found = fitted_q_evaluation(recorded(1), CONFIG, discount=GAMMA, seed=0)
    assert abs(found.value - true_value()) < 0.05, (found, true_value())
    assert found.low < found.value < found.high
    assert found.low - 0.05 < true_value() < found.high + 0.05
    assert found.high - found.low < 0.3


def test_a_policy_that_goes_nowhere_is_worth_nothing() -> None:
    found = fitted_q_evaluation(recorded(0), CONFIG, discount=GAMMA, seed=0)
    assert found.high < 0.05


def test_fewer_episodes_are_less_certain() -> None:
    config = replace(CONFIG, members=16, updates=120)
    few, many = (
        fitted_q_evaluation(recorded(1, episodes), config, discount=GAMMA, seed=0) for episodes in (8, 150)
    )
    assert few.high - few.low > many.high - many.low


def test_the_same_seed_gives_the_same_numbers() -> None:
    config = replace(CONFIG, updates=20)
    one, two = (fitted_q_evaluation(recorded(1), config, discount=GAMMA, seed=3) for _ in range(2))
    assert one == two
    assert fitted_q_evaluation(recorded(1), config, discount=GAMMA, seed=4) != one


def test_nothing_to_fit_is_said() -> None:
    none = FQEData(*(torch.zeros(0, 2),) * 2, *(torch.zeros(0),) * 3, torch.zeros(0, 2), (0.0, 1.0))
    with pytest.raises(ValueError, match="at least one episode"):
        fitted_q_evaluation(none, CONFIG, discount=GAMMA, seed=0)
