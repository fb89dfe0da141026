"""World models that know nothing of actions, for the tables: the last frame stays, or the mean frame comes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np
import torch

from robot.types import Float32
from worldmodel import checkpoint
from worldmodel.checkpoint import Checkpoint
from worldmodel.clips import require_clips, split, to_frames
from worldmodel.interface import ClipSource, Context, Imagined, WorldModelError, WorldModelSpec, check_rollout

BATCH = 16  # clips of one training step


class CopyLastFrame:
    """Nothing moves: every imagined frame is the last real one. Risk 0, it is never trained."""

    KIND = "copy_last"
    stochastic = False

    def __init__(self, spec: WorldModelSpec, version: int = 0) -> None:
        self._spec, self.version = spec, version

    @property
    def spec(self) -> WorldModelSpec:
        return self._spec

    def adapt(self, clips: ClipSource, steps: int, rng: np.random.Generator) -> dict[str, float]:
        """Nothing to learn."""
        return {}

    def rollout(self, context: Context, actions: Float32, seed: int = 0) -> Imagined:
        """The last frame, n times."""
        check_rollout(self._spec, context, actions)
        n = actions.shape[1]
        images = {view: np.repeat(context.images[view][:, -1:], n, axis=1) for view in self._spec.views}
        return Imagined(images, np.zeros(actions.shape[:2], np.float32), self.version)

    def save(
        self, path: Path, scores: Mapping[str, float] | None = None, learned: Collection[str] | None = None
    ) -> None:
        """Write spec, version and scores."""
        # safetensors needs no tensor; the header says all.
        stored = Checkpoint(self.KIND, self._spec, {}, self.version, 0, {}, scores or {}, learned)
        checkpoint.write(path, stored)

    @classmethod
    def restore(cls, stored: Checkpoint) -> CopyLastFrame:
        return cls(stored.spec, stored.version)


class TrainMean:
    """Every imagined frame is the mean of the training frames; the level that pure memory reaches."""

    KIND = "train_mean"
    stochastic = False

    def __init__(self, spec: WorldModelSpec, version: int = 0) -> None:
        self._spec, self.version = spec, version
        self._count = 0
        self._mean = {view: torch.zeros(3, *size) for view, size in spec.views.items()}

    @property
    def spec(self) -> WorldModelSpec:
        return self._spec

    def adapt(self, clips: ClipSource, steps: int, rng: np.random.Generator) -> dict[str, float]:
        """Take `steps` batches of frames into the mean."""
        require_clips(clips)
        for _ in range(steps):
            _, future = split(clips.sample(BATCH, 1, rng, self._spec.context_frames - 1), self._spec)
            self._count += BATCH
            for view, frames in future.images.items():
                batch = torch.from_numpy(frames[:, 0]).movedim(-1, 1).float().div(127.5).sub(1.0)
                self._mean[view] += (batch - self._mean[view]).sum(dim=0) / self._count
        return {}

    def rollout(self, context: Context, actions: Float32, seed: int = 0) -> Imagined:
        """The mean frame, n times, the same for every context. Raises WorldModelError before the first adapt."""
        check_rollout(self._spec, context, actions)
        if self._count == 0:
            raise WorldModelError("train_mean: no frame was seen yet; call adapt first")
        shape = actions.shape[:2]
        images = {
            view: np.broadcast_to(to_frames(mean), (*shape, *self._spec.views[view], 3)).copy()
            for view, mean in self._mean.items()
        }
        return Imagined(images, np.zeros(shape, np.float32), self.version)

    def save(
        self, path: Path, scores: Mapping[str, float] | None = None, learned: Collection[str] | None = None
    ) -> None:
        """Write the mean frames."""
        tensors = {f"mean.{view}": mean for view, mean in self._mean.items()}
        stored = Checkpoint(
            self.KIND, self._spec, {}, self.version, self._count, tensors, scores or {}, learned
        )
        checkpoint.write(path, stored)

    @classmethod
    def restore(cls, stored: Checkpoint) -> TrainMean:
        model = cls(stored.spec, stored.version)
        model._count = stored.updates
        model._mean = stored.part("mean")
        return model
