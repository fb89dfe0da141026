"""ClipValues: what the critic thinks of imagined clips and of the real steps they branched from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rl.agent.value import ValueModel
from rl.batch import Batch
from rl.imagination.labels import LabelledClip
from rl.imagination.starts import StartPool
from rl.replay.arrays import empty_batch
from rl.replay.schema import StoreSchema

MAX_STEPS = 16  # of a clip that its mean Q looks at


class ClipValues:
    """Mean Q over up to 16 steps, of an imagined clip and, over as many steps, of its real source."""

    def __init__(self, value: ValueModel, pool: StartPool, schema: StoreSchema) -> None:
        self._value, self._pool, self._schema = value, pool, schema

    def q(self, clips: Sequence[LabelledClip]) -> list[tuple[float, float, float]]:
        """Per clip: mean Q along it, mean Q of its real source, Q of its first step."""
        lengths = [min(MAX_STEPS, clip.length) for clip in clips]
        imagined = self._batch(sum(lengths))
        row = 0
        for labelled, length in zip(clips, lengths, strict=True):
            for t in range(length):
                observation = labelled.clip.observations[t]
                for view, image in observation.images.items():
                    imagined.images[view][row] = image
                imagined.proprio[row] = observation.proprio
                imagined.action[row] = labelled.clip.action[t]
                row += 1
        sources = [self._pool.clip(c.clip.start, n) for c, n in zip(clips, lengths, strict=True)]
        steps = [clip.valid[0] for clip in sources]
        real = self._batch(int(sum(valid.sum() for valid in steps)))
        row = 0
        for clip, valid in zip(sources, steps, strict=True):
            rows = slice(row, row + int(valid.sum()))
            for view in real.images:
                real.images[view][rows] = clip.images[view][0, :-1][valid]
            real.proprio[rows] = clip.proprio[0, :-1][valid]
            real.action[rows] = clip.action[0][valid]
            row = rows.stop
        of_clip = _means(self._value.q(imagined), lengths)
        of_source = _means(self._value.q(real), [int(valid.sum()) for valid in steps])
        return [(mean, source, first) for (mean, first), (source, _) in zip(of_clip, of_source, strict=True)]

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


def _means(values: NDArray[np.float32], lengths: Sequence[int]) -> list[tuple[float, float]]:
    """Mean and first value of each stretch."""
    ends = np.cumsum(lengths)
    parts = [values[end - length : end] for end, length in zip(ends, lengths, strict=True)]
    return [(float(part.mean()), float(part[0])) for part in parts]
