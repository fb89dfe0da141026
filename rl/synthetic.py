"""SyntheticConfig: everything about relived experience in a run, from who imagines to how much of it is used."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from rl.imagination.imagine import ImaginationConfig
from rl.selection.admission import SelectionConfig
from rl.selection.queues import QueueConfig
from rl.workers.synthetic import SyntheticShareConfig
from rl.workers.world_model import WorldModelWorkerConfig


class ImaginedBy(Enum):
    """Who says what would have happened."""

    NONE = "none"  # nobody: plain RLPD
    ORACLE = "oracle"  # the simulator itself, labels included: what imagination could be worth at best


@dataclass(frozen=True)
class SyntheticConfig:
    """Relived experience: real states, other actions, imagined futures, and how the critic learns from them."""

    model: ImaginedBy = ImaginedBy.NONE
    worker: WorldModelWorkerConfig = field(default_factory=WorldModelWorkerConfig)
    imagination: ImaginationConfig = field(default_factory=ImaginationConfig)
    selection: SelectionConfig = field(default_factory=SelectionConfig)
    queues: QueueConfig = field(default_factory=QueueConfig)
    share: SyntheticShareConfig = field(default_factory=SyntheticShareConfig)

    @property
    def on(self) -> bool:
        return self.model is not ImaginedBy.NONE
