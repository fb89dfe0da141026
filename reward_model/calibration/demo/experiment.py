"""A softmax policy over the programs learns by group-relative policy gradient, graded along different routes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reward_model.calibration.advantages import AdvantageConfig, group_advantages
from reward_model.calibration.anchors import AnchorConfig
from reward_model.calibration.calibrator import CalibrationConfig, CalibrationMode
from reward_model.calibration.correction import CorrectionConfig, CorrectionLoop
from reward_model.calibration.debias import DebiasConfig
from reward_model.calibration.demo.judges import Judge, JudgeKind, UnitTests, opinion
from reward_model.calibration.demo.programs import PROGRAMS
from reward_model.calibration.gates import GateConfig
from reward_model.calibration.hardened import HardenedConfig
from reward_model.calibration.scorers import ScorerPair
from robot.types import Array

TASK = "canonical"
Groups = NDArray[np.int64]  # (groups, group_size) indices of programs
Grade = Callable[[Groups], tuple[list[Array], float]]  # advantages per group, gate


class Route(Enum):
    """Who grades. ANCHORED: one group in ten is tested and the judge corrected, hardened; PUBLISHED: the same, WMRL."""

    ALL_REAL = "all_real"
    ALL_JUDGE = "all_judge"
    ANCHORED = "anchored"
    PUBLISHED = "anchored_wmrl"


@dataclass(frozen=True)
class ExperimentConfig:
    """warmup_pairs: anchor pairs before the first fit; then one refit per anchor group. noise: of the judges."""

    seeds: int = 32
    steps: int = 60
    groups: int = 10
    group_size: int = 8
    learning_rate: float = 8.0
    warmup_pairs: int = 24
    noise: float = 0.05

    def __post_init__(self) -> None:
        if min(self.seeds, self.groups, self.group_size) < 2 or self.steps < 1 or self.warmup_pairs < 2:
            raise ValueError(
                "experiment: expected seeds, groups, group_size and warmup_pairs >= 2 and steps >= 1, got "
                f"{self.seeds}, {self.groups}, {self.group_size}, {self.warmup_pairs}, {self.steps}"
            )
        if self.learning_rate <= 0.0 or self.noise < 0.0:
            raise ValueError(
                f"experiment: expected learning_rate > 0 and noise >= 0, got {self.learning_rate}, {self.noise}"
            )


@dataclass(frozen=True)
class Outcome:
    """One judge and route. reward (seeds, steps + 1): expected true reward. gate (seeds, steps): 1 where there is none.

    queries: real rewards asked for per seed.
    """

    judge: JudgeKind
    route: Route
    reward: Array
    gate: Array
    queries: int

    def row(self) -> dict[str, Any]:
        """A row of the results file; the interval is a bootstrap over seeds."""
        final = self.reward[:, -1]
        draws = np.random.default_rng(0).choice(final, size=(4000, len(final))).mean(axis=1)
        low, high = np.quantile(draws, [0.025, 0.975])
        return {
            "judge": self.judge.value,
            "route": self.route.value,
            "seeds": len(final),
            "final_true_reward": round(float(final.mean()), 4),
            "ci_low": round(float(low), 4),
            "ci_high": round(float(high), 4),
            "real_queries": self.queries,
            "gate_mean": round(float(self.gate.mean()), 4),
            "curve": [round(float(value), 4) for value in self.reward.mean(axis=0)],
        }


def run_experiment(config: ExperimentConfig, true: Array) -> list[Outcome]:
    """Every judge along every route. true: (P,) share of unit tests that each program really passes."""
    outcomes = []
    for judge in JudgeKind:
        for route in Route:
            runs = [_run(config, judge, route, true, seed) for seed in range(config.seeds)]
            rewards, gates, queries = zip(*runs, strict=True)
            outcomes.append(Outcome(judge, route, np.array(rewards), np.array(gates), queries[0]))
    return outcomes


def _run(
    config: ExperimentConfig, judge: JudgeKind, route: Route, true: Array, seed: int
) -> tuple[list[float], list[float], int]:
    """Expected true reward before every step and at the end, gate of every step, real queries."""
    policy_rng, judge_rng = (np.random.default_rng([seed, stream]) for stream in (0, 1))
    tests = UnitTests(true)
    scorer = Judge(judge, opinion(judge, PROGRAMS, true), config.noise, judge_rng)
    grade = _grader(config, route, scorer, tests, seed)
    logits = np.zeros(len(true))
    rewards, gates = [float(true.mean())], []
    for _ in range(config.steps):
        policy = _softmax(logits)
        chosen = policy_rng.choice(len(true), size=(config.groups, config.group_size), p=policy)
        advantages, gate = grade(chosen)
        logits += config.learning_rate * _policy_gradient(policy, chosen, advantages)
        rewards.append(float(_softmax(logits) @ true))
        gates.append(gate)
    return rewards, gates, tests.queries


def _grader(config: ExperimentConfig, route: Route, judge: Judge, tests: UnitTests, seed: int) -> Grade:
    match route:
        case Route.ALL_REAL:
            return lambda chosen: (_plain(chosen, tests.score), 1.0)
        case Route.ALL_JUDGE:
            return lambda chosen: (_plain(chosen, judge.score), 1.0)
        case Route.ANCHORED:
            return _anchored(config, CalibrationMode.HARDENED, judge, tests, seed)
        case Route.PUBLISHED:
            return _anchored(config, CalibrationMode.WMRL, judge, tests, seed)


def _plain(chosen: Groups, score: Callable[[Sequence[int]], list[float]]) -> list[Array]:
    rewards = [np.array(score(group)) for group in chosen.tolist()]
    return group_advantages(rewards, [1.0] * len(rewards), AdvantageConfig())


def _anchored(
    config: ExperimentConfig, mode: CalibrationMode, judge: Judge, tests: UnitTests, seed: int
) -> Grade:
    correction = CorrectionConfig(
        anchors=AnchorConfig(fraction=0.1, seed=seed),
        calibration=CalibrationConfig(
            mode=mode,
            debias=DebiasConfig(min_pairs=config.warmup_pairs, refit_every=config.group_size),
            hardened=HardenedConfig(pairs_per_bin=config.group_size),
            gate=GateConfig(window=64, seed=seed),
        ),
    )
    loop = CorrectionLoop(ScorerPair(cheap=judge, trusted=tests), correction)

    def grade(chosen: Groups) -> tuple[list[Array], float]:
        advantages = loop.step(chosen.tolist(), [TASK] * len(chosen)).advantages
        return advantages, loop.gate(TASK).value if mode is CalibrationMode.HARDENED else 1.0

    return grade


def _policy_gradient(policy: Array, chosen: Groups, advantages: Sequence[Array]) -> Array:
    """mean_i A_i d log pi(a_i) / d logits = mean_i A_i (onehot(a_i) - pi)."""
    weight = np.concatenate(advantages)
    pulled = np.bincount(chosen.ravel(), weight, minlength=len(policy))
    gradient: Array = (pulled - weight.sum() * policy) / chosen.size
    return gradient


def _softmax(logits: Array) -> Array:
    raised = np.exp(logits - logits.max())
    policy: Array = raised / raised.sum()
    return policy
