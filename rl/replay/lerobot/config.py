"""What `groundhog import-dataset` and `groundhog export-dataset` need."""

from __future__ import annotations

from dataclasses import dataclass, field

from rl.replay.lerobot.encode import Encoding, VideoCodec
from rl.replay.lerobot.mapping import MappingConfig


@dataclass(frozen=True)
class ImportConfig:
    """Everything that `groundhog import-dataset` needs. path: the dataset's directory. out: a new store.

    episodes: only these of the dataset, all without a list. repair: mend what can be mended without guessing (see
    docs/datasets.md) instead of leaving episodes out.
    """

    path: str = "???"
    out: str = "???"
    episodes: list[int] = field(default_factory=list)
    repair: bool = False
    mapping: MappingConfig = field(default_factory=MappingConfig)


@dataclass(frozen=True)
class ExportConfig:
    """Everything that `groundhog export-dataset` needs. path: a replay store. out: a new directory.

    fps: only for a store whose control rate is no whole number;
    the real times are columns of the dataset in any case. videos_from: the dataset from which the store was
    imported, whose videos are then carried over unchanged instead of being encoded again.
    """

    path: str = "???"
    out: str = "???"
    codec: VideoCodec = VideoCodec.H264
    crf: int = 18
    fps: int | None = None
    videos_from: str | None = None

    def encoding(self) -> Encoding:
        return Encoding(self.codec, self.crf)

    def __post_init__(self) -> None:
        self.encoding()
        if self.fps is not None and self.fps < 1:
            raise ValueError(f"fps: expected at least 1, got {self.fps}")
