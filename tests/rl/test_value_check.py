"""Value against measured return: on episodes whose returns are known, and without a trace in the learning."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from agent_cases import make_agent, make_spec

from rl.batch import Batch
from rl.build import make_samplers
from rl.diagnostics.value import ValueCheck, ValueCheckConfig
from rl.replay.journal import EndReason, EpisodeOutcome
from rl.replay.mixer import Mixer
from rl.replay.reader import StoreReader
from rl.replay.schema import StoreSchema
from rl.replay.writer import StoreWriter
from rl.runtime.board import Board
from rl.runtime.weights import WeightsDirectory
from rl.statistics import rank_correlation
from rl.workers.learner import DEMO, ONLINE, LearnerConfig, LearnerWorker
from rl.workers.pacing import PacingConfig
from rl.workers.ports import COLLECTED, ENV_STEPS
from robot.types import Float32, Observation, ProprioSpec, Source, Transition

GAMMA = 0.9
SPEC = ProprioSpec(("value", "t"), np.zeros(2, np.float32), np.ones(2, np.float32), np.zeros(2, np.float32))
VIEWS = {"wrist": (24, 24)}
SCHEMA = StoreSchema(task="fake", views={}, proprio=SPEC)


class Oracle:
    """Q is the first proprio entry plus the first entry of the action; the policy acts with `last`."""

    def __init__(self, last: float = 0.0) -> None:
        self.last = last

    def act(self, observation: Observation, *, noise: Float32 | None = None) -> Float32:
        assert noise is not None and not noise.any()
        return np.full(7, self.last, np.float32)

    def q_values(self, batch: Batch) -> np.ndarray[Any, np.dtype[np.float32]]:
        return batch.proprio[:, 0] + batch.action[:, 0]


def observe(value: float, t: int, schema: StoreSchema) -> Observation:
    images = {view: np.full((*size, 3), 10 * t, np.uint8) for view, size in schema.views.items()}
    return Observation(images, np.array([value, t], np.float32), float(t), dict.fromkeys(images, float(t)))


def add_episode(
    writer: StoreWriter,
    values: list[float],
    *,
    success: bool = True,
    corrected: tuple[int, ...] = (),
    reason: EndReason | None = None,
) -> None:
    """An episode whose observations carry `values`; it ends in a success, or is cut off."""
    observations = [observe(value, t, writer.schema) for t, value in enumerate(values)]
    writer.begin_episode(observations[0])
    for t in range(len(values) - 1):
        last = t == len(values) - 2
        writer.add(
            Transition(
                observation=observations[t],
                action=np.zeros(7, np.float32),
                requested_action=np.zeros(7, np.float32),
                reward=float(last and success),
                next_observation=observations[t + 1],
                terminated=last and success,
                truncated=last and not success,
                source=Source.CORRECTION if t in corrected else Source.REAL,
                intervened=t in corrected,
            )
        )
    writer.end_episode(EpisodeOutcome(reason or (EndReason.SUCCESS if success else EndReason.TIMEOUT)))


def check(path: Path, agent: Oracle, **config: int) -> dict[str, float]:
    return ValueCheck(agent, StoreReader(path), GAMMA, ValueCheckConfig(**config)).measure()


def test_a_perfect_critic_has_no_bias_and_full_correlation(tmp_path: Path) -> None:
    with StoreWriter(tmp_path, SCHEMA) as writer:
        for length in (4, 7):
            add_episode(writer, [GAMMA ** (length - 1 - t) for t in range(length)] + [7.0])
    # Seven comes after the end of the episode, where nothing is worth anything.
    result = check(tmp_path, Oracle(), rows=2)
    assert result["learner/value_bias"] == pytest.approx(0.0, abs=1e-6)
    assert result["learner/value_correlation"] == pytest.approx(1.0)
    assert result["learner/value_steps"] == 11


def test_an_optimistic_critic_shows_its_bias_and_a_wrong_one_the_wrong_order(tmp_path: Path) -> None:
    with StoreWriter(tmp_path, SCHEMA) as writer:
        for _ in range(4):
            add_episode(writer, [1.0, 0.9, 0.81, 0.0])  # falls towards success; the returns are .81, .9, 1
    result = check(tmp_path, Oracle())
    assert result["learner/value_correlation"] == pytest.approx(-1.0)
    assert result["learner/value_bias"] == pytest.approx(0.0, abs=1e-6)
    assert math.isnan(check(tmp_path, Oracle(), episodes=3)["learner/value_correlation"])  # of nine steps
    with StoreWriter(tmp_path / "flat", SCHEMA) as writer:
        for _ in range(4):
            add_episode(writer, [0.95] * 4)
    flat = check(tmp_path / "flat", Oracle())
    assert flat["learner/value_bias"] == pytest.approx(0.95 - (0.81 + 0.9 + 1.0) / 3, abs=1e-6)
    assert math.isnan(flat["learner/value_correlation"])


def test_an_episode_cut_off_goes_on_with_the_value_of_its_last_observation(tmp_path: Path) -> None:
    with StoreWriter(tmp_path, SCHEMA) as writer:
        add_episode(writer, [0.0, 0.0, 0.3], success=False)
    # V of the last observation: .3 + .2, so the returns are .405 and .45, against Q = 0.
    result = check(tmp_path, Oracle(last=0.2))
    assert result["learner/value_bias"] == pytest.approx(-(0.405 + 0.45) / 2, abs=1e-6)


def test_steps_before_the_last_correction_say_nothing_of_the_policy(tmp_path: Path) -> None:
    with StoreWriter(tmp_path, SCHEMA) as writer:
        add_episode(writer, [-9.0, -9.0, 0.81, 0.9, 1.0, 0.0], corrected=(0, 2))
    result = check(tmp_path, Oracle())
    assert result["learner/value_steps"] == 3
    assert result["learner/value_bias"] == pytest.approx(0.0, abs=1e-6)


def test_only_the_newest_finished_episodes_that_count(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path, SCHEMA)
    comparison = ValueCheck(Oracle(), StoreReader(tmp_path), GAMMA, ValueCheckConfig(episodes=2))
    assert comparison.measure() == {}
    add_episode(writer, [5.0] * 9)  # too old
    add_episode(writer, [0.9, 1.0, 0.0])
    add_episode(writer, [0.9, 1.0, 0.0])
    add_episode(writer, [5.0] * 9, reason=EndReason.DISCARDED)
    writer.begin_episode(observe(5.0, 0, SCHEMA))  # not finished
    result = comparison.measure()
    assert result["learner/value_steps"] == 4
    assert result["learner/value_bias"] == pytest.approx(0.0, abs=1e-6)
    writer.close()


def learn(
    path: Path, diagnose_every: int
) -> tuple[LearnerWorker, dict[str, torch.Tensor], dict[str, Any], int]:
    """Twenty updates from pixels with the real agent; returns its state and how often it was diagnosed."""
    agent = make_agent(make_spec(views=VIEWS, proprio=SPEC))
    board = Board(path / f"board{diagnose_every}.bin", lambda: 1.0)
    board.set(ENV_STEPS, 12)
    board.set(COLLECTED, 1)
    comparison, results = ValueCheck(agent, StoreReader(path / "real"), GAMMA), []
    learner = LearnerWorker(
        agent,
        Mixer(make_samplers(path / "real", path / "demo", DEMO, ONLINE)),
        WeightsDirectory(path / f"weights{diagnose_every}"),
        board,
        LearnerConfig(batch_size=8, warm_updates=8, diagnose_every=diagnose_every),
        PacingConfig(utd_ratio=1.0),
        rng=np.random.default_rng(0),
        batch=None,
        save_checkpoint=lambda _updates, _state: None,
        diagnose=lambda: results.append(comparison.measure()) or results[-1],  # type: ignore[func-returns-value]
    )
    metrics: dict[str, float] = {}
    while not (result := learner.step()).finished:
        assert not result.waiting
    metrics |= result.metrics
    assert ("learner/value_bias" in metrics) == (diagnose_every > 0)
    tensors, meta = agent.state()
    return learner, tensors, meta, len(results)


def test_learning_is_bit_identical_with_and_without_diagnostics(tmp_path: Path) -> None:
    schema = StoreSchema(task="fake", views=VIEWS, proprio=SPEC)
    for name in ("real", "demo"):
        with StoreWriter(tmp_path / name, schema) as writer:
            add_episode(writer, [0.1 * t for t in range(7)])
            add_episode(writer, [0.2 * t for t in range(7)], success=False)
    off, off_tensors, off_meta, none = learn(tmp_path, 0)
    on, on_tensors, on_meta, often = learn(tmp_path, 1)
    assert none == 0 and often == 21
    assert off_meta == on_meta and off.state()["rng"] == on.state()["rng"]
    assert off_tensors.keys() == on_tensors.keys()
    for name, tensor in off_tensors.items():
        assert torch.equal(tensor, on_tensors[name]), name


def test_rank_correlation_shares_ranks_between_ties() -> None:
    x, y = np.array([1.0, 2.0, 2.0, 30.0]), np.array([1.0, 2.0, 3.0, 4.0])
    assert rank_correlation(x, x**3) == pytest.approx(1.0)
    assert rank_correlation(x, -x) == pytest.approx(-1.0)
    assert rank_correlation(x, y) == pytest.approx(np.corrcoef([1, 2.5, 2.5, 4], [1, 2, 3, 4])[0, 1])
    assert math.isnan(rank_correlation(x, np.ones(4)))
