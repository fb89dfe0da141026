"""Preallocated batches: allocate once, fill slice by slice.

Fresh arrays cost more than the copies into them (page faults), so a learner samples into the same batch each time.
"""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np

from rl.batch import Batch
from rl.replay.schema import StoreSchema


def empty_batch(schema: StoreSchema, size: int) -> Batch:
    """A batch of `size` transitions, unit weights, goals unknown, otherwise uninitialised; a sampler fills it."""

    def images() -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.uint8]]]:
        return {
            v: np.empty((size, height, width, 3), np.uint8) for v, (height, width) in schema.views.items()
        }

    return Batch(
        images=images(),
        next_images=images(),
        proprio=np.empty((size, schema.proprio.dim), np.float32),
        next_proprio=np.empty((size, schema.proprio.dim), np.float32),
        action=np.empty((size, schema.action_dim), np.float32),
        steps=np.ones(size, np.uint8),
        reward=np.empty(size, np.float32),
        terminated=np.empty(size, np.bool_),
        truncated=np.empty(size, np.bool_),
        intervened=np.empty(size, np.bool_),
        gripper_changed=np.empty(size, np.float32),
        source=np.empty(size, np.uint8),
        weight=np.ones(size, np.float32),
        goal_proprio=np.zeros((size, schema.proprio.dim), np.float32),
        goal_known=np.zeros(size, np.bool_),
        shares={"all": size},
    )


def slice_batch(batch: Batch, start: int, stop: int) -> Batch:
    """Transitions [start, stop) of `batch` as a batch over the same memory."""
    views: dict[str, object] = {}
    for field in fields(batch):
        value = getattr(batch, field.name)
        if isinstance(value, np.ndarray):
            views[field.name] = value[start:stop]
    return replace(
        batch,
        **views,  # type: ignore[arg-type]
        images={view: image[start:stop] for view, image in batch.images.items()},
        next_images={view: image[start:stop] for view, image in batch.next_images.items()},
        shares={"all": stop - start},
    )
