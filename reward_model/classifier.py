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
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from reward_model.interface import Images, Readings, RewardModelError, blank, check_images, check_readings
from reward_model.labels import Thresholds
from robot.tasks import PROPRIO_NAMES
from robot.types import Float32

FORMAT = 1
SCORED_AT_ONCE = 256  # frames
QUANTILES = (0.05, 0.5, 0.95)  # of the success frames' readings
FINE = 1 / 6  # of the distance between the outer two, the unit of what is fine in a reading
COARSE_LIMIT = 5.0  # standard deviations, beyond which a reading is no farther off
TINY = 1e-4  # SI units, finer than which no reading is taken
_META = "reward_model"  # key of the JSON in the file's metadata


class TrunkKind(Enum):
    """Where the image features come from."""

    SCRATCH = "scratch"  # a small network, trained with the head
    FROZEN = "frozen"  # a network with weights of its own, passed in, that never trains


@dataclass(frozen=True)
class ClassifierConfig:
    """channels: of the scratch trunk, one convolution of stride 2 each. width: of the hidden layer of the head.

    backbone, weights: name and weight file of a frozen trunk, for whoever makes it.
    readings: entries of the proprio vector that the head sees beside the images, where a millimetre decides that no
    pixel shows; of PROPRIO_NAMES, as only those can be imagined. While it trains, the readings of a frame are left out
    with probability reading_dropout, and are blurred by reading_noise times the width of their fine scale, as imagined
    ones scatter.
    """

    trunk: TrunkKind = TrunkKind.SCRATCH
    channels: tuple[int, ...] = (16, 32, 32)
    backbone: str = "lpips_alexnet"
    weights: str | None = None
    width: int = 256
    dropout: float = 0.1
    readings: tuple[str, ...] = ()
    reading_dropout: float = 0.2
    reading_noise: float = 0.25

    def __post_init__(self) -> None:
        if not self.channels or min(*self.channels, self.width) < 1:
            raise ValueError("classifier: expected at least one convolution, channels and width >= 1")
        if not 0.0 <= self.dropout < 1.0:
            raise ValueError(f"classifier.dropout: expected [0, 1), got {self.dropout}")
        unknown = [name for name in self.readings if name not in PROPRIO_NAMES]
        if unknown or len(set(self.readings)) < len(self.readings):
            raise ValueError(
                f"classifier.readings: expected different ones of {list(PROPRIO_NAMES)}, got {list(self.readings)}; "
                "what else an arm measures, force and torque among it, cannot be imagined"
            )
        if not 0.0 <= self.reading_dropout < 1.0 or not self.reading_noise >= 0.0:
            raise ValueError(
                "classifier: expected reading_dropout in [0, 1) and reading_noise >= 0, got "
                f"{self.reading_dropout}, {self.reading_noise}"
            )


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


class ArmReadings(nn.Module):
    """(N, R) readings, SI units, to (N, width), which is added to what the head's first layer makes of the images.

    Every reading enters standardised over the frames of training, and as tanh of its distance from each of the
    QUANTILES of the success frames, in units of a share FINE of the distance between the outer two: success begins at
    the edge of what success frames read, not at their mean. Readings do not show the object, and a judge that went by
    them alone would take a finger beside the lever for one on it. Near misses among the frames of failure teach it
    better, so far as there are any; leaving readings out keeps the images in use.
    """

    mean: Tensor
    scale: Tensor
    edges: Tensor
    fine: Tensor

    def __init__(self, config: ClassifierConfig) -> None:
        super().__init__()
        count = len(config.readings)
        self._dropout, self._noise = config.reading_dropout, config.reading_noise
        self.register_buffer("mean", torch.zeros(count))
        self.register_buffer("scale", torch.ones(count))
        self.register_buffer("edges", torch.zeros(len(QUANTILES), count))
        self.register_buffer("fine", torch.ones(count))
        self.layer = nn.Linear((1 + len(QUANTILES)) * count, config.width, bias=False)

    def fit(self, readings: Float32, succeeded: NDArray[np.bool_]) -> None:
        """Take the scales from frames (N, R) of known outcome (N,)."""
        edges = np.quantile(readings[succeeded], QUANTILES, axis=0)
        for buffer, value in (
            (self.mean, readings.mean(axis=0)),
            (self.scale, np.maximum(readings.std(axis=0), TINY)),
            (self.edges, edges),
            (self.fine, np.maximum(FINE * (edges[-1] - edges[0]), TINY)),
        ):
            buffer.copy_(torch.as_tensor(value))

    def forward(self, readings: Tensor) -> Tensor:
        if self.training:
            readings = readings + self._noise * self.fine * torch.randn_like(readings)
        coarse = ((readings - self.mean) / self.scale).clamp(-COARSE_LIMIT, COARSE_LIMIT)
        fine = torch.tanh((readings[:, None] - self.edges) / self.fine).flatten(1)
        features = torch.cat([coarse, fine], dim=1)
        if self.training:
            features = features * (torch.rand_like(features[:, :1]) >= self._dropout)
        hidden: Tensor = self.layer(features)
        return hidden


class SuccessNetwork(nn.Module):
    """One trunk for all views, their maps flattened, Dense - Dropout - LayerNorm - ReLU - Dense to one logit.

    The arm's readings, where it has any, are added behind the first Dense, see ArmReadings.
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
        self.arm = ArmReadings(config) if config.readings else None

    def forward(self, images: Mapping[str, Tensor], readings: Tensor) -> Tensor:
        """view -> (N, H, W, 3) uint8, and the arm's readings (N, R), to logits (N,)."""
        hidden = self.head[0](torch.cat([self._maps(images[view]) for view in self._views], dim=1))
        if self.arm is not None:
            hidden = hidden + self.arm(readings)
        logits: Tensor = self.head[1:](hidden)[:, 0]
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

    @property
    def readings(self) -> tuple[str, ...]:
        return self.config.readings

    def score(self, images: Images, readings: Readings | None = None) -> Float32:
        """(B, T) success probabilities; NaN where a view is blank, or a reading or the output is not finite."""
        batch, length = check_images(self.views, images)
        table = check_readings(self.readings, readings, batch, length).reshape(
            batch * length, len(self.readings)
        )
        wanted = {view: images[view] for view in self.views}
        flat = {view: frames.reshape(batch * length, *self.views[view], 3) for view, frames in wanted.items()}
        prob = np.empty(batch * length, np.float32)
        self.network.eval()
        with torch.inference_mode():
            for first in range(0, len(prob), SCORED_AT_ONCE):
                part = slice(first, first + SCORED_AT_ONCE)
                logits = self.network(
                    {view: torch.as_tensor(f[part], device=self.device) for view, f in flat.items()},
                    torch.as_tensor(table[part], device=self.device),
                )
                prob[part] = torch.sigmoid(logits).cpu().numpy()
        unknown = blank(wanted).ravel() | ~np.isfinite(table).all(axis=1) | ~np.isfinite(prob)
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
            settings["readings"] = tuple(settings.get("readings", ()))  # files of before know none
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
