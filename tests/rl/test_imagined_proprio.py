"""Imagined readings: they follow the arm over a clip's length and cannot be told from real ones."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.neural_network import MLPRegressor
from threadpoolctl import threadpool_info, threadpool_limits

from rl.imagination.proprio import (
    APART,
    CrossFittedProprio,
    Network,
    ProprioConfig,
    ProprioModel,
    TooFewTransitionsError,
)
from rl.imagination.refitting import readings_gain
from robot.factory import ObsKind, RobotConfig, make_expert, make_robot_env
from robot.sim.expert import ExpertNoise
from robot.tasks import PROPRIO_NAMES
from robot.types import Float32

Steps = tuple[Float32, Float32, Float32]


@pytest.fixture(scope="module")
def episodes() -> list[Steps]:
    """(proprio, action, next proprio) of noisy demonstrations, without what only the simulator knows."""
    env = make_robot_env(RobotConfig(task="press", obs=ObsKind.STATE), seed=0)
    expert, kept = make_expert(env, np.random.default_rng(0), ExpertNoise(0.4)), len(PROPRIO_NAMES)
    recorded = []
    for seed in range(24):
        values, _ = env.reset(seed=seed)
        expert.reset()
        rows, over = [], False
        while not over:
            before = values["proprio"][:kept]
            values, _, terminated, truncated, info = env.step(expert.act())
            rows.append((before, info["action"], values["proprio"][:kept]))
            over = terminated or truncated
        recorded.append(tuple(np.stack(column) for column in zip(*rows, strict=True)))
    env.close()
    return recorded  # type: ignore[return-value]


def joined(episodes: list[Steps]) -> Steps:
    return tuple(np.concatenate(column) for column in zip(*episodes, strict=True))  # type: ignore[return-value]


def test_a_clip_of_readings_stays_within_millimetres(episodes: list[Steps]) -> None:
    model = ProprioModel(*joined(episodes[:20]), ProprioConfig(noise=False))
    rng, errors, moved = np.random.default_rng(0), [], []
    for proprio, action, following in episodes[20:]:
        steps = min(8, len(action))
        at = proprio[:1]
        for t in range(steps):
            at = model.step(at, action[t : t + 1], rng)
        errors.append(np.linalg.norm(at[0, :3] - following[steps - 1, :3]))
        moved.append(np.linalg.norm(proprio[0, :3] - following[steps - 1, :3]))
    assert np.mean(errors) < 0.004 and np.mean(errors) < 0.15 * np.mean(moved)


def test_readings_cannot_be_told_from_real_ones(episodes: list[Steps]) -> None:
    proprio, action, following = joined(episodes[:20])
    model, rng = ProprioModel(proprio, action, following, ProprioConfig()), np.random.default_rng(0)
    imagined = model.step(proprio, action, rng)
    order = rng.permutation(len(proprio))
    half = len(order) // 2

    def probe(readings: Float32) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        z = (readings - following.mean(0)) / (following.std(0) + 1e-9)
        return np.concatenate((z, z**2), axis=1)

    real, fake = probe(following), probe(imagined)
    fit = LogisticRegression(max_iter=500).fit(
        np.concatenate((real[order[:half]], fake[order[:half]])), np.repeat([0, 1], half)
    )
    held = np.concatenate((real[order[half:]], fake[order[half:]]))
    auc = roc_auc_score(np.repeat([0, 1], len(order) - half), fit.predict_proba(held)[:, 1])
    assert abs(auc - 0.5) < 0.15


def test_the_gripper_command_is_what_was_commanded_last(episodes: list[Steps]) -> None:
    command = PROPRIO_NAMES.index("gripper_command")
    model = ProprioModel(*joined(episodes[:10]), ProprioConfig(), command_index=command)
    proprio, action = episodes[0][0][:3].copy(), episodes[0][1][:3].copy()
    proprio[:, command], action[:, 6] = [1.0, 1.0, -1.0], [-0.9, 0.1, 0.2]
    assert model.step(proprio, action, np.random.default_rng(0))[:, command].tolist() == [-1.0, 1.0, -1.0]


def test_too_few_transitions_are_refused(episodes: list[Steps]) -> None:
    proprio, action, following = episodes[0]
    with pytest.raises(ValueError, match="at least"):
        ProprioModel(proprio[:5], action[:5], following[:5], ProprioConfig())


def pressing(steps: int, rng: np.random.Generator, down: float = 0.0) -> Steps:
    """A floor at 0: [position, lag behind the commanded position], commands up and down, or mostly `down` < 0."""
    place, lag, rows = 0.02, 0.0, []
    for _ in range(steps):
        action = np.clip(rng.normal(down, 0.7, 7), -1.0, 1.0)
        target = np.clip(place + lag + 0.01 * action[0], -0.01, 0.02)
        after = max(place + 0.8 * (target - place), 0.0)
        rows.append(((place, lag), action, (after, target - after)))
        place, lag = after, target - after
    return tuple(np.array(column, np.float32) for column in zip(*rows, strict=True))  # type: ignore[return-value]


def test_an_arm_that_presses_on_something_stays_where_it_is() -> None:
    rng = np.random.default_rng(0)
    proprio, action, following = pressing(1500, rng)
    old, new = slice(0, 1000), slice(1000, None)
    model = ProprioModel(proprio[old], action[old], following[old], ProprioConfig(ridge=1e-6))
    presses = following[new][:, 0] <= 0.0
    drawn = model.step(proprio[new], action[new], rng)
    assert 0.2 < presses.mean() < 0.8
    # A line through all of it would have the arm sink in.
    x = np.c_[proprio, action[:, :1], np.ones(len(proprio))]
    line = x[new] @ np.linalg.lstsq(x[old], following[old, 0], rcond=None)[0]
    assert np.abs(line[presses]).mean() > 3 * np.abs(drawn[presses, 0]).mean()


def test_recordings_tell_what_the_run_has_not_done_yet() -> None:
    """A run that has only moved above the floor so far; the recordings have pressed on it."""
    rng = np.random.default_rng(0)
    recorded, done, tried = pressing(3000, rng), pressing(400, rng, down=0.9), pressing(400, rng)
    free = done[2][:, 0] > 0.0
    done = tuple(column[free] for column in done)  # type: ignore[assignment]
    config = ProprioConfig(noise=False)
    episode = np.arange(3000) // 50
    network = Network(*recorded, episode, config)
    presses = tried[2][:, 0] <= 0.0

    def error(model: ProprioModel) -> float:
        return float(np.abs(model.step(*tried[:2], rng) - tried[2])[presses, 0].mean())

    alone, taught = error(ProprioModel(*done, config)), error(ProprioModel(*done, config, network=network))
    assert 0.2 < presses.mean() < 0.8 and taught < 0.5 * alone
    again = Network(*recorded, episode, config)
    np.testing.assert_array_equal(again.change(*tried[:2]), network.change(*tried[:2]))


def test_beside_recordings_the_fewest_transitions_are_told_apart_by_episode_too() -> None:
    """A fold is not told of its own episodes, however few the run has."""
    rng, config = np.random.default_rng(0), ProprioConfig()
    network = Network(*pressing(400, rng), np.arange(400) // 50, config)
    proprio, action, following = pressing(12, rng)
    number = np.arange(12) // 4
    wrong = following + np.float32(5.0) * (number == 0)[:, None]
    for after in (following, wrong):
        model = CrossFittedProprio(proprio, action, after, number, config, network=network)
        found = model.step(proprio[:4], action[:4], np.random.default_rng(1), number[:4])
        assert np.abs(found).max() < 0.1
    with pytest.raises(TooFewTransitionsError):
        CrossFittedProprio(proprio, action, following, number, config)


def test_a_network_is_fitted_on_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Actor and learner need the other cores; on two busy ones two threads took many times as long."""
    fit, threads = MLPRegressor.partial_fit, []

    def counted(*arguments: object) -> object:
        threads.append(max(pool["num_threads"] for pool in threadpool_info()))
        return fit(*arguments)

    monkeypatch.setattr(MLPRegressor, "partial_fit", counted)
    with threadpool_limits(2):
        Network(*pressing(50, np.random.default_rng(0)), np.arange(50) // 5, ProprioConfig(epochs=2))
        assert max(pool["num_threads"] for pool in threadpool_info()) == 2
    assert threads == [1, 1]


def test_recordings_of_which_all_but_one_were_discarded_teach() -> None:
    network = Network(
        *pressing(50, np.random.default_rng(0)), np.full(50, APART - 1), ProprioConfig(epochs=1)
    )
    assert len(network.apart[0]) == 0


def test_a_fit_on_few_episodes_may_err_more_than_an_arm_that_stays(episodes: list[Steps]) -> None:
    """Demonstrations lead one way; a policy at first goes anywhere."""
    env = make_robot_env(RobotConfig(task="press", obs=ObsKind.STATE), seed=0)
    kept, rng, rows = len(PROPRIO_NAMES), np.random.default_rng(0), []
    for seed in range(100, 112):
        values, _ = env.reset(seed=seed)
        for _ in range(12):
            before = values["proprio"][:kept]
            values, _, terminated, truncated, info = env.step(rng.uniform(-1.0, 1.0, 7).astype(np.float32))
            rows.append((before, info["action"], values["proprio"][:kept], seed))
            if terminated or truncated:
                break
    env.close()
    tried = tuple(np.stack(column) for column in zip(*rows, strict=True))

    def gain(known: Steps, number: np.ndarray[tuple[int], np.dtype[np.int64]]) -> float:
        return readings_gain(CrossFittedProprio(*known, number, ProprioConfig()), *tried, rng)  # type: ignore[arg-type]

    few = joined(episodes[:5])
    assert gain(few, np.repeat(np.arange(5), [len(steps[0]) for steps in episodes[:5]])) < 0.0
    both = tuple(np.concatenate(parts) for parts in zip(few, tried[:3], strict=True))
    numbers = np.concatenate([np.zeros(len(few[0]), np.int64), tried[3]])
    assert gain(both, numbers) > 0.3  # type: ignore[arg-type]
    still = (tried[0], tried[1], tried[0], tried[3])
    model = CrossFittedProprio(*few, np.zeros(len(few[0]), np.int64), ProprioConfig())
    assert readings_gain(model, *still, rng) == 0.0


def test_a_replay_is_not_told_what_really_came_of_it(episodes: list[Steps]) -> None:
    proprio, action, following = joined(episodes[:20])
    number = np.repeat(np.arange(20), [len(steps[0]) for steps in episodes[:20]])

    def known(drawn: Float32) -> float:
        return float((np.abs(drawn - following).max(axis=1) < 1e-5).mean())

    model = ProprioModel(proprio, action, following, ProprioConfig())
    assert known(model.step(proprio, action, np.random.default_rng(0))) > 0.1
    crossed = CrossFittedProprio(proprio, action, following, number, ProprioConfig())
    assert known(crossed.step(proprio, action, np.random.default_rng(0), number)) == 0.0


def test_branches_side_by_side_are_imagined_as_one_by_one(episodes: list[Steps]) -> None:
    proprio, action, following = joined(episodes[:20])
    number = np.repeat(np.arange(20), [len(steps[0]) for steps in episodes[:20]])
    model, rng = CrossFittedProprio(proprio, action, following, number, ProprioConfig(noise=False)), np.random
    drawn = model.step(proprio, action, rng.default_rng(0), number)
    for row in (0, 40, len(proprio) - 1):
        one = slice(row, row + 1)
        alone = model.step(proprio[one], action[one], rng.default_rng(0), number[one])
        np.testing.assert_allclose(drawn[one], alone, rtol=1e-6)


def test_beside_too_few_other_transitions_an_episode_is_imagined_by_a_fit_on_all(
    episodes: list[Steps],
) -> None:
    columns = joined(episodes[:8])
    alone = np.zeros(len(columns[0]), np.int64)
    model = CrossFittedProprio(*columns, alone, ProprioConfig())
    of_all = ProprioModel(*columns, ProprioConfig())
    proprio, action, _ = columns
    np.testing.assert_array_equal(
        model.step(proprio, action, np.random.default_rng(0), alone),
        of_all.step(proprio, action, np.random.default_rng(0)),
    )
    few = slice(5)
    with pytest.raises(TooFewTransitionsError, match="expected at least"):
        CrossFittedProprio(*(column[few] for column in columns), alone[few], ProprioConfig())
