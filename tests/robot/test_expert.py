"""The scripted demonstrator solves the task; the scripted corrector steps in when, and only when, it is needed."""

import numpy as np
import pytest

from robot.env import RobotEnv
from robot.factory import ObsKind, RobotConfig, make_corrector, make_expert, make_robot_env
from robot.sim.expert import CorrectorConfig, ExpertNoise, ScriptedCorrector
from robot.wrappers import HumanIntervention


@pytest.fixture(scope="module")
def env() -> RobotEnv:
    return make_robot_env(RobotConfig(obs=ObsKind.STATE))


def demonstrate(env: RobotEnv, episodes: int, noise: float) -> tuple[float, list[int]]:
    """Success rate and lengths."""
    expert = make_expert(env, np.random.default_rng(0), ExpertNoise(noise))
    successes, lengths = 0, []
    for seed in range(episodes):
        env.reset(seed=seed)
        expert.reset()
        steps = 0
        while True:
            *_, terminated, truncated, _ = env.step(expert.act())
            steps += 1
            if terminated or truncated:
                break
        successes += terminated
        lengths.append(steps)
    return successes / episodes, lengths


def test_expert_succeeds_at_its_default_noise(env: RobotEnv) -> None:
    success, lengths = demonstrate(env, 100, ExpertNoise().level)
    assert success >= 0.95
    assert 6 <= np.mean(lengths) <= 20


def test_noise_makes_the_expert_slower_and_less_alike(env: RobotEnv) -> None:
    clean_success, clean = demonstrate(env, 20, 0.0)
    _, noisy = demonstrate(env, 20, 0.7)
    assert clean_success == 1.0
    assert np.mean(noisy) > np.mean(clean) + 3 and np.std(noisy) > np.std(clean)


def test_the_same_seeds_give_the_same_demonstration(env: RobotEnv) -> None:
    def actions() -> list[np.ndarray]:
        expert = make_expert(env, np.random.default_rng(3))
        env.reset(seed=3)
        taken = []
        for _ in range(6):
            taken.append(expert.act())
            env.step(taken[-1])
        return taken

    np.testing.assert_array_equal(actions(), actions())


@pytest.mark.parametrize("level", [-0.1, 1.1])
def test_noise_level_is_checked(level: float) -> None:
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        ExpertNoise(level)


@pytest.mark.parametrize("pace", [0.0, 1.1])
def test_pace_is_checked(pace: float) -> None:
    with pytest.raises(ValueError, match=r"pace: expected \(0, 1\]"):
        ExpertNoise(pace=pace)


def test_a_quicker_demonstrator_is_done_sooner(env: RobotEnv) -> None:
    lengths = []
    for pace in (0.5, 1.0):
        expert = make_expert(env, np.random.default_rng(0), ExpertNoise(0.0, pace))
        env.reset(seed=0)
        expert.reset()
        steps = 0
        while not env.step(expert.act())[2]:
            steps += 1
        lengths.append(steps)
    assert lengths[1] < 0.8 * lengths[0]


def test_corrector_rescues_an_idle_policy_in_short_stretches(env: RobotEnv) -> None:
    corrected = HumanIntervention(env, make_corrector(env, np.random.default_rng(0)))
    rescued = 0
    for seed in range(10):
        corrected.reset(seed=seed)
        flags = []
        while True:
            *_, terminated, truncated, info = corrected.step(np.zeros(7, np.float32))
            flags.append(info["intervened"])
            if terminated or truncated:
                break
        rescued += terminated
        assert not any(flags[:8])  # first it watches
        stretches = np.diff(np.flatnonzero(np.diff([0, *map(int, flags), 0])))[::2]
        assert (stretches <= 8).all() and (stretches[:-1] >= 4).all()
    assert rescued >= 8


def test_corrector_leaves_a_good_policy_alone(env: RobotEnv) -> None:
    corrected = HumanIntervention(env, make_corrector(env, np.random.default_rng(0)))
    policy = make_expert(env, np.random.default_rng(1), ExpertNoise(0.0))
    for seed in range(10):
        corrected.reset(seed=seed)
        while True:
            *_, terminated, truncated, info = corrected.step(policy.act())
            assert not info["intervened"]
            if terminated or truncated:
                break
        assert terminated


def test_corrector_judges_progress_over_its_window(env: RobotEnv) -> None:
    env.reset(seed=0)
    distances = iter([0.30, 0.29, 0.28, 0.27, 0.265, 0.264, 0.264])
    corrector = ScriptedCorrector(
        make_expert(env, np.random.default_rng(0)),
        lambda: next(distances),
        np.random.default_rng(0),
        CorrectorConfig(window=3, stall=0.01, probability=1.0),
    )
    # The fall over the last three steps: .03, .025, .016, then .006, a stall.
    assert [corrector.read().engaged for _ in range(7)] == [False] * 6 + [True]
    corrector.reset()
    assert corrector._left == 0
