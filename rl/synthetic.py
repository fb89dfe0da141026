"""SyntheticConfig: everything about relived experience in a run, from who imagines to how much of it is used."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from reward_model.calibration.calibrator import CalibrationConfig
from rl.imagination.adapting import TrustConfig
from rl.imagination.imagine import ImaginationConfig
from rl.imagination.proprio import ProprioConfig
from rl.replay.sampler import Holdout
from rl.reward_models.config import RewardFitConfig
from rl.selection.admission import SelectionConfig
from rl.selection.queues import QueueConfig
from rl.workers.synthetic import SyntheticShareConfig
from rl.workers.world_model import WorldModelWorkerConfig
from worldmodel.adapt import ChampionConfig, ScheduleConfig
from worldmodel.factory import WorldModelConfig


class ImaginedBy(Enum):
    """Who says what would have happened."""

    NONE = "none"  # nobody: plain RLPD
    ORACLE = "oracle"  # the simulator itself, labels included: what imagination could be worth at best
    VIDEO = "video"  # a world model shows it, a reward model judges it


@dataclass(frozen=True)
class VideoConfig:
    """The parts of a run that imagines video.

    world_model: a published version to start from (a file, a run, or an `out` of finetune-world-model); None fits one
    on the demonstrations first. A run that has one is not continued with another. reward_model: a file of
    train-reward-model, of which the run keeps a copy; None trains one on the demonstrations, by `reward_fit`, before
    the first step. Where a run goes on with another one, what the one before has labelled is removed, and calibration
    begins anew. anchors: a store of recordings from which nothing is learned, neither here nor by the two models, as
    far as those say; tests of a new world model replay them too, and versions compete on `judged_clips` of theirs as
    well. recordings: a store of others, neither anchors nor those of demos.path, but those of the world model if one
    likes, on which the regression of the arm's readings is fitted before the first step; without them it is fitted on
    the demonstrations and what the run records, and errs by more early in a run. Both stores are read where they lie.
    max_risk: an imagined path ends beyond it. confidence: what is called success needs so high a calibrated score, what
    is called failure one of at most 1 - confidence, else it is unknown; from the first fit of the calibrator on.
    judged_clips, horizon: held-out clips of the run by which versions compete, and the control steps they imagine.
    executed_share: of imagined clips, how many the simulator carries out, which anchors the calibrator. true_labels: it
    carries out all of them, and what came of it is the label. Both need the simulated arm.
    """

    world_model: str | None = None
    reward_model: str | None = None
    anchors: str | None = None
    recordings: str | None = None
    reward_fit: RewardFitConfig = field(default_factory=RewardFitConfig)
    max_risk: float = 0.5
    confidence: float = 0.5
    judged_clips: int = 24
    horizon: int = 8
    executed_share: float = 0.0
    true_labels: bool = False
    model: WorldModelConfig = field(default_factory=WorldModelConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    champion: ChampionConfig = field(default_factory=ChampionConfig)
    trust: TrustConfig = field(default_factory=TrustConfig)
    proprio: ProprioConfig = field(default_factory=ProprioConfig)
    calibration: CalibrationConfig = field(default_factory=CalibrationConfig)
    holdout: Holdout = field(default_factory=Holdout)

    def __post_init__(self) -> None:
        if not 0.0 <= self.executed_share <= 1.0:
            raise ValueError(f"synthetic.video.executed_share: expected 0..1, got {self.executed_share}")
        if not 0.5 <= self.confidence < 1.0:
            raise ValueError(f"synthetic.video.confidence: expected [0.5, 1), got {self.confidence}")
        if not 0.0 < self.max_risk <= 1.0 or min(self.judged_clips, self.horizon) < 1:
            raise ValueError(
                "synthetic.video: expected max_risk in (0, 1], judged_clips and horizon >= 1, got "
                f"{self.max_risk}, {self.judged_clips}, {self.horizon}"
            )


@dataclass(frozen=True)
class SyntheticConfig:
    """Relived experience: real states, other actions, imagined futures, and how the critic learns from them."""

    model: ImaginedBy = ImaginedBy.NONE
    worker: WorldModelWorkerConfig = field(default_factory=WorldModelWorkerConfig)
    imagination: ImaginationConfig = field(default_factory=ImaginationConfig)
    selection: SelectionConfig = field(default_factory=SelectionConfig)
    queues: QueueConfig = field(default_factory=QueueConfig)
    video: VideoConfig = field(default_factory=VideoConfig)
    share: SyntheticShareConfig = field(default_factory=SyntheticShareConfig)

    @property
    def on(self) -> bool:
        return self.model is not ImaginedBy.NONE
