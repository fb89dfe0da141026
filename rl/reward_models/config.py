"""What the commands about reward models need: TrainRewardModelConfig, EvaluateRewardModelConfig."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from reward_model.classifier import ClassifierConfig
from reward_model.judge import JudgeConfig
from reward_model.judge_http import EndpointConfig
from reward_model.labels import LabelConfig
from reward_model.trainer import RewardTrainerConfig
from rl.reward_models.data import RewardDataConfig
from rl.reward_models.replays import ReplayConfig


@dataclass(frozen=True)
class HoldOutConfig:
    """hold_out_every: the thresholds are chosen on about one of so many episodes, and the others serve for the rest."""

    hold_out_every: int = 2

    def __post_init__(self) -> None:
        if self.hold_out_every < 2:
            raise ValueError(f"hold_out_every: expected >= 2, got {self.hold_out_every}")


@dataclass(frozen=True)
class RewardFitConfig(HoldOutConfig):
    """How to fit: what the thresholds are chosen on is not learned from."""

    classifier: ClassifierConfig = field(default_factory=ClassifierConfig)
    trainer: RewardTrainerConfig = field(default_factory=RewardTrainerConfig)
    labels: LabelConfig = field(default_factory=LabelConfig)


@dataclass(frozen=True)
class TrainRewardModelConfig(RewardFitConfig):
    """Everything that `groundhog train-reward-model` needs: how to fit, and on what.

    out: the model's file; a new version where there is one of this task.
    """

    out: str = "runs/reward_models/press.safetensors"
    seed: int = 0
    device: str = "cpu"
    data: RewardDataConfig = field(default_factory=RewardDataConfig)
    replay: ReplayConfig = field(default_factory=ReplayConfig)


class JudgeKind(Enum):
    """Where a judge's model runs."""

    NONE = "none"  # the classifier of `model=` is evaluated
    HTTP = "http"  # behind an OpenAI-compatible endpoint
    LOCAL = "local"  # here, with the library transformers


@dataclass(frozen=True)
class JudgeSource:
    """A larger model in place of the classifier. folder: of a local one. key_variable: environment variable with the
    endpoint's key. version: change it with the model or the question.
    """

    kind: JudgeKind = JudgeKind.NONE
    folder: str | None = None
    key_variable: str = "OPENAI_API_KEY"
    version: int = 1
    endpoint: EndpointConfig = field(default_factory=EndpointConfig)
    ask: JudgeConfig = field(default_factory=JudgeConfig)

    def __post_init__(self) -> None:
        if (self.kind is JudgeKind.LOCAL) is not (self.folder is not None):
            raise ValueError(
                f"judge: kind={self.kind.value} with folder={self.folder}; a local judge needs its folder, others none"
            )


@dataclass(frozen=True)
class EvaluateRewardModelConfig(HoldOutConfig):
    """Everything that `groundhog evaluate-reward-model` needs. Episodes that the model has seen are left out.

    model: its file, for the classifier. out: folder for the report; default <model>_evaluation. Only a judge needs the
    hold-out, having no thresholds of its own; it is tested on the others.
    """

    model: str | None = None
    out: str | None = None
    seed: int = 0
    device: str = "cpu"
    data: RewardDataConfig = field(default_factory=RewardDataConfig)
    replay: ReplayConfig = field(default_factory=ReplayConfig)
    judge: JudgeSource = field(default_factory=JudgeSource)
    labels: LabelConfig = field(default_factory=LabelConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.judge.kind is not JudgeKind.NONE and self.model is not None:
            raise ValueError(
                "expected either model=<file> or a judge (judge.kind=http|local), one of the two"
            )
