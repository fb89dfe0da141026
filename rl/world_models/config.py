"""What `groundhog finetune-world-model` needs."""

from __future__ import annotations

from dataclasses import dataclass, field

from rl.replay.lerobot.mapping import MappingConfig
from rl.replay.sampler import Holdout
from robot.factory import RobotConfig
from worldmodel.adapt import ChampionConfig
from worldmodel.audit import AuditConfig
from worldmodel.counterfactual import CounterfactualConfig
from worldmodel.factory import WorldModelConfig
from worldmodel.metrics import Convention


@dataclass(frozen=True)
class FinetuneWorldModelConfig:
    """Everything that `groundhog finetune-world-model` needs.

    data: a run directory, a replay store, or a LeRobot dataset, which is imported first (mapping=...).
    start: a published version to start from; its own settings hold and `model` is ignored. cpu_minutes: processor
    time of one thread; steps: optimiser steps; one of the two, the other stays null. resume: continue in `out`, as
    far as the training there was to go when it was begun.
    """

    data: str = "???"
    out: str | None = None  # default <data>/world_model, beside a LeRobot dataset <data>_world_model
    start: str | None = None
    resume: bool = False
    cpu_minutes: float | None = 10.0
    steps: int | None = None
    seed: int = 0
    device: str = "cpu"
    views: list[str] = field(default_factory=list)
    holdout: Holdout = field(default_factory=Holdout)
    clips: int = 64  # held-out clips that judge
    horizon: int = 12  # steps that they imagine
    round_steps: int = 100  # updates between two checkpoints
    model: WorldModelConfig = field(default_factory=WorldModelConfig)
    champion: ChampionConfig = field(default_factory=ChampionConfig)
    mapping: MappingConfig = field(default_factory=MappingConfig)

    def __post_init__(self) -> None:
        if (self.cpu_minutes is None) == (self.steps is None):
            raise ValueError(
                "finetune: expected one of cpu_minutes and steps, write steps=<n> cpu_minutes=null or the reverse"
            )
        if (self.cpu_minutes or 1.0) <= 0 or (1 if self.steps is None else self.steps) < 1:
            raise ValueError("finetune: expected cpu_minutes > 0 and steps >= 1")
        if min(self.clips, self.horizon, self.round_steps) < 1:
            raise ValueError("finetune: expected clips, horizon and round_steps >= 1")
        if self.horizon > self.model.max_horizon:
            raise ValueError(
                f"horizon: expected at most model.max_horizon={self.model.max_horizon}, got {self.horizon}"
            )


@dataclass(frozen=True)
class EvaluateWorldModelConfig:
    """Everything that `groundhog evaluate-world-model` needs.

    model: a version's file, or a run or an `out` of finetune-world-model, for its newest version. data: a run
    directory, a replay store, or a LeRobot dataset (mapping=...). all_episodes: nothing was trained on these data,
    judge on all of them. horizons: seconds ahead. lpips: weight file, by default that of an installed package.
    results: a results file in which the rows replace those of the same data and model.
    """

    model: str = "???"
    data: str = "???"
    out: str | None = None  # default `evaluation` beside the versions
    results: str | None = None
    name: str | None = None  # of the data in the rows; default the task
    model_name: str | None = None  # in the rows; default its kind
    all_episodes: bool = False
    holdout: Holdout = field(default_factory=Holdout)
    clips: int = 64
    horizons: list[float] = field(default_factory=lambda: [1.0, 2.0])
    convention: Convention = Convention.RGB
    lpips: str | None = None
    pictures: int = 4  # clips in the contact sheet and in the film
    seed: int = 0
    device: str = "cpu"
    mapping: MappingConfig = field(default_factory=MappingConfig)

    def __post_init__(self) -> None:
        if not self.horizons or min(self.horizons) <= 0:
            raise ValueError(f"horizons: expected seconds > 0, got {list(self.horizons)}")
        if min(self.clips, self.pictures) < 1:
            raise ValueError(
                f"evaluate-world-model: expected clips and pictures >= 1, got {self.clips}, {self.pictures}"
            )


@dataclass(frozen=True)
class AuditWorldModelConfig:
    """Everything that `groundhog audit-world-model` needs; the simulator is the judge.

    model: as for evaluate-world-model. robot: the simulated arm and its task. run: a run whose newest policy gives
    the policy's branches; its robot takes the place of `robot`. noise: range of the demonstrator's noise, one level
    for each episode. results: a results file in which the rows replace those of the same task.
    """

    model: str = "???"
    run: str | None = None
    out: str | None = None  # default `audit` beside the versions
    results: str | None = None
    episodes: int = 12
    starts: int = 4  # of each episode, from which branches start
    horizon: int = 12  # control steps
    noise: list[float] = field(default_factory=lambda: [0.25, 1.0])
    seed: int = 0
    device: str = "cpu"
    robot: RobotConfig = field(default_factory=RobotConfig)
    local: CounterfactualConfig = field(default_factory=CounterfactualConfig)
    audit: AuditConfig = field(default_factory=AuditConfig)

    def __post_init__(self) -> None:
        if min(self.episodes, self.starts, self.horizon) < 1:
            raise ValueError("audit-world-model: expected episodes, starts and horizon >= 1")
        if len(self.noise) != 2 or not 0 <= self.noise[0] <= self.noise[1] <= 1:
            raise ValueError(f"noise: expected [lowest, highest] within 0..1, got {list(self.noise)}")
