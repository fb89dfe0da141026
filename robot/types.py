"""The nouns every package shares: Observation, Transition, Episode, Clip, Source (NumPy only)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Float32 = NDArray[np.float32]
Image = NDArray[np.uint8]  # (H, W, 3) RGB

ACTION_DIM = 7  # 3 position, 3 rotation, 1 gripper


class Source(IntEnum):
    """Where a transition comes from."""

    REAL = 0  # the policy acted on the robot (or the simulated arm)
    DEMO = 1  # a demonstration
    CORRECTION = 2  # a person (or the scripted corrector) acted during a policy episode
    SYNTHETIC = 3  # imagined by a world model


class Label(IntEnum):
    """What is known of an outcome. Unknown is not failure."""

    UNKNOWN = -1
    FAILURE = 0
    SUCCESS = 1


class BadDataError(ValueError):
    """Data that must not be stored or acted on; the message says what was expected, what came, what to do."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What the policy sees at one control step.

    images: view name -> (H, W, 3) uint8 RGB. proprio: (P,) float32, SI units, names in `ProprioSpec`.
    timestamp: seconds on the robot's clock. image_timestamps: capture time of each view, same clock.
    """

    images: Mapping[str, Image]
    proprio: Float32
    timestamp: float
    image_timestamps: Mapping[str, float] = field(default_factory=dict)

    def check(self) -> None:
        """Raise BadDataError where a value is not finite or an image is not (H, W, 3) uint8."""
        if self.proprio.ndim != 1 or self.proprio.dtype != np.float32:
            raise BadDataError(
                f"proprio: expected (P,) float32, got {self.proprio.shape} {self.proprio.dtype}"
            )
        if not np.isfinite(self.proprio).all():
            bad = np.flatnonzero(~np.isfinite(self.proprio)).tolist()
            raise BadDataError(
                f"proprio: expected finite values, got NaN or infinity at index {bad}; check that sensor"
            )
        if not np.isfinite(self.timestamp):
            raise BadDataError(f"timestamp: expected finite seconds, got {self.timestamp}")
        for view, image in self.images.items():
            if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8:
                raise BadDataError(
                    f"images[{view}]: expected (H, W, 3) uint8, got {image.shape} {image.dtype}"
                )


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a synthetic transition comes from and why it was admitted; defaults mean 'not synthetic'.

    source_origin: 0 the demonstrations, 1 the robot's own store. kind: how its actions were chosen, 0 replay, 1 local
    perturbation, 2 the current policy. risk: of the world model, at this step. source_q: of the real clip.
    """

    source_origin: int = -1
    source_episode: int = -1
    source_step: int = -1
    kind: int = -1
    perturbation_seed: int = -1
    world_model_version: int = -1
    reward_model_version: int = -1
    calibrator_version: int = -1
    success_prob: float = float("nan")  # raw score of the reward model
    calibrated: float = float("nan")
    risk: float = float("nan")
    q: float = float("nan")
    source_q: float = float("nan")
    admission: int = 0  # reason code of the selection


@dataclass(frozen=True, slots=True)
class Transition:
    """One step: observation, executed action, reward, next observation.

    action: (7,) float32 in [-1, 1], as executed after the governor and any correction.
    requested_action: (7,) what the policy wished. Bootstrap on `terminated` only; `truncated` is never merged with it.
    gripper_changed: the gripper command really changed state in this step (the penalty counts only that).
    """

    observation: Observation
    action: Float32
    requested_action: Float32
    reward: float
    next_observation: Observation
    terminated: bool
    truncated: bool
    source: Source = Source.REAL
    intervened: bool = False
    gripper_changed: bool = False
    policy_version: int = -1
    label: Label = Label.UNKNOWN
    provenance: Provenance | None = None

    def check(self) -> None:
        """Raise BadDataError where the actions, the reward or the next observation are not usable."""
        for name, value in (("action", self.action), ("requested_action", self.requested_action)):
            if value.ndim != 1 or not np.isfinite(value).all():
                raise BadDataError(f"{name}: expected (A,) finite values, got {value}")
        if np.abs(self.action).max() > 1.0 + 1e-6:
            raise BadDataError(f"action: expected values in [-1, 1], got {self.action}")
        if not np.isfinite(self.reward):
            raise BadDataError(f"reward: expected a finite number, got {self.reward}")
        self.next_observation.check()


@dataclass(frozen=True)
class Episode:
    """One stored episode: T+1 observations and T transitions, arrays stacked over time.

    images: view -> (T+1, H, W, 3) uint8. proprio: (T+1, P). action, requested_action: (T, A).
    reward, terminated, truncated, intervened, gripper_changed, source, policy_version, label: (T,).
    timestamp: (T+1,) seconds. image_timestamps: view -> (T+1,) seconds.
    """

    episode: int
    images: Mapping[str, NDArray[np.uint8]]
    proprio: Float32
    action: Float32
    requested_action: Float32
    reward: Float32
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    intervened: NDArray[np.bool_]
    gripper_changed: NDArray[np.bool_]
    source: NDArray[np.uint8]
    policy_version: NDArray[np.int64]
    label: NDArray[np.int8]
    timestamp: Array
    image_timestamps: Mapping[str, Array]

    def __len__(self) -> int:
        return len(self.action)

    def observation(self, t: int) -> Observation:
        """The observation before step `t`; `t = len(self)` gives the last one."""
        return Observation(
            images={view: frames[t] for view, frames in self.images.items()},
            proprio=self.proprio[t],
            timestamp=float(self.timestamp[t]),
            image_timestamps={view: float(times[t]) for view, times in self.image_timestamps.items()},
        )

    def transitions(self) -> Iterator[Transition]:
        """The steps in order; each `next_observation` is the following `observation`."""
        following = self.observation(0)
        for t in range(len(self)):
            observation, following = following, self.observation(t + 1)
            yield Transition(
                observation=observation,
                action=self.action[t],
                requested_action=self.requested_action[t],
                reward=float(self.reward[t]),
                next_observation=following,
                terminated=bool(self.terminated[t]),
                truncated=bool(self.truncated[t]),
                source=Source(int(self.source[t])),
                intervened=bool(self.intervened[t]),
                gripper_changed=bool(self.gripper_changed[t]),
                policy_version=int(self.policy_version[t]),
                label=Label(int(self.label[t])),
            )

    @property
    def success(self) -> bool:
        """The episode ended in a terminal success."""
        return bool(len(self)) and bool(self.terminated[-1]) and float(self.reward[-1]) > 0


@dataclass(frozen=True)
class Clip:
    """B stretches of fixed length T: T+1 frames and T actions; `valid` (B, T) is False on padding.

    images: view -> (B, T+1, H, W, 3) uint8. proprio: (B, T+1, P). action: (B, T, A). reward, terminated: (B, T).
    The first `history` of the T steps lie before the start at `step`. Padding, on both sides, repeats the episode's
    first or last observation and carries zero actions.
    """

    images: Mapping[str, NDArray[np.uint8]]
    proprio: Float32
    action: Float32
    reward: Float32
    terminated: NDArray[np.bool_]
    valid: NDArray[np.bool_]
    episode: NDArray[np.int64]  # (B,)
    step: NDArray[np.int64]  # (B,) index of the start in its episode: of frame `history`
    history: int = 0

    def __len__(self) -> int:
        return len(self.action)


@dataclass(frozen=True, slots=True)
class ProprioSpec:
    """Names and scales of the proprio vector, so that a learner can see metres and millimetres.

    offset, scale: (P,) coarse feature (x - offset) / scale. fine: (P,) saturating feature tanh((x - offset) / fine);
    0 in `fine` means that this entry has no saturating feature. Units: metres, radians, opening in [0, 1].
    """

    names: Sequence[str]
    offset: Float32
    scale: Float32
    fine: Float32

    def __post_init__(self) -> None:
        n = len(self.names)
        for name, value in (("offset", self.offset), ("scale", self.scale), ("fine", self.fine)):
            if value.shape != (n,):
                raise BadDataError(f"ProprioSpec.{name}: expected ({n},) to match names, got {value.shape}")
        if not (self.scale > 0).all() or not (self.fine >= 0).all():
            raise BadDataError("ProprioSpec: scale must be > 0 and fine >= 0 (0 = none) in every entry")

    @property
    def dim(self) -> int:
        return len(self.names)
