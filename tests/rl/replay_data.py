"""Observations whose every byte follows from (episode, step), so that a test can tell any row it reads."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rl.batch import Batch
from rl.replay.journal import EndReason, EpisodeOutcome
from rl.replay.schema import StoreSchema
from rl.replay.writer import StoreWriter
from robot.types import Float32, Observation, ProprioSpec, Source, Transition

VIEWS = {"front": (3, 4), "wrist": (2, 5)}
ACTION_DIM = 3
DONE = EpisodeOutcome(EndReason.SUCCESS)


def schema(segment_rows: int = 4, **changes: object) -> StoreSchema:
    zeros, ones = np.zeros(2, np.float32), np.ones(2, np.float32)
    spec = ProprioSpec(names=("episode", "step"), offset=zeros, scale=ones, fine=zeros)
    settings: dict[str, object] = {
        "task": "insert",
        "views": VIEWS,
        "proprio": spec,
        "action_dim": ACTION_DIM,
        "metadata": {"frame": "base", "action_scale": [0.01, 0.06, 1.0]},
        "segment_rows": segment_rows,
    }
    return StoreSchema(**{**settings, **changes})  # type: ignore[arg-type]


@cache
def image(view: str, episode: int, step: int) -> NDArray[np.uint8]:
    height, width = VIEWS[view]
    seed = (episode * 7919 + step * 104729 + len(view) * 31) % 2**32
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    pixels.flags.writeable = False
    return pixels


def observation(episode: int, step: int) -> Observation:
    time = episode * 1000.0 + step * 0.1
    return Observation(
        images={view: image(view, episode, step) for view in VIEWS},
        proprio=np.array([episode, step], np.float32),
        timestamp=time,
        image_timestamps=dict.fromkeys(VIEWS, time - 0.01),
    )


def action(episode: int, step: int) -> Float32:
    return np.array([(episode % 97) / 100, (step % 89) / 100, -0.5], np.float32)


def transition(
    episode: int, step: int, *, terminated: bool = False, truncated: bool = False, intervened: bool = False
) -> Transition:
    """Step `step` of `episode`, from its observation `step` to its observation `step + 1`."""
    return Transition(
        observation=observation(episode, step),
        action=action(episode, step),
        requested_action=-action(episode, step),
        reward=1.0 if terminated else 0.0,
        next_observation=observation(episode, step + 1),
        terminated=terminated,
        truncated=truncated,
        intervened=intervened,
        source=Source.CORRECTION if intervened else Source.REAL,
        policy_version=step,
    )


def record(writer: StoreWriter, steps: int, *, success: bool = True) -> None:
    """The next episode of so many steps, ended by a success or a time-out."""
    number = writer.begin_episode(observation(writer.num_episodes, 0))
    for step in range(steps):
        last = step == steps - 1
        writer.add(transition(number, step, terminated=last and success, truncated=last and not success))
    writer.end_episode(DONE if success else EpisodeOutcome(EndReason.TIMEOUT))


def triples(batch: Batch) -> list[tuple[int, int]]:
    """The (episode, step) of each transition, after a check that state, action and next state belong."""
    places = []
    for k in range(len(batch)):
        episode, step = (int(value) for value in batch.proprio[k])
        np.testing.assert_array_equal(batch.next_proprio[k], [episode, step + 1])
        np.testing.assert_array_equal(batch.action[k], action(episode, step))
        for view in VIEWS:
            np.testing.assert_array_equal(batch.images[view][k], image(view, episode, step))
            np.testing.assert_array_equal(batch.next_images[view][k], image(view, episode, step + 1))
        places.append((episode, step))
    return places


def flip_byte(path: Path, position: int) -> None:
    """Damage one byte of a file, negative positions counted from its end."""
    data = bytearray(path.read_bytes())
    data[position] ^= 0xFF
    path.write_bytes(data)
