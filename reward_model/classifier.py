"""SuccessClassifier: all cameras of one instant to the probability that the task is done; the default reward model."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from reward_model.interface import Images, RewardModelError, blank, check_images
from reward_model.labels import Thresholds
from robot.types import Float32

FORMAT = 1
SCORED_AT_ONCE = 256  # frames
_META = "reward_model"  # key of the JSON in the file's metadata


class TrunkKind(Enum):
    """Where the image features come from."""

    SCRATCH = "scratch"  # a small network, trained with the head
    FROZEN = "frozen"  # a network with weights of its own, passed in, that never trains


@dataclass(frozen=True)
class ClassifierConfig:
    """channels: of the scratch trunk, one convolution of stride 2 each. width: of the hidden layer of the head.

    backbone, weights: name and weight file of a frozen trunk, for whoever makes it.
    """

    trunk: TrunkKind = TrunkKind.SCRATCH
    channels: tuple[int, ...] = (16, 32, 32)
    backbone: str = "lpips_alexnet"
    weights: str | None = None
    width: int = 256
    dropout: float = 0.1

    def __post_init__(self) -> None:
        if not self.channels or min(*self.channels, self.width) < 1:
            raise ValueError("classifier: expected at least one convolution, channels and width >= 1")
        if not 0.0 <= self.dropout < 1.0:
            raise ValueError(f"classifier.dropout: expected [0, 1), got {self.dropout}")


class ScratchTrunk(nn.Module):
    """(N, H, W, 3) uint8 to (N, C, h, w): convolutions of stride 2 with ReLU."""

    def __init__(self, channels: tuple[int, ...]) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inputs, outputs in zip((3, *channels[:-1]), channels, strict=True):
            layers += [nn.Conv2d(inputs, outputs, 3, 2, 1), nn.ReLU(inplace=True)]
        self.layers = nn.Sequential(*layers)

    def forward(self, images: Tensor) -> Tensor:
        pixels = images.permute(0, 3, 1, 2).to(torch.float32) / 255.0 - 0.5
        maps: Tensor = self.layers(pixels)
        return maps


class SuccessNetwork(nn.Module):
    """One trunk for all views, their maps flattened, Dense - Dropout - LayerNorm - ReLU - Dense to one logit.

    frozen: a trunk (N, H, W, 3) uint8 -> (N, C, h, w) that is not trained and not saved.
    """

    def __init__(
        self, config: ClassifierConfig, views: Mapping[str, tuple[int, int]], frozen: nn.Module | None
    ) -> None:
        super().__init__()
        self._views = tuple(views)
        # In a list, outside the module tree: it is neither trained nor saved, and belongs to whoever passed it.
        self._frozen = [frozen] if frozen is not None else []
        self.scratch = ScratchTrunk(config.channels) if frozen is None else None
        flat = 0
        for height, width in views.values():
            with torch.no_grad():
                flat += self._maps(torch.zeros(1, height, width, 3, dtype=torch.uint8)).shape[1]
        self.head = nn.Sequential(
            nn.Linear(flat, config.width),
            nn.Dropout(config.dropout),
            nn.LayerNorm(config.width),
            nn.ReLU(inplace=True),
            nn.Linear(config.width, 1),
        )

    def forward(self, images: Mapping[str, Tensor]) -> Tensor:
        """view -> (N, H, W, 3) uint8 to logits (N,)."""
        features = torch.cat([self._maps(images[view]) for view in self._views], dim=1)
        logits: Tensor = self.head(features)[:, 0]
        return logits

    def _maps(self, images: Tensor) -> Tensor:
        if self.scratch is not None:
            maps: Tensor = self.scratch(images)
            return maps.flatten(1)
        with torch.no_grad():
            fixed: Tensor = self._frozen[0](images)
            return fixed.flatten(1)


class SuccessClassifier:
    """A RewardModel. thresholds: those that go with these weights, None before they were chosen.

    frozen: the trunk of TrunkKind.FROZEN, with an attribute `checksum`, and on `device` already.
    data: what it was trained on and its thresholds chosen on, by episode names, so that nobody tests on it.
    """

    def __init__(
        self,
        config: ClassifierConfig,
        task: str,
        views: Mapping[str, tuple[int, int]],
        *,
        seed: int,
        device: torch.device,
        frozen: nn.Module | None = None,
        version: int = 0,
        thresholds: Thresholds | None = None,
        data: Mapping[str, list[str]] | None = None,
    ) -> None:
        if not views:
            raise RewardModelError("views: a classifier needs at least one camera, got none")
        if (frozen is None) is not (config.trunk is TrunkKind.SCRATCH):
            raise RewardModelError(
                f"classifier.trunk={config.trunk.value}: "
                + ("pass its frozen trunk" if frozen is None else "it takes no frozen trunk")
            )
        self.config = config
        self.task = task
        self.views = dict(views)
        self.version = version
        self.thresholds = thresholds
        self.data = dict(data or {})
        self.device = device
        self._trunk_checksum = int(getattr(frozen, "checksum", 0)) if frozen is not None else 0
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            self.network = SuccessNetwork(config, self.views, frozen).to(device)

    def score(self, images: Images) -> Float32:
        """(B, T) success probabilities; NaN where a view is blank or the output is not finite."""
        batch, length = check_images(self.views, images)
        wanted = {view: images[view] for view in self.views}
        flat = {view: frames.reshape(batch * length, *self.views[view], 3) for view, frames in wanted.items()}
        prob = np.empty(batch * length, np.float32)
        self.network.eval()
        with torch.inference_mode():
            for first in range(0, len(prob), SCORED_AT_ONCE):
                part = slice(first, first + SCORED_AT_ONCE)
                logits = self.network(
                    {view: torch.as_tensor(f[part], device=self.device) for view, f in flat.items()}
                )
                prob[part] = torch.sigmoid(logits).cpu().numpy()
        unknown = blank(wanted).ravel() | ~np.isfinite(prob)
        return np.where(unknown, np.float32(np.nan), prob).reshape(batch, length)

    def save(self, path: Path) -> None:
        """Write one .safetensors file whose metadata hold the rest as JSON; beside, synced, and renamed."""
        state = {name: t.detach().cpu().contiguous() for name, t in self.network.state_dict().items()}
        meta = {
            "format": FORMAT,
            "task": self.task,
            "version": self.version,
            "views": self.views,
            "classifier": asdict(self.config) | {"trunk": self.config.trunk.value},
            "trunk_checksum": self._trunk_checksum,
            "thresholds": None if self.thresholds is None else asdict(self.thresholds),
            "data": self.data,
            "checksum": _checksum(state),
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_suffix(".part")
        with beside.open("wb") as file:
            file.write(to_bytes(state, {_META: json.dumps(meta)}))
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)

    @classmethod
    def load(
        cls,
        path: Path,
        *,
        device: torch.device,
        make_trunk: Callable[[ClassifierConfig], nn.Module] | None = None,
    ) -> SuccessClassifier:
        """Read what `save` wrote. make_trunk: makes the frozen trunk of a model that sits on one.

        Raises RewardModelError where the file is missing, torn or of another format, or the trunk is another one.
        """
        state, meta = _read(path)
        try:
            settings: dict[str, Any] = meta["classifier"]
            settings["trunk"] = TrunkKind(settings["trunk"])
            settings["channels"] = tuple(settings["channels"])
            config = ClassifierConfig(**settings)
            frozen = make_trunk(config) if make_trunk and config.trunk is TrunkKind.FROZEN else None
            model = cls(
                config,
                meta["task"],
                {view: (size[0], size[1]) for view, size in meta["views"].items()},
                seed=0,
                device=device,
                frozen=frozen,
                version=meta["version"],
                thresholds=Thresholds(**meta["thresholds"]) if meta["thresholds"] else None,
                data=meta["data"],
            )
            if model._trunk_checksum != meta["trunk_checksum"]:
                raise RewardModelError(
                    f"{path}: it was trained on a frozen trunk with other weights; use those, or train it anew"
                )
            model.network.load_state_dict(state)
        except (KeyError, TypeError, RuntimeError) as error:
            raise RewardModelError(
                f"{path}: not a reward model of this version ({error!r}); train it anew"
            ) from error
        return model


def read_data(path: Path) -> dict[str, list[str]]:
    """What a saved model says of the data behind it; raises RewardModelError where it is none."""
    data: dict[str, list[str]] = _read(path)[1]["data"]
    return data


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the JSON of a saved model."""
    if not path.is_file():
        raise RewardModelError(
            f"{path}: no such file; expected a reward model that `groundhog train-reward-model` wrote"
        )
    try:
        with safe_open(path, framework="pt") as file:
            names = file.keys()
            state = {name: file.get_tensor(name) for name in names}
            meta: dict[str, Any] = json.loads((file.metadata() or {})[_META])
    except (SafetensorError, KeyError, ValueError) as error:
        raise RewardModelError(f"{path}: torn, or not a reward model ({error!r}); train it anew") from error
    if meta.get("format") != FORMAT or meta.get("checksum") != _checksum(state):
        raise RewardModelError(
            f"{path}: expected format {FORMAT} with an intact checksum; restore the file, or train it anew"
        )
    return state, meta


def _checksum(state: Mapping[str, Tensor]) -> int:
    checksum = 0
    for name in sorted(state):
        checksum = zlib.crc32(state[name].numpy().tobytes(), checksum)
    return checksum
