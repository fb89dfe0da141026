"""Trains a SuccessClassifier on balanced batches of frames; from labelled clips to weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from reward_model.classifier import SuccessClassifier
from reward_model.dataset import FrameSampler
from reward_model.interface import RewardModelError


@dataclass(frozen=True)
class RewardTrainerConfig:
    """steps: batches. batch: frames, half of them successes. generated_share: of each half, where there are any.

    shift_px: largest random shift of a view. brightness, contrast: largest random change, as a share.
    """

    steps: int = 800
    batch: int = 64
    learning_rate: float = 5e-4
    weight_decay: float = 1e-4
    generated_share: float = 0.5
    shift_px: int = 3
    brightness: float = 0.1
    contrast: float = 0.1
    log_every: int = 100

    def __post_init__(self) -> None:
        if self.steps < 1 or self.batch < 2 or self.log_every < 1:
            raise ValueError("reward trainer: expected steps >= 1, batch >= 2 and log_every >= 1")
        if self.learning_rate <= 0.0 or self.weight_decay < 0.0 or self.shift_px < 0:
            raise ValueError("reward trainer: expected learning_rate > 0, weight_decay >= 0, shift_px >= 0")
        for name in ("generated_share", "brightness", "contrast"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"reward trainer: {name}: expected [0, 1], got {getattr(self, name)}")


class RewardTrainer:
    """Minimises the binary cross-entropy of single frames.

    Raises RewardModelError where the frames lack a reading that the model needs.
    """

    def __init__(
        self, model: SuccessClassifier, frames: FrameSampler, config: RewardTrainerConfig, *, seed: int
    ) -> None:
        self._model, self._frames, self._config = model, frames, config
        if model.network.arm is not None:
            model.network.arm.fit(*frames.known(model.readings))
        self._rng = np.random.default_rng(seed)
        self._seed = seed
        self._optimiser = torch.optim.AdamW(
            [p for p in model.network.parameters() if p.requires_grad],
            lr=config.learning_rate,
            weight_decay=config.weight_decay,
            fused=True,
        )

    def train(self) -> Iterator[dict[str, float]]:
        """All steps; yields metrics every `log_every` steps. Raises RewardModelError where the loss is not finite."""
        config = self._config
        with torch.random.fork_rng(devices=[]):  # dropout draws from the default generator
            torch.default_generator.manual_seed(self._seed)
            losses: list[float] = []
            for step in range(1, config.steps + 1):
                losses.append(self._step())
                if step % config.log_every == 0 or step == config.steps:
                    yield {
                        "reward_model/step": float(step),
                        "reward_model/loss": float(np.mean(losses)),
                    }
                    losses.clear()
        self._model.network.eval()

    def _step(self) -> float:
        config, device = self._config, self._model.device
        images, readings, target = self._frames.draw(config.batch, self._rng, self._model.readings)
        batch = {
            view: torch.as_tensor(augment(images[view], config, self._rng), device=device)
            for view in self._model.views
        }
        self._model.network.train()
        loss = F.binary_cross_entropy_with_logits(
            self._model.network(batch, torch.as_tensor(readings, device=device)),
            torch.as_tensor(target, device=device),
        )
        if not torch.isfinite(loss):
            raise RewardModelError(
                f"reward model: the loss is {loss.item()}; lower the learning rate, or look at the data"
            )
        self._optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimiser.step()
        return loss.item()


def augment(
    images: NDArray[np.uint8], config: RewardTrainerConfig, rng: np.random.Generator
) -> NDArray[np.uint8]:
    """(N, H, W, 3): each image shifted by up to `shift_px` (edges repeated), its contrast and brightness changed."""
    pad, (count, height, width, _) = config.shift_px, images.shape
    padded = np.pad(images, ((0, 0), (pad, pad), (pad, pad), (0, 0)), mode="edge")
    corners = rng.integers(0, 2 * pad + 1, (count, 2)).tolist()
    shifted = np.stack([p[y : y + height, x : x + width] for p, (y, x) in zip(padded, corners, strict=True)])
    gain = rng.uniform(1.0 - config.contrast, 1.0 + config.contrast, (count, 1, 1, 1)).astype(np.float32)
    lift = rng.uniform(-255.0 * config.brightness, 255.0 * config.brightness, (count, 1, 1, 1))
    changed: NDArray[np.uint8] = ((shifted - 127.5) * gain + 127.5 + lift.astype(np.float32)).clip(0, 255)
    return changed.astype(np.uint8)
