"""ClipValues: what the critic thinks of imagined clips and of the real steps they branched from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rl.agent.value import ValueModel
from rl.batch import Batch
from rl.imagination.labels import LabelledClip
from rl.imagination.starts import StartPool
from rl.replay.arrays import empty_batch
from rl.replay.schema import StoreSchema
from rl.selection.running import RunningMean
from robot.types import Clip

MAX_STEPS = 16  # of a clip that its mean Q looks at


@dataclass(frozen=True, slots=True)
class ClipValue:
    """q: mean Q along an imagined clip. source_q: of its real source. first_q: at its first step.

    Both means are over the steps that clip and source have: Q rises towards success, so of a source that ends after one
    step and a clip that goes on for eight the shorter mean would be the larger. NaN where nobody asked the critic.
    """

    q: float
    source_q: float
    first_q: float


class ClipValues:
    """What the critic says of imagined clips over up to `steps` steps, and how well it knows their real sources.

    half_life: real clips until an observation counts half.
    """

    def __init__(
        self,
        value: ValueModel,
        pool: StartPool,
        schema: StoreSchema,
        *,
        steps: int,
        discount: float,
        half_life: float,
    ) -> None:
        self._value, self._pool, self._schema = value, pool, schema
        self._steps, self._discount = min(MAX_STEPS, steps), discount
        self._success, self._td_square = RunningMean(half_life), RunningMean(half_life)

    @property
    def success_share(self) -> float:
        """Of the real sources, how many reach success within their steps; 0 before the first."""
        return self._success.mean

    @property
    def td_rms(self) -> float:
        """Root mean square of r + discount Q(s', a') - Q(s, a) on real steps, a' the next real action."""
        return math.sqrt(self._td_square.mean)

    def of(self, clips: Sequence[LabelledClip]) -> list[ClipValue]:
        """The values of each clip."""
        if not clips:
            return []
        lengths = [min(self._steps, clip.length) for clip in clips]
        sources = [self._pool.clip(clip.clip.start, self._steps) for clip in clips]
        imagined = _stretches(self._value.q(self._imagined(clips, lengths)), lengths)
        reals = _stretches(
            self._value.q(self._real(sources)), [int(source.valid.sum()) for source in sources]
        )
        for source, real in zip(sources, reals, strict=True):
            self._observe(source, real)
        return [
            ClipValue(float(of[: len(real)].mean()), float(real[: len(of)].mean()), float(of[0]))
            for of, real in zip(imagined, reals, strict=True)
        ]

    def _imagined(self, clips: Sequence[LabelledClip], lengths: Sequence[int]) -> Batch:
        batch = self._batch(sum(lengths))
        row = 0
        for labelled, length in zip(clips, lengths, strict=True):
            for t in range(length):
                observation = labelled.clip.observations[t]
                for view, image in observation.images.items():
                    batch.images[view][row] = image
                batch.proprio[row] = observation.proprio
                batch.action[row] = labelled.clip.action[t]
                row += 1
        return batch

    def _real(self, sources: Sequence[Clip]) -> Batch:
        batch = self._batch(sum(int(source.valid.sum()) for source in sources))
        row = 0
        for source in sources:
            valid = source.valid[0]
            rows = slice(row, row + int(valid.sum()))
            for view in batch.images:
                batch.images[view][rows] = source.images[view][0, :-1][valid]
            batch.proprio[rows] = source.proprio[0, :-1][valid]
            batch.action[rows] = source.action[0][valid]
            row = rows.stop
        return batch

    def _observe(self, source: Clip, real: NDArray[np.float32]) -> None:
        """Take in how a real clip ended, and how far its values are from what followed them."""
        steps = len(real)
        reward, terminated = source.reward[0, :steps], source.terminated[0, :steps]
        self._success.add(float((terminated & (reward > 0)).any()))
        following = np.append(real[1:], np.float32(0.0))
        errors = reward + self._discount * np.where(terminated, 0.0, following) - real
        # Behind the last step nothing is known, unless the episode ended there.
        known = errors if terminated[-1] else errors[:-1]
        if len(known):
            self._td_square.add(float(np.square(known).mean()))

    def _batch(self, rows: int) -> Batch:
        """Room for `rows` states and actions; what a value does not look at is zero."""
        batch = empty_batch(self._schema, rows)
        none: NDArray[np.bool_] = np.zeros(rows, np.bool_)
        return replace(
            batch,
            reward=np.zeros(rows, np.float32),
            gripper_changed=np.zeros(rows, np.float32),
            source=np.zeros(rows, np.uint8),
            terminated=none,
            truncated=none,
            intervened=none,
        )


def _stretches(values: NDArray[np.float32], lengths: Sequence[int]) -> list[NDArray[np.float32]]:
    """The values of each clip."""
    return np.split(values, np.cumsum(lengths)[:-1])
