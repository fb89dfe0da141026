"""From the observations of one or more tasks to the inputs of one policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from rl.vla.policy import PolicyError, PolicyInputs, PolicySpec
from robot.types import Float32, Observation, ProprioSpec


def merge(specs: Sequence[ProprioSpec]) -> ProprioSpec:
    """All entries of all specs, each name once, scaled as by the first spec that has it with a fine scale."""
    entries: dict[str, tuple[float, float, float]] = {}
    for spec in specs:
        columns = zip(spec.offset.tolist(), spec.scale.tolist(), spec.fine.tolist(), strict=True)
        for name, (offset, scale, fine) in zip(spec.names, columns, strict=True):
            if name not in entries or (fine > 0.0 and entries[name][2] == 0.0):
                entries[name] = (offset, scale, fine)
    offset, scale, fine = np.array(list(entries.values()), np.float32).T
    return ProprioSpec(tuple(entries), offset, scale, fine)


class InputBuilder:
    """Knows each task's words and readings; what a task does not measure is shown as its offset, that is as 0.

    instructions, proprio: by task. Raises PolicyError where a task measures what the policy does not know.
    """

    def __init__(
        self, spec: PolicySpec, instructions: Mapping[str, str], proprio: Mapping[str, ProprioSpec]
    ) -> None:
        self._spec, self._instructions = spec, dict(instructions)
        self._columns: dict[str, list[int]] = {}
        known = list(spec.proprio.names)
        for task, of_task in proprio.items():
            missing = [name for name in of_task.names if name not in known]
            if missing:
                raise PolicyError(
                    f"task {task}: the policy knows no reading {missing[0]!r}; use robot.obs, tasks and frames that "
                    "it was trained with"
                )
            self._columns[task] = [known.index(name) for name in of_task.names]

    def build(self, task: str, observations: Sequence[Observation]) -> PolicyInputs:
        """The inputs of one decision per observation; raises PolicyError where a view is missing."""
        images = [[self._image(task, seen, view) for view in self._spec.views] for seen in observations]
        readings = np.stack([observation.proprio for observation in observations])
        return self.pack(task, np.array(images, np.uint8), readings)

    def pack(self, task: str, images: np.ndarray, proprio: Float32) -> PolicyInputs:
        """images: (B, V, H, W, 3) uint8, of any shape without views. proprio: (B, P of the task)."""
        batch, (height, width) = len(proprio), self._spec.image_size
        filled = np.tile(self._spec.proprio.offset, (batch, 1))
        filled[:, self._columns[task]] = proprio
        return PolicyInputs(
            [self._instructions[task]] * batch,
            torch.from_numpy(images.reshape(batch, len(self._spec.views), height, width, 3)),
            torch.from_numpy(filled),
        )

    def _image(self, task: str, observation: Observation, view: str) -> np.ndarray:
        if view not in observation.images:
            raise PolicyError(
                f"task {task}: the policy needs the view {view!r}, the robot has {sorted(observation.images)}; "
                "set robot.views and robot.obs to those of the policy"
            )
        return observation.images[view]
