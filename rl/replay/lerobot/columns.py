"""The columns in which a store's episodes travel as a LeRobot dataset, and back without loss.

T steps have T + 1 rows. The last row is the last observation: its action is zero, and the last step's reward and
end stand there, where LeRobot's readers expect them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from rl.replay.lerobot.errors import EpisodeError
from rl.replay.lerobot.layout import Feature
from rl.replay.lerobot.rows import EpisodeRows
from rl.replay.schema import StoreSchema
from robot.types import Episode, Provenance

STATE, ACTION, REWARD, DONE = "observation.state", "action", "next.reward", "next.done"
INTERVENTION = "complementary_info.is_intervention"
OURS = "groundhog."
IMAGES = "observation.images."
_STEP_COLUMNS = {  # column -> dtype in the dataset; one number per step, 0 in the last row
    "terminated": "bool",
    "truncated": "bool",
    "gripper_changed": "bool",
    "source": "int64",
    "label": "int64",
    "policy_version": "int64",
}
_PROVENANCE_TYPES = {
    entry.name: "int64" if isinstance(entry.default, int) else "float64" for entry in fields(Provenance)
}
Columns = dict[str, NDArray[np.generic]]
_Number = TypeVar("_Number", bound=np.generic)


def features(schema: StoreSchema, *, provenance: bool) -> dict[str, Feature]:
    """The features of the columns below, without images and without LeRobot's own index columns."""
    names = tuple(schema.proprio.names)
    width = (schema.action_dim,)
    own = {
        "requested_action": Feature("float32", width),
        **{name: Feature(dtype, (1,)) for name, dtype in _STEP_COLUMNS.items()},
        "timestamp": Feature("float64", (1,)),
        **{f"image_timestamp.{view}": Feature("float64", (1,)) for view in schema.views},
    }
    if provenance:
        own |= {f"provenance.{name}": Feature(dtype, (1,)) for name, dtype in _PROVENANCE_TYPES.items()}
    return {
        STATE: Feature("float32", (schema.proprio.dim,), names),
        ACTION: Feature("float32", width),
        REWARD: Feature("float32", (1,)),
        DONE: Feature("bool", (1,)),
        INTERVENTION: Feature("bool", (1,)),
        **{OURS + name: feature for name, feature in own.items()},
    }


def to_columns(episode: Episode, provenance: Sequence[Provenance] | None) -> Columns:
    """(T + 1,) or (T + 1, n) values of every feature; `provenance`: of each step, where the store has any."""
    reward = _with_last(episode.reward)
    reward[-2:] = 0.0, episode.reward[-1]
    done = np.zeros(len(reward), np.bool_)
    done[-1] = True
    own: Columns = {
        "requested_action": _with_last(episode.requested_action),
        **{name: _with_last(getattr(episode, name)) for name in _STEP_COLUMNS},
        "timestamp": episode.timestamp,
        **{f"image_timestamp.{view}": times for view, times in episode.image_timestamps.items()},
    }
    if provenance is not None:
        for name in _PROVENANCE_TYPES:
            values = [getattr(entry, name) for entry in (*provenance, Provenance())]
            own[f"provenance.{name}"] = np.array(values)
    return {
        STATE: episode.proprio,
        ACTION: _with_last(episode.action),
        REWARD: reward,
        DONE: done,
        INTERVENTION: _with_last(episode.intervened),
        **{OURS + name: values for name, values in own.items()},
    }


def from_columns(rows: EpisodeRows, images: Mapping[str, NDArray[np.uint8]]) -> Episode:
    """The episode that `to_columns` wrote; raises EpisodeError where a column is missing or not its shape."""
    count = len(rows)
    if count < 2:
        raise EpisodeError("a single frame: no step leads from it anywhere")

    def steps(name: str, dtype: type[_Number]) -> NDArray[_Number]:
        return rows.values(name)[:-1].astype(dtype)

    def vectors(name: str, rows_wanted: int) -> NDArray[np.float32]:
        return rows.values(name).reshape(count, -1)[:rows_wanted].astype(np.float32)

    reward = rows.values(REWARD)
    return Episode(
        episode=rows.entry.index,
        images=images,
        proprio=vectors(STATE, count),
        action=vectors(ACTION, count - 1),
        requested_action=vectors(OURS + "requested_action", count - 1),
        reward=np.append(reward[:-2], reward[-1]).astype(np.float32),
        intervened=steps(INTERVENTION, np.bool_),
        terminated=steps(OURS + "terminated", np.bool_),
        truncated=steps(OURS + "truncated", np.bool_),
        gripper_changed=steps(OURS + "gripper_changed", np.bool_),
        source=steps(OURS + "source", np.uint8),
        label=steps(OURS + "label", np.int8),
        policy_version=steps(OURS + "policy_version", np.int64),
        timestamp=rows.values(OURS + "timestamp"),
        image_timestamps={view: rows.values(f"{OURS}image_timestamp.{view}") for view in images},
    )


def provenance_from_columns(rows: EpisodeRows) -> list[Provenance | None]:
    """What the steps' provenance was, None for each where the store had none."""
    if not rows.has(f"{OURS}provenance.{fields(Provenance)[0].name}"):
        return [None] * (len(rows) - 1)
    values = {name: rows.table[f"{OURS}provenance.{name}"].to_pylist() for name in _PROVENANCE_TYPES}
    return [
        Provenance(**{name: column[step] for name, column in values.items()}) for step in range(len(rows) - 1)
    ]


def _with_last(steps: NDArray[np.generic]) -> NDArray[np.generic]:
    """The values of T steps with a row of zeros behind them."""
    return np.concatenate([steps, np.zeros_like(steps[:1])])
