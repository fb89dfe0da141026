"""Stored episodes as labelled clips for the reward model; where the replay store and the reward model meet."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from reward_model.dataset import KnownClip, clip_of_episode
from rl.inspection import store_paths
from rl.replay.errors import StoreError
from rl.replay.journal import EndReason
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


def read_clips(config: RewardDataConfig) -> list[KnownClip]:
    """One clip per episode of known outcome; raises StoreError where there is none."""
    if not config.paths:
        raise StoreError("data.paths: expected at least one store or run directory, got none")
    clips = [
        clip
        for path in config.paths
        for store in store_paths(Path(path))
        for clip in _of_store(store, config)
    ]
    if not clips:
        raise StoreError(
            f"data.paths={config.paths}: no episode with a known outcome; record some that succeed and some that fail"
        )
    return correct(clips, [Path(name) for name in config.corrections])


def _of_store(path: Path, config: RewardDataConfig) -> list[KnownClip]:
    reader = StoreReader(path)
    task = reader.schema.task
    if config.hold_steps is None and task not in TASKS:
        raise StoreError(
            f"{path}: task {task} is not known here; say data.hold_steps=<steps that success held>"
        )
    hold = config.hold_steps or make_task(task).spec.hold_steps
    name = "/".join(path.resolve().parts[-2:])
    clips = []
    for info in reader.episodes():
        outcome = outcome_of(info.outcome.reason, config.timeout_is_failure)
        if outcome is not Label.UNKNOWN:
            episode = reader.episode(info.episode)
            clips.append(
                clip_of_episode(
                    episode, outcome, task=task, store=name, hold_steps=hold, margin=config.margin
                )
            )
    return clips


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


def correct(clips: Sequence[KnownClip], files: Sequence[Path]) -> list[KnownClip]:
    """The clips with the labels that people gave to single frames: entries {episode, first, last, label}.

    Raises StoreError for a file or a label that cannot be read.
    """
    known = {clip.episode: clip for clip in clips}
    for file in files:
        try:
            entries = json.loads(file.read_text())["clips"]
            for entry in entries:
                label, clip = Label[str(entry["label"]).upper()], known.get(entry["episode"])
                if clip is not None:
                    labels = clip.label.copy()
                    labels[int(entry["first"]) : int(entry["last"]) + 1] = label
                    known[clip.episode] = replace(clip, label=labels)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StoreError(
                f"{file}: cannot be read ({error!r}); expected a false_positives.json with labels success, failure "
                "or unknown"
            ) from error
    return list(known.values())
