"""PostTrainVLAConfig: everything that `groundhog post-train-vla` needs."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from reward_model.calibration.anchors import AnchorConfig
from reward_model.calibration.correction import CorrectionConfig
from rl.imagination.proprio import ProprioConfig
from rl.imagination.starts import StartConfig
from rl.vla.grpo import GRPOConfig
from rl.vla.imitation import ImitationConfig
from rl.vla.judges import DistortionConfig
from rl.vla.openvla.config import OpenVLAConfig
from rl.vla.small import SmallConfig
from rl.vla.trainer import LoopConfig
from robot.factory import ClockKind, ObsKind, RobotConfig, RobotKind


class WorldKind(Enum):
    """Who imagines. SIMULATOR: the simulator as a perfect world model, for measurements. VIDEO: a video world model."""

    SIMULATOR = "simulator"
    VIDEO = "video"


class JudgedBy(Enum):
    """Who scores what was imagined. OUTCOME: the simulator's word, distorted as told; REWARD_MODEL: a trained one."""

    OUTCOME = "outcome"
    REWARD_MODEL = "reward_model"


@dataclass(frozen=True)
class ImaginationConfig:
    """Where groups come from that are not executed.

    world_models, reward_models: a published version and a file for each task, with a video world. horizon: control
    steps that it imagines at most. max_risk: what the model trusts less is not judged. starts: its real first frames.
    """

    world: WorldKind = WorldKind.SIMULATOR
    judge: JudgedBy = JudgedBy.OUTCOME
    distortion: DistortionConfig = field(default_factory=DistortionConfig)
    world_models: dict[str, str] = field(default_factory=dict)
    reward_models: dict[str, str] = field(default_factory=dict)
    horizon: int = 24
    max_risk: float = 0.5
    starts: StartConfig = field(default_factory=StartConfig)
    proprio: ProprioConfig = field(default_factory=ProprioConfig)

    def __post_init__(self) -> None:
        if self.horizon < 1 or not 0.0 < self.max_risk <= 1.0:
            raise ValueError(
                f"imagination: expected horizon >= 1 and max_risk in (0, 1], got {self.horizon}, {self.max_risk}"
            )
        if self.world is WorldKind.VIDEO and self.judge is JudgedBy.OUTCOME:
            raise ValueError(
                "imagination.world=video: nobody knows the outcome of what it imagines; use "
                "imagination.judge=reward_model with imagination.reward_models={<task>: <file>}"
            )


@dataclass(frozen=True)
class PostTrainVLAConfig:
    """Everything that `groundhog post-train-vla` needs.

    arm: name of what is compared, see configs/vla. tasks: learned together, each with its instruction. policy: the
    directory of a policy to start from; None makes one: OpenVLA where `openvla.checkpoint` is given, otherwise a small
    one (`small`). robot.task is not used. correction: anchors, calibration and advantages; the same objects as on the
    SAC path.
    """

    arm: str = "wmrl"
    seed: int = 0
    name: str | None = None  # run directory below runs_dir; default vla-<arm>-<tasks>-s<seed>-<date>
    runs_dir: str = "runs"
    resume: str | None = None  # a run directory to continue
    device: str = "cpu"
    torch_threads: int = 1
    tasks: list[str] = field(default_factory=lambda: ["press"])
    policy: str | None = None
    robot: RobotConfig = field(default_factory=RobotConfig)
    small: SmallConfig = field(default_factory=SmallConfig)
    openvla: OpenVLAConfig = field(default_factory=OpenVLAConfig)
    imitation: ImitationConfig = field(default_factory=ImitationConfig)
    grpo: GRPOConfig = field(default_factory=GRPOConfig)
    correction: CorrectionConfig = field(
        default_factory=lambda: CorrectionConfig(anchors=AnchorConfig(fraction=0.125))
    )
    imagination: ImaginationConfig = field(default_factory=ImaginationConfig)
    loop: LoopConfig = field(default_factory=LoopConfig)

    def __post_init__(self) -> None:
        if not self.tasks or len(set(self.tasks)) != len(self.tasks):
            raise ValueError(f"tasks: expected at least one, each once, got {list(self.tasks)}")
        if not 0 <= self.seed < 2**31 or self.torch_threads < 1:
            raise ValueError("expected seed in 0 .. 2**31 - 1 and torch_threads >= 1")
        if self.openvla.checkpoint is not None and self.policy is not None:
            raise ValueError(
                "openvla.checkpoint: a new policy, and policy: one that exists; give one of them"
            )
        if self.openvla.checkpoint is not None and self.robot.obs is not ObsKind.PIXELS:
            raise ValueError("openvla.checkpoint: the model sees images; use robot.obs=pixels")
        kind = self.robot.kind
        if kind is not RobotKind.SIM and len(self.tasks) > 1:
            raise ValueError(
                f"tasks: robot.kind={kind.value} is one cell with one task, got {list(self.tasks)}"
            )
        if kind.physical and self.needs_demonstrations and self.imitation.path is None:
            raise ValueError(
                "imitation.path: a physical arm has no scripted demonstrator; record with `groundhog record`"
            )
        self._check_imagination()

    @property
    def needs_demonstrations(self) -> bool:
        """To imitate them, or as the real frames that imagination starts from."""
        return self.imitation.steps > 0 or self.imagination.world is WorldKind.VIDEO

    def _check_imagination(self) -> None:
        imagination = self.imagination
        simulated = self.robot.kind is RobotKind.SIM and self.robot.clock is ClockKind.VIRTUAL
        if imagination.world is WorldKind.SIMULATOR and not simulated:
            raise ValueError(
                "imagination.world=simulator: only for robot.kind=sim with robot.clock=virtual; use "
                "imagination.world=video"
            )
        if imagination.judge is JudgedBy.REWARD_MODEL and self.robot.obs is not ObsKind.PIXELS:
            raise ValueError("imagination.judge=reward_model: it judges images; use robot.obs=pixels")
        needed = []
        if imagination.world is WorldKind.VIDEO:
            needed.append(("world_models", imagination.world_models))
        if imagination.judge is JudgedBy.REWARD_MODEL:
            needed.append(("reward_models", imagination.reward_models))
        for name, files in needed:
            missing = [task for task in self.tasks if task not in files]
            if missing:
                raise ValueError(
                    f"imagination.{name}: expected a file for each task, none for {missing[0]}; write "
                    f"'imagination.{name}={{{missing[0]}: <file>}}'"
                )
