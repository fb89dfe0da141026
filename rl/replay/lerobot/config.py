"""What `groundhog import-dataset` and `groundhog export-dataset` need."""

from __future__ import annotations

from dataclasses import dataclass, field

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
