"""Admission: which labelled imagined clips enter the success or the failure queue, by the critic's Q-values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any

from rl.selection.running import RunningMean
from robot.types import Label


class SelectionMode(Enum):
    """How the composition of the synthetic share is chosen."""

    PAPER_SUM = "paper_sum"  # |mu+ + mu- - mu_real| <= delta, as printed (eq. 5)
    MIXTURE_UNPAIRED = "mixture_unpaired"  # pi mu+ + (1 - pi) mu- close to mu_real
    MIXTURE_PAIRED = "mixture_paired"  # the same on Q minus the Q of the clip's real source
    NONE = "none"  # every labelled clip, in the proportion in which they come
    SUCCESSES = "successes"  # every labelled success and no failure, for a policy that imitates them

    @property
    def asks_critic(self) -> bool:
        """Whether clips are admitted and weighed by their Q-values."""
        return self not in (SelectionMode.NONE, SelectionMode.SUCCESSES)

    @property
    def kept(self) -> tuple[Label, ...]:
        """The labels that have a queue."""
        return (Label.SUCCESS,) if self is SelectionMode.SUCCESSES else (Label.SUCCESS, Label.FAILURE)


class Admission(IntEnum):
    """Why a clip was admitted or not; stored with each of its transitions."""

    UNLABELLED = 0
    ADMITTED = 1
    SURPRISING = 2  # a success far above what the critic expects, and not beyond doubt
    NOT_FINITE = 3
    FAILED = 4  # a failure, where only successes are kept


@dataclass(frozen=True, slots=True)
class Candidate:
    """A labelled imagined clip. q, source_q: mean of min_i Q_target over up to 16 steps, of the clip and of the real
    steps it was branched from. first_q: at its first step. label_return: discounted return of its labels.

    risk: of the world model, ordinal. agreed: every judgement gave this label.
    """

    label: Label
    q: float
    source_q: float
    first_q: float
    label_return: float
    risk: float
    agreed: bool


@dataclass(frozen=True)
class SelectionConfig:
    """The rule of admission and composition.

    share_low, share_high: bounds of the success share pi; share_margin: how far pi may exceed the success share of
    recent real clips. delta_low, delta_high: bounds of the tolerated mean shift of Q; in between it is delta_td times
    the root mean square TD error on real data. surprise: return minus expectation above which a success is doubted.
    half_life: admitted clips of one sign until an observation counts half. min_clips: of each sign that is kept before
    anything is used; `none` does not ask.
    """

    mode: SelectionMode = SelectionMode.MIXTURE_PAIRED
    share_low: float = 0.10
    share_high: float = 0.60
    share_margin: float = 0.25
    delta_low: float = 0.01
    delta_high: float = 0.10
    delta_td: float = 0.5
    surprise: float = 0.5
    half_life: float = 64.0
    min_clips: int = 8

    def __post_init__(self) -> None:
        checks = {
            "0 < share_low <= share_high < 1": 0.0 < self.share_low <= self.share_high < 1.0,
            "share_margin >= 0": self.share_margin >= 0.0,
            "0 < delta_low <= delta_high": 0.0 < self.delta_low <= self.delta_high,
            "delta_td > 0": self.delta_td > 0.0,
            "surprise > 0": self.surprise > 0.0,
            "half_life > 0": self.half_life > 0.0,
            "min_clips >= 1": self.min_clips >= 1,
        }
        failed = [rule for rule, holds in checks.items() if not holds]
        if failed:
            raise ValueError(f"selection: expected {'; '.join(failed)}, got {self}")


class Selection:
    """Admits clips one by one and keeps the composition that leaves the mean of Q where real data has it.

    With d = q - q of the source (0 baseline) the share pi solves pi mu+ + (1 - pi) mu- = 0, so pi = -mu- / (mu+ - mu-)
    where mu+ - mu- > 2 standard errors, else pi is the success share of recent real clips. What is left over,
    e = |pi mu+ + (1 - pi) mu-|, shrinks the ratio by min(1, delta / e) instead of rejecting the batch.

    The printed rule has no weights, so it cannot control composition and, once mu+ is near mu_real, asks for mu- = 0:
    hard failures, which teach most, are refused. It is here for comparison.
    """

    def __init__(self, config: SelectionConfig) -> None:
        self._config = config
        self._success, self._failure = RunningMean(config.half_life), RunningMean(config.half_life)
        self._real = RunningMean(config.half_life)
        self._risk = RunningMean(config.half_life)
        self._real_share = config.share_low
        self._td_rms = 0.0
        self.refused: dict[Admission, int] = {}

    def observe_real(self, success_share: float, td_rms: float) -> None:
        """Success share of recent real clips, and the root mean square TD error on real transitions."""
        if not (0.0 <= success_share <= 1.0 and math.isfinite(td_rms) and td_rms >= 0.0):
            raise ValueError(
                f"selection: expected a success share in [0, 1] and a finite TD error, got {success_share}, {td_rms}"
            )
        self._real_share, self._td_rms = success_share, td_rms

    def consider(self, clip: Candidate) -> Admission:
        """Whether the clip enters the queue of its label; what is admitted moves the means."""
        verdict = self._judge(clip)
        if verdict is not Admission.ADMITTED:
            self.refused[verdict] = self.refused.get(verdict, 0) + 1
            return verdict
        side = self._success if clip.label is Label.SUCCESS else self._failure
        if not self._config.mode.asks_critic:
            side.count += 1
            return verdict
        paired = self._config.mode is SelectionMode.MIXTURE_PAIRED
        side.add(clip.q - clip.source_q if paired else clip.q)
        self._real.add(clip.source_q)
        self._risk.add(clip.risk)
        return verdict

    def _judge(self, clip: Candidate) -> Admission:
        values = [clip.label_return, clip.risk]
        if self._config.mode.asks_critic:
            values += [clip.q, clip.source_q, clip.first_q]
        if clip.label is Label.UNKNOWN:
            return Admission.UNLABELLED
        if not all(math.isfinite(value) for value in values):
            return Admission.NOT_FINITE
        if clip.label not in self._config.mode.kept:
            return Admission.FAILED
        if not self._config.mode.asks_critic or clip.label is Label.FAILURE:
            return Admission.ADMITTED
        surprising = clip.label_return - clip.first_q > self._config.surprise
        # Without a history of risks nothing is known to lie below the usual one.
        certain = clip.agreed and self._risk.count > 0 and clip.risk <= self._risk.mean
        return Admission.SURPRISING if surprising and not certain else Admission.ADMITTED

    @property
    def delta(self) -> float:
        """Tolerated shift of the mean Q."""
        config = self._config
        return min(config.delta_high, max(config.delta_low, config.delta_td * self._td_rms))

    @property
    def success_share(self) -> float:
        """pi: the share of successes in what is drawn; without selection nobody asks for it."""
        config = self._config
        if config.mode is SelectionMode.PAPER_SUM or not config.mode.asks_critic:
            return 0.5
        plus, minus = self._shifts()
        gap, error = plus - minus, 2.0 * math.hypot(self._success.error, self._failure.error)
        share = -minus / gap if gap > error else self._real_share
        ceiling = min(config.share_high, self._real_share + config.share_margin)
        return min(max(share, config.share_low), max(ceiling, config.share_low))

    @property
    def residual(self) -> float:
        """e: how far the mixture still shifts the mean of Q."""
        if self._config.mode is SelectionMode.PAPER_SUM:
            return abs(self._success.mean + self._failure.mean - self._real.mean)
        plus, minus = self._shifts()
        share = self.success_share
        return abs(share * plus + (1.0 - share) * minus)

    @property
    def gate(self) -> float:
        """g_Q in [0, 1]; 0 while a queue holds too few clips."""
        if self._config.mode is SelectionMode.NONE:
            return 1.0
        counts = {Label.SUCCESS: self._success.count, Label.FAILURE: self._failure.count}
        if min(counts[label] for label in self._config.mode.kept) < self._config.min_clips:
            return 0.0
        match self._config.mode:
            case SelectionMode.SUCCESSES:
                return 1.0
            case SelectionMode.PAPER_SUM:
                return float(self.residual <= self.delta)
            case _:
                return min(1.0, self.delta / max(self.residual, 1e-12))

    def _shifts(self) -> tuple[float, float]:
        baseline = 0.0 if self._config.mode is SelectionMode.MIXTURE_PAIRED else self._real.mean
        return self._success.mean - baseline, self._failure.mean - baseline

    def metrics(self) -> dict[str, float]:
        counts = {f"selection/refused/{reason.name.lower()}": float(n) for reason, n in self.refused.items()}
        if self._config.mode.asks_critic:
            counts |= {
                "selection/success_share": self.success_share,
                "selection/residual": self.residual,
                "selection/delta": self.delta,
                "selection/real_success_share": self._real_share,
                "selection/td_rms": self._td_rms,
            }
        return counts | {
            "selection/gate": self.gate,
            "selection/successes": float(self._success.count),
            "selection/failures": float(self._failure.count),
        }

    def state(self) -> dict[str, Any]:
        """JSON-able; `load_state` continues from it."""
        return {
            "means": {name: mean.state() for name, mean in self._means().items()},
            "real_share": self._real_share,
            "td_rms": self._td_rms,
            "refused": {reason.name: count for reason, count in self.refused.items()},
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        for name, mean in self._means().items():
            mean.load_state(state["means"][name])
        self._real_share, self._td_rms = float(state["real_share"]), float(state["td_rms"])
        self.refused = {Admission[name]: int(count) for name, count in state["refused"].items()}

    def _means(self) -> dict[str, RunningMean]:
        return {"success": self._success, "failure": self._failure, "real": self._real, "risk": self._risk}
