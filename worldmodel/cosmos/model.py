"""CosmosWorldModel: adapts the 2B video model to our clips and imagines futures in chunks of twelve frames."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robot.types import Clip, Float32
from worldmodel import checkpoint
from worldmodel.clips import check_finite, require_clips, split
from worldmodel.cosmos import views
from worldmodel.cosmos.actions import ActionConfig, ActionConvention, network_actions
from worldmodel.cosmos.adaptation import Adapt, Precision, autocast, trained
from worldmodel.cosmos.flow import Velocity, flow_loss, given_mask, noise_levels, sample
from worldmodel.cosmos.persistence import to_checkpoint
from worldmodel.cosmos.transformer import CHUNK, FRAMES_PER_LATENT, PATCH, ActionTransformer
from worldmodel.interface import ClipSource, Context, Imagined, WorldModelError, WorldModelSpec, check_rollout

LATENT_FRAMES = 1 + CHUNK // FRAMES_PER_LATENT


@dataclass(frozen=True)
class CosmosConfig:
    """How the model is adapted and sampled; the defaults are the vendor's recipe for its action-conditioned model.

    height, width: pixels at which every view is imagined, multiples of 16; the released model knows 256 x 320.
    num_denoising_steps: 35 as the vendor samples, fewer are faster. shift: of the noise schedule towards noise.
    num_samples: futures drawn for each rollout, at least 2; the first is returned, their disagreement is the risk.
    rollout_batch: futures that are imagined at once, bounded by memory.
    learning_rate: of transformer weights; action_learning_rate: of the action embedding.
    """

    height: int = 256
    width: int = 320
    adapt: Adapt = Adapt.LORA
    lora_rank: int = 32
    batch: int = 8
    learning_rate: float = 3e-5
    action_learning_rate: float = 3e-4
    weight_decay: float = 0.1
    max_gradient_norm: float = 1.0
    num_denoising_steps: int = 35
    shift: float = 5.0
    num_samples: int = 2
    rollout_batch: int = 8
    precision: Precision = Precision.BFLOAT16
    actions: ActionConfig = field(default_factory=ActionConfig)

    def __post_init__(self) -> None:
        multiple = views.LATENT_PIXEL * PATCH
        if any(side < multiple or side % multiple for side in self.size):
            raise WorldModelError(f"height, width: expected multiples of {multiple} pixels, got {self.size}")
        if not 4 <= self.num_denoising_steps <= 35:
            raise WorldModelError(f"num_denoising_steps: expected 4..35, got {self.num_denoising_steps}")
        if self.num_samples < 2:
            raise WorldModelError(
                f"num_samples: expected >= 2 (one future alone says nothing of its risk), got {self.num_samples}"
            )
        counts = (self.lora_rank, self.batch, self.rollout_batch)
        rates = (self.learning_rate, self.action_learning_rate, self.max_gradient_norm, self.shift)
        if min(counts) < 1 or min(rates) <= 0 or self.weight_decay < 0:
            raise WorldModelError(
                "expected lora_rank, batch, rollout_batch >= 1, learning rates, max_gradient_norm, shift > 0 and "
                f"weight_decay >= 0, got {counts}, {rates} and {self.weight_decay}"
            )

    @property
    def size(self) -> tuple[int, int]:
        return self.height, self.width


class CosmosWorldModel:
    """Cosmos-Predict2.5 as a `WorldModel`; only the newest context frame conditions it.

    The twelve frames of a chunk are imagined together, so within a chunk later actions touch earlier frames.

    network: prepared for `config.adapt`. autoencoder: diffusers' AutoencoderKLWan. text: (1, L, D), projected.
    Two seeds of `rollout` give two futures, and one seed always the same one.
    """

    KIND = "cosmos"
    stochastic = True

    def __init__(
        self,
        spec: WorldModelSpec,
        config: CosmosConfig,
        network: ActionTransformer,
        autoencoder: Any,
        text: Tensor,
        device: torch.device,
        *,
        version: int = 0,
    ) -> None:
        if network.config.action_dim != spec.action_dim:
            raise WorldModelError(
                f"actions: this network takes {network.config.action_dim} numbers, the data has {spec.action_dim}; "
                "learn its action embedding anew (actions.convention=learned)"
            )
        identity = not spec.action.offset.any() and (spec.action.scale == 1).all()
        if config.actions.convention is ActionConvention.RELEASED and not identity:
            raise WorldModelError(
                "actions.convention=released takes stored actions as they are: expected no action normalisation"
            )
        self.spec = spec
        self.config = config
        self.version = version
        self.device = device
        self.network = network.to(device)
        # Not diffusers' own `to`, which warns that some layers of other models must stay in float32.
        torch.nn.Module.to(autoencoder, device, config.precision.dtype)
        self.autoencoder = autoencoder.requires_grad_(False).eval()
        self.text = text.to(device, torch.float32)
        self.optimizer = self._optimizer()
        self.updates = 0  # optimiser steps so far

    def adapt(self, clips: ClipSource, steps: int, rng: np.random.Generator) -> dict[str, float]:
        """`steps` optimiser steps; returns the mean loss and gradient norm. Raises WorldModelError if not finite."""
        require_clips(clips)
        self.network.train()
        losses, norms = [], []
        for _ in range(steps):
            clip = clips.sample(self.config.batch, CHUNK, rng, history=self.spec.context_frames - 1)
            loss = self._loss(clip, rng)
            check_finite(loss, self.updates)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            weights = [weight for _, weight in trained(self.network)]
            norms.append(float(torch.nn.utils.clip_grad_norm_(weights, self.config.max_gradient_norm)))
            self.optimizer.step()
            self.updates += 1
            losses.append(loss.item())
        return {
            "world_model/loss": float(np.mean(losses)),
            "world_model/gradient_norm": float(np.mean(norms)),
        }

    def rollout(self, context: Context, actions: Float32, seed: int = 0) -> Imagined:
        """The first of `num_samples` futures; risk: mean absolute difference of their pixels per frame, in [0, 1].

        That difference grows where the futures disagree, which is where the model does not know. It is 0 only where
        all futures agree to the pixel value, and says nothing of errors that all futures share.
        """
        check_rollout(self.spec, context, actions)
        batch, steps = actions.shape[:2]
        inputs = self._network_actions(np.concatenate((context.past_action, _padded(actions)), axis=1))
        inputs = inputs[:, context.past_action.shape[1] :]
        frames = {view: images[:, -1:] for view, images in context.images.items()}
        rows = [(row, future) for future in range(self.config.num_samples) for row in range(batch)]
        parts = []
        for start in range(0, len(rows), self.config.rollout_batch):
            parts.append(self._imagine(frames, inputs, rows[start : start + self.config.rollout_batch], seed))
        futures = {
            view: np.concatenate([part[view] for part in parts])[:, :steps].reshape(
                self.config.num_samples, batch, steps, *self.spec.views[view], 3
            )
            for view in self.spec.views
        }
        images = {view: np.ascontiguousarray(future[0]) for view, future in futures.items()}
        return Imagined(images, _disagreement(futures), self.version)

    def save(
        self, path: Path, scores: Mapping[str, float] | None = None, learned: Collection[str] | None = None
    ) -> None:
        """Write weights, autoencoder, text and optimiser into one file."""
        checkpoint.write(path, to_checkpoint(self, scores or {}, learned))

    def _loss(self, clip: Clip, rng: np.random.Generator) -> Tensor:
        context, future = split(clip, self.spec)
        frames = {
            v: np.concatenate((context.images[v][:, -1:], future.images[v]), axis=1) for v in self.spec.views
        }
        video = views.to_video(frames, list(self.spec.views), self.config.size, self.device)
        with torch.no_grad():
            latents = views.encode(self.autoencoder, video)
        actions = self._tensor(self._network_actions(clip.action)[:, clip.history :])
        # A latent frame counts if its first step is real; later steps of it may rest on the episode's last frame.
        valid = future.valid[:, ::FRAMES_PER_LATENT].astype(np.float32)
        weight = np.concatenate((np.ones((len(valid), 1), np.float32), valid), axis=1)
        normal = self._tensor(rng.standard_normal(len(valid), dtype=np.float32))
        noise = self._tensor(rng.standard_normal(tuple(latents.shape), dtype=np.float32))
        level = noise_levels(normal, self.config.shift)
        return flow_loss(self._velocity(actions, latents), latents, noise, level, self._tensor(weight))

    @torch.no_grad()
    def _imagine(
        self,
        frames: Mapping[str, NDArray[np.uint8]],
        actions: Float32,
        rows: list[tuple[int, int]],
        seed: int,
    ) -> dict[str, NDArray[np.uint8]]:
        """view -> (R, chunks * CHUNK, H, W, 3): for each (row, future) of `rows`, chunk by chunk."""
        self.network.eval()
        picked = [row for row, _ in rows]
        names = list(self.spec.views)
        first = views.to_video(
            {view: images[picked] for view, images in frames.items()}, names, self.config.size, self.device
        )
        inputs = self._tensor(actions[picked])
        chunks = []
        for start in range(0, actions.shape[1], CHUNK):
            # The autoencoder is causal: the first frame alone has the same latent as with a future behind it.
            given = views.encode(self.autoencoder, first)
            shape = (*given.shape[1:2], LATENT_FRAMES, *given.shape[3:])
            noise = self._tensor(
                np.stack([_noise(seed, row, future, start // CHUNK, shape) for row, future in rows])
            )
            velocity = self._velocity(inputs[:, start : start + CHUNK], noise)
            latents = sample(velocity, given, noise, self.config.num_denoising_steps, self.config.shift)
            video = views.decode(self.autoencoder, latents, len(names))[:, :, :, 1:]
            chunks.append(views.to_images(video, names, self.spec.views))
            first = views.quantise(video[:, :, :, -1:])
        return {view: np.concatenate([chunk[view] for chunk in chunks], axis=1) for view in names}

    def _velocity(self, actions: Tensor, like: Tensor) -> Velocity:
        mask = given_mask(like)
        text = self.text.expand(len(like), -1, -1)

        def velocity(noisy: Tensor, level: Tensor) -> Tensor:
            with autocast(self.device, self.config.precision):
                out: Tensor = self.network(noisy, level, text, actions, mask)
            return out

        return velocity

    def _network_actions(self, actions: Float32) -> Float32:
        return network_actions(actions, self.config.actions, self.spec.action)

    def _tensor(self, values: Float32) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(self.device)

    def _optimizer(self) -> torch.optim.AdamW:
        embedding = {id(weight) for mlp in self.network.action_mlps() for weight in mlp.parameters()}
        weights = [weight for _, weight in trained(self.network)]
        return torch.optim.AdamW(
            [
                {"params": [w for w in weights if id(w) not in embedding], "lr": self.config.learning_rate},
                {
                    "params": [w for w in weights if id(w) in embedding],
                    "lr": self.config.action_learning_rate,
                },
            ],
            weight_decay=self.config.weight_decay,
        )


def _padded(actions: Float32) -> Float32:
    """Actions up to a whole number of chunks; the arm rests in the steps that nobody asked for."""
    surplus = -actions.shape[1] % CHUNK
    return np.pad(actions, ((0, 0), (0, surplus), (0, 0)))


def _noise(seed: int, row: int, future: int, chunk: int, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """The same on every device and in every batch."""
    return np.random.default_rng([seed, row, future, chunk]).standard_normal(shape, dtype=np.float32)


def _disagreement(futures: Mapping[str, NDArray[np.uint8]]) -> Float32:
    """(B, n): mean absolute difference to the first of the futures (S, B, n, H, W, 3), over pixels and views."""
    risks = [
        np.abs(future[1:].astype(np.float32) - future[:1].astype(np.float32)).mean(axis=(0, 3, 4, 5)) / 255
        for future in futures.values()
    ]
    risk: Float32 = np.mean(risks, axis=0, dtype=np.float32)
    return risk
