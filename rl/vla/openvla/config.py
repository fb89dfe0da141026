"""OpenVLAConfig: what a user says of an OpenVLA policy; imports nothing heavy, every command reads it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class OpenVLAConfig:
    """checkpoint: a directory in the layout of openvla/openvla-7b, or a name on the Hugging Face hub; None = not used.

    chunk: actions per decision. lora_rank, lora_alpha: of the low-rank additions to every linear layer but the last.
    statistics: the data set whose meaning of actions is kept, a key of the checkpoint's `norm_stats`; None lets the
    bins span our [-1, 1], to be learned by imitation. position_scale [m], rotation_scale [rad]: what an action entry
    of 1 asks for, needed with `statistics`. pass_batch: decisions per pass where no gradient is kept.
    """

    checkpoint: str | None = None
    chunk: int = 8
    lora_rank: int = 32
    lora_alpha: int = 16
    statistics: str | None = None
    position_scale: float | None = None
    rotation_scale: float | None = None
    pass_batch: int = 16

    def __post_init__(self) -> None:
        if min(self.chunk, self.lora_rank, self.lora_alpha, self.pass_batch) < 1:
            raise ValueError("openvla: expected chunk, lora_rank, lora_alpha and pass_batch >= 1")
        scales = (self.position_scale, self.rotation_scale)
        if self.statistics is not None and not all(scale is not None and scale > 0.0 for scale in scales):
            raise ValueError(
                f"openvla.statistics={self.statistics}: expected position_scale [m] and rotation_scale [rad] > 0, got "
                f"{scales}; use those of the task's actions"
            )
