"""What each command needs, as frozen dataclasses with their range checks; those of larger rooms live there."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import torch

from reward_model.calibration.demo.experiment import ExperimentConfig
from rl.ablation.config import AblateConfig
from rl.agent.sac import SACConfig
from rl.agent.spec import GripperControl
from rl.cloning import ClonePolicyConfig
from rl.replay.lerobot.config import ExportConfig, ImportConfig
from rl.reward_models.config import EvaluateRewardModelConfig, TrainRewardModelConfig
from rl.selection.admission import SelectionMode
from rl.selection.ratio import RatioMode
from rl.synthetic import SyntheticConfig
from rl.vla.config import PostTrainVLAConfig
from rl.workers.actor import ActorConfig
from rl.workers.learner import LearnerConfig
from rl.workers.pacing import ActorWaits, PacingConfig
from rl.world_models.config import AuditWorldModelConfig, EvaluateWorldModelConfig, FinetuneWorldModelConfig
from robot.factory import ClockKind, ObsKind, RobotConfig, RobotKind
from robot.teleop.gamepad import GamepadConfig
from robot.teleop.keyboard import KeyboardConfig
from robot.teleop.spacemouse import SpaceMouseConfig


class CorrectionKind(Enum):
    """Who may take over from the policy."""

    NONE = "none"
    SCRIPTED = "scripted"
    KEYBOARD = "keyboard"
    GAMEPAD = "gamepad"
    SPACEMOUSE = "spacemouse"

    @property
    def by_hand(self) -> bool:
        """A person steers, in real time."""
        return self not in (CorrectionKind.NONE, CorrectionKind.SCRIPTED)


class WandbMode(Enum):
    """Where wandb keeps its record; `metrics.jsonl` is written in every mode."""

    DISABLED = "disabled"
    OFFLINE = "offline"
    ONLINE = "online"


class RuntimeKind(Enum):
    """INLINE: one process, round robin, deterministic. LOCAL: one spawned process per worker."""

    INLINE = "inline"
    LOCAL = "local"


@dataclass(frozen=True)
class DemosConfig:
    """Demonstrations: an existing store (`path`), or recorded by the scripted expert at the start of the run."""

    path: str | None = None
    episodes: int = 20
    noise: float = 0.25  # human-like noise of the scripted expert, 0..1

    def __post_init__(self) -> None:
        if self.episodes < 1:
            raise ValueError(
                f"demos.episodes: expected at least 1 (learning needs demonstrations), got {self.episodes}"
            )
        if not 0 <= self.noise <= 1:
            raise ValueError(f"demos.noise: expected 0..1, got {self.noise}")


@dataclass(frozen=True)
class CorrectionConfig:
    """Correction device, and how each of those that a hand works is set; only the one of `kind` is used."""

    kind: CorrectionKind = CorrectionKind.SCRIPTED
    keyboard: KeyboardConfig = field(default_factory=KeyboardConfig)
    gamepad: GamepadConfig = field(default_factory=GamepadConfig)
    spacemouse: SpaceMouseConfig = field(default_factory=SpaceMouseConfig)


@dataclass(frozen=True)
class RuntimeConfig:
    """Processes. silent_s: a worker without a heartbeat for so long is treated as dead (seconds)."""

    kind: RuntimeKind = RuntimeKind.LOCAL
    max_restarts: int = 3
    silent_s: float = 120.0
    torch_threads: int = 1
    memory_budget_gb: float = 12.0

    def __post_init__(self) -> None:
        if (
            self.max_restarts < 0
            or self.silent_s <= 1
            or self.torch_threads < 1
            or self.memory_budget_gb <= 0
        ):
            raise ValueError(
                "runtime: expected max_restarts >= 0, silent_s > 1, torch_threads >= 1, memory_budget_gb > 0"
            )


@dataclass(frozen=True)
class TrainConfig:
    """Everything that `groundhog train` needs."""

    seed: int = 0
    name: str | None = None  # run directory below runs_dir; default <task>-s<seed>-<date>
    runs_dir: str = "runs"
    resume: str | None = None  # a run directory to continue
    device: str = "cpu"
    open_picture: bool = False  # show summary.png in a window where there is a display
    wandb: WandbMode = WandbMode.OFFLINE
    gripper: GripperControl = GripperControl.DISCRETE  # how a gripper that the task moves is controlled
    robot: RobotConfig = field(default_factory=RobotConfig)
    demos: DemosConfig = field(default_factory=DemosConfig)
    correction: CorrectionConfig = field(default_factory=CorrectionConfig)
    agent: SACConfig = field(default_factory=SACConfig)
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    actor: ActorConfig = field(default_factory=ActorConfig)
    pacing: PacingConfig = field(default_factory=PacingConfig)
    synthetic: SyntheticConfig = field(default_factory=SyntheticConfig)
    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)

    def __post_init__(self) -> None:
        _check_seed(self.seed)
        check_device(self.device)
        _check_by_hand(self.correction.kind, self.robot.clock)
        if self.robot.kind is not RobotKind.SIM and self.correction.kind is CorrectionKind.SCRIPTED:
            raise ValueError(
                "correction.kind=scripted: the scripted corrector knows the tasks of the simulated arm only; with "
                f"robot.kind={self.robot.kind.value} use none, or keyboard, gamepad or spacemouse with "
                "robot.clock=wall"
            )
        if self.robot.clock is ClockKind.WALL and self.pacing.actor_waits is ActorWaits.STEP:
            raise ValueError(
                "pacing.actor_waits=step: on a wall clock the arm moves on while the actor waits; "
                "use pacing.actor_waits=episode"
            )
        _check_policy_share(self.agent, self.synthetic)


@dataclass(frozen=True)
class RecordConfig:
    """Everything that `groundhog record` needs. Failed attempts stay on disk and are never learned from."""

    out: str = "demos/press"
    seed: int = 0
    robot: RobotConfig = field(default_factory=RobotConfig)
    demos: DemosConfig = field(default_factory=DemosConfig)
    correction: CorrectionConfig = field(default_factory=CorrectionConfig)

    def __post_init__(self) -> None:
        _check_seed(self.seed)
        _check_by_hand(self.correction.kind, self.robot.clock)


@dataclass(frozen=True)
class CheckRobotConfig:
    """Everything that `groundhog check-robot` needs. Nothing moves before the operator of a physical arm agrees.

    motion: try a small motion and the stops. correction: a device whose values are to be shown.
    """

    seed: int = 0
    seconds: float = 3.0  # for which sensors are looked at
    motion: bool = True
    robot: RobotConfig = field(default_factory=RobotConfig)
    correction: CorrectionConfig = field(default_factory=lambda: CorrectionConfig(CorrectionKind.NONE))

    def __post_init__(self) -> None:
        _check_seed(self.seed)
        _check_by_hand(self.correction.kind, self.robot.clock)
        if not 0.2 <= self.seconds <= 600.0:
            raise ValueError(f"seconds: expected 0.2 to 600, got {self.seconds}")


@dataclass(frozen=True)
class CheckCorrectionConfig:
    """Everything that `groundhog check-correction` needs: the device in your hand. No arm is told what it says."""

    seconds: float = 30.0  # for which it is watched
    correction: CorrectionConfig = field(default_factory=lambda: CorrectionConfig(CorrectionKind.NONE))

    def __post_init__(self) -> None:
        if not 0.2 <= self.seconds <= 3600.0:
            raise ValueError(f"seconds: expected 0.2 to 3600, got {self.seconds}")


def _check_seed(seed: int) -> None:
    if not 0 <= seed < 2**31:
        raise ValueError(f"seed: expected 0 to {2**31 - 1}, got {seed}")


def _check_policy_share(agent: SACConfig, synthetic: SyntheticConfig) -> None:
    """Raise ValueError where imagined failures would be imitated, or critics would see imagined successes alone.

    And where a weight, which scales the critics' loss alone, would not bound what imagination does to the policy.
    """
    mode, share = synthetic.selection.mode, synthetic.share.mode
    if synthetic.on and agent.synthetic_imitated is not (mode is SelectionMode.SUCCESSES):
        raise ValueError(
            "agent.synthetic_imitated: expected true with synthetic.selection.mode=successes and false with any other, "
            f"got {agent.synthetic_imitated} with {mode.value}; failures are not for imitation, nor successes alone "
            "for the critics"
        )
    for key in ("synthetic_imitated", "synthetic_trains_policy"):
        if synthetic.on and getattr(agent, key) and share is not RatioMode.FRACTION:
            raise ValueError(
                f"synthetic.share.mode: expected fraction with agent.{key}=true, got {share.value}; a weight scales "
                "the loss of the critics alone, not what the policy learns from what is imagined"
            )


def check_device(name: str) -> None:
    """Raise ValueError for a word that is no device, or one that this machine has not."""
    if re.fullmatch(r"cpu|cuda(:\d{1,2})?", name) is None:
        raise ValueError(f"device: expected cpu, cuda or cuda:<index>, got {name!r}")
    index, present = int(name.partition(":")[2] or 0), torch.cuda.device_count()
    if name != "cpu" and index >= present:
        raise ValueError(
            f"device={name}: PyTorch finds {present} CUDA devices on this machine; use device=cpu"
        )


def _check_by_hand(kind: CorrectionKind, clock: ClockKind) -> None:
    if kind.by_hand and clock is ClockKind.VIRTUAL:
        raise ValueError(
            f"correction.kind={kind.value}: a person cannot steer faster than real time; use robot.clock=wall"
        )


@dataclass(frozen=True)
class EvaluateConfig:
    """Everything that `groundhog evaluate` needs. run: a run, or what `groundhog clone-policy` left.

    version: a published policy version; default the newest. noise: share of the policy's own spread that acts; default
    the run's `actor.eval_noise`, none of a cloned policy. robot: on which a cloned policy acts; a run has its own.
    """

    run: str = "???"
    robot: RobotConfig = field(default_factory=RobotConfig)
    episodes: int = 50
    version: int | None = None
    noise: float | None = None
    device: str | None = None  # default that of the run
    correction: CorrectionConfig = field(default_factory=lambda: CorrectionConfig(CorrectionKind.NONE))
    out: str | None = None  # JSON file; default <run>/evaluations/v<version>.json

    def __post_init__(self) -> None:
        if self.episodes < 1:
            raise ValueError(f"episodes: expected at least 1, got {self.episodes}")
        if self.noise is not None and not 0.0 <= self.noise <= 1.0:
            raise ValueError(f"noise: expected a share in [0, 1], got {self.noise}")


class ShowSource(Enum):
    """What of a run is shown."""

    ALL = "all"  # every store, episode by episode
    SYNTHETIC = "synthetic"  # imagined clips, each beside the real steps that it branched from


@dataclass(frozen=True)
class ShowConfig:
    """Everything that `groundhog show` needs. path: a run, one store or a LeRobot dataset.

    source: synthetic shows imagined clips of a run beside the real ones, `clips` of them up to `episode`.
    episode: index, negative from the end. check: verify every row's checksum, and look for torn, doubled, shifted and
    frozen data; exit code 1 where something is found.
    """

    path: str = "???"
    source: ShowSource = ShowSource.ALL
    clips: int = 8
    episode: int = -1
    out: str | None = (
        None  # directory for the contact sheet and the film; default <store>/show, <dataset>_show
    )
    columns: int = 12
    check: bool = False

    def __post_init__(self) -> None:
        for name in ("columns", "clips"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: expected at least 1, got {getattr(self, name)}")


@dataclass(frozen=True)
class BenchConfig:
    """Everything that `groundhog bench` needs: every task x arm x seed is one run, skipped where its result exists.

    arms: files of configs/arm. obs: configs/experiment/<task>_<obs>.yaml. train: more overrides for every run.
    parallel: runs side by side, one thread each. report: only draw the table and the curves of what there is.
    """

    tasks: list[str] = field(default_factory=lambda: ["press"])
    arms: list[str] = field(default_factory=lambda: ["bc", "rlpd"])
    seeds: list[int] = field(default_factory=lambda: [0, 1, 2])
    obs: ObsKind = ObsKind.PIXELS
    train: list[str] = field(default_factory=list)
    parallel: int = 2
    report: bool = False
    runs_dir: str = "runs/bench"
    results_dir: str = "benchmarks/results/bench"
    docs_dir: str = "docs"

    def __post_init__(self) -> None:
        if not (self.tasks and self.arms and self.seeds) or self.parallel < 1:
            raise ValueError("bench: expected at least one task, arm and seed, and parallel >= 1")


@dataclass(frozen=True)
class CalibrationDemoConfig:
    """Everything that `groundhog calibration-demo` needs. docs_dir: for the picture, and its page gets the table."""

    experiment: ExperimentConfig = field(default_factory=ExperimentConfig)
    out: str = "benchmarks/results/calibration_demo.json"
    docs_dir: str = "docs"


SCHEMAS: dict[str, type[Any]] = {
    "train": TrainConfig,
    "record": RecordConfig,
    "evaluate": EvaluateConfig,
    "show": ShowConfig,
    "bench": BenchConfig,
    "ablate": AblateConfig,
    "import-dataset": ImportConfig,
    "export-dataset": ExportConfig,
    "clone-policy": ClonePolicyConfig,
    "finetune-world-model": FinetuneWorldModelConfig,
    "evaluate-world-model": EvaluateWorldModelConfig,
    "audit-world-model": AuditWorldModelConfig,
    "calibration-demo": CalibrationDemoConfig,
    "post-train-vla": PostTrainVLAConfig,
    "train-reward-model": TrainRewardModelConfig,
    "evaluate-reward-model": EvaluateRewardModelConfig,
    "check-robot": CheckRobotConfig,
    "check-correction": CheckCorrectionConfig,
}
