"""AblateConfig: what `groundhog ablate` needs, and StreamConfig: what an arm may change in what is shown."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from rl.ablation.fqe import FQEConfig


class Imagined(Enum):
    """Where an arm with synthetic data takes them from."""

    ANEW = "anew"  # its own policy imagines, as in a run
    RECORDED = "recorded"  # the clips that the recorded run imagined and admitted


@dataclass(frozen=True)
class StreamConfig:
    """The section `stream` of an arm: how it shows the recording otherwise than it was.

    reward_model: a file of train-reward-model; its labels, and no recorded outcome, are the rewards of real episodes.
    success_threshold: in place of the model's own. imagined: where synthetic data come from.
    """

    reward_model: str | None = None
    success_threshold: float | None = None
    imagined: Imagined = Imagined.ANEW

    def __post_init__(self) -> None:
        if self.success_threshold is not None and not 0.0 < self.success_threshold <= 1.0:
            raise ValueError(f"stream.success_threshold: expected (0, 1], got {self.success_threshold}")
        if self.success_threshold is not None and self.reward_model is None:
            raise ValueError("stream.success_threshold: it needs stream.reward_model=<file>")


@dataclass(frozen=True)
class AblateConfig:
    """Everything that `groundhog ablate` needs: every arm x seed replays the run once, skipped where its result exists.

    arms: `recorded`, a file of configs/arm, or a YAML of your own, each laid over the recorded configuration; behind
    it, in one word with blanks, more keys: arms=["rlpd learner.demo_ratio=0.25"]. seeds: of the learner.
    holdout_every: the episode in the middle of every so many is never learned from and judges; 0 for none.
    eval_episodes: of the true success on the simulated arm, 0 for none. online: results_dir of a bench of the same
    arms, whose success the offline measures are compared with. keep: leave each arm's run directory behind.
    """

    run: str = "???"
    arms: list[str] = field(default_factory=lambda: ["recorded"])
    seeds: list[int] = field(default_factory=lambda: [0])
    name: str = "ablation"  # folder below <run>/ablations
    out: str | None = None  # another folder in place of that
    train: list[str] = field(default_factory=list)  # more keys for every arm
    parallel: int = 2
    device: str = "cpu"
    holdout_every: int = 10
    eval_episodes: int = 50
    fqe: FQEConfig = field(default_factory=FQEConfig)
    online: str | None = None
    summary: str | None = None  # one more place for summary.json
    keep: bool = False
    report: bool = False  # only table and picture of what there is

    def __post_init__(self) -> None:
        if not (self.arms and self.seeds) or self.parallel < 1:
            raise ValueError("ablate: expected at least one arm and seed, and parallel >= 1")
        if self.holdout_every == 1 or self.holdout_every < 0 or self.eval_episodes < 0:
            raise ValueError("ablate: expected holdout_every 0 or >= 2, and eval_episodes >= 0")
        if min(self.seeds) < 0 or len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"seeds: expected different numbers >= 0, got {list(self.seeds)}")
        if not self.name or "/" in self.name:
            raise ValueError(f"name: expected the name of one folder, got {self.name!r}; for a path use out=")
