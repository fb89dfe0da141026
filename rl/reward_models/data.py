"""Stored episodes of known outcome for the reward model; where the replay store and the reward model meet."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from reward_model.dataset import KnownClip, Origin, label_frames
from reward_model.interface import by_name
from reward_model.labels import Labels
from rl.inspection import store_paths
from rl.replay.errors import StoreError
from rl.replay.fingerprint import fingerprint
from rl.replay.journal import EndReason, EpisodeInfo
from rl.replay.reader import StoreReader
from robot.factory import TASKS, make_task
from robot.types import Label


@dataclass(frozen=True)
class RewardDataConfig:
    """Where frames of known outcome come from.

    paths: stores or run directories. hold_steps: control steps that success had held when it was declared; default
    that of the task. margin: frames just before that are left out. timeout_is_failure: nobody declared success
    before the time limit; say false where only a reward model could have. corrections: JSON files of false
    positives that a person has looked through, see `groundhog evaluate-reward-model`.
    """

    paths: list[str] = field(default_factory=list)
    hold_steps: int | None = None
    margin: int = 0
    timeout_is_failure: bool = True
    corrections: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if (self.hold_steps is not None and self.hold_steps < 1) or self.margin < 0:
            raise ValueError(
                f"data: expected hold_steps >= 1 and margin >= 0, got {self.hold_steps}, {self.margin}"
            )


@dataclass(frozen=True)
class KnownEpisode:
    """A stored episode whose outcome is known. name: of the episode, unique among stores. label: (T+1,)."""

    reader: StoreReader
    info: EpisodeInfo
    name: str
    label: Labels

    @property
    def task(self) -> str:
        return self.reader.schema.task

    @property
    def fingerprint(self) -> str:
        """The same wherever the store lies."""
        return fingerprint(self.reader, self.info.episode)

    def clip(self) -> KnownClip:
        """All its frames."""
        episode = self.reader.episode(self.info.episode)
        readings = by_name(episode.proprio, self.reader.schema.proprio.names)
        return KnownClip(episode.images, self.label, self.task, self.name, readings=readings)


def read_episodes(config: RewardDataConfig) -> list[KnownEpisode]:
    """The episodes of known outcome, corrected; raises StoreError where there is none."""
    if not config.paths:
        raise StoreError("data.paths: expected at least one store or run directory, got none")
    episodes = [
        episode
        for path in config.paths
        for store in store_paths(Path(path))
        for episode in _of_store(store, config)
    ]
    if not episodes:
        raise StoreError(
            f"data.paths={config.paths}: no episode with a known outcome; record some that succeed and some that fail"
        )
    return corrected(episodes, [Path(name) for name in config.corrections])


def _of_store(path: Path, config: RewardDataConfig) -> list[KnownEpisode]:
    reader = StoreReader(path)
    task = reader.schema.task
    if config.hold_steps is None and task not in TASKS:
        raise StoreError(
            f"{path}: task {task} is not known here; say data.hold_steps=<steps that success held>"
        )
    hold = config.hold_steps or make_task(task).spec.hold_steps
    place = "/".join(path.resolve().parts[-2:])
    return [
        KnownEpisode(
            reader,
            info,
            f"{place}/{info.episode}",
            label_frames(outcome, info.rows, hold, config.margin),
        )
        for info in reader.episodes()
        if (outcome := outcome_of(info.outcome.reason, config.timeout_is_failure)) is not Label.UNKNOWN
    ]


def outcome_of(reason: EndReason, timeout_is_failure: bool = True) -> Label:
    """What the end of an episode says about all of it; a fault, a stop or a discard says nothing."""
    match reason:
        case EndReason.SUCCESS:
            return Label.SUCCESS
        case EndReason.FAILURE:
            return Label.FAILURE
        case EndReason.TIMEOUT if timeout_is_failure:
            return Label.FAILURE
        case _:
            return Label.UNKNOWN


def corrected(episodes: Sequence[KnownEpisode], files: Sequence[Path]) -> list[KnownEpisode]:
    """The episodes with the labels that people gave to single frames: entries {source, episode, first, last, label}.

    Those of generated frames say nothing about the real ones. Raises StoreError for what cannot be read.
    """
    known = {episode.name: episode for episode in episodes}
    for file in files:
        try:
            for entry in json.loads(file.read_text())["clips"]:
                given, episode = Label[str(entry["label"]).upper()], known.get(entry["episode"])
                if episode is not None and entry["source"] == Origin.REAL.value:
                    label = episode.label.copy()
                    label[int(entry["first"]) : int(entry["last"]) + 1] = given
                    known[episode.name] = replace(episode, label=label)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StoreError(
                f"{file}: cannot be read ({error!r}); expected a false_positives.json with labels success, failure "
                "or unknown"
            ) from error
    return list(known.values())
