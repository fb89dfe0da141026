"""Arms: named changes of the recorded configuration; one that the recording cannot answer is refused beforehand."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rl.ablation.config import AblateConfig, Imagined, StreamConfig
from rl.ablation.recording import Recording
from rl.config import CONFIG_DIR, ConfigError, keys, read, to_object
from rl.runtime.imagining import check_synthetic
from rl.schemas import CorrectionKind, TrainConfig
from rl.synthetic import ImaginedBy

RECORDED = "recorded"  # the arm that changes nothing
STREAM = "stream"  # an arm's section that is no part of a run's configuration
FIXED = ("robot", "demos", "gripper")  # what the recording was made with


@dataclass(frozen=True)
class Arm:
    """entry: as it was asked for. settings: the whole configuration of a run, seed aside."""

    name: str
    entry: str
    settings: DictConfig
    stream: StreamConfig

    @property
    def config(self) -> TrainConfig:
        config = to_object(self.settings)
        assert isinstance(config, TrainConfig)
        return config

    @property
    def shows_corrections(self) -> bool:
        return self.config.correction.kind is not CorrectionKind.NONE


def make_arms(recording: Recording, config: AblateConfig) -> list[Arm]:
    """All arms; raises ConfigError before the first one is replayed where one could not be."""
    arms = [make_arm(recording, config, entry) for entry in config.arms]
    names = [arm.name for arm in arms]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise ConfigError(f"arms: {', '.join(doubled)} twice; give each arm a file or keys of its own")
    return arms


def make_arm(recording: Recording, config: AblateConfig, entry: str) -> Arm:
    """The arm behind one word of `arms`: a file, and keys on top of it."""
    name, *changes = entry.split() or [""]
    changes += config.train
    shown = [change.removeprefix(f"{STREAM}.") for change in changes if change.startswith(f"{STREAM}.")]
    learned = tuple(change for change in changes if not change.startswith(f"{STREAM}."))
    try:
        layer = _layer(name)
        stream = _stream(layer.pop(STREAM, {}), shown)
        settings = read(
            recording.run.path / "config.yaml", "train", (*learned, f"device={config.device}"), (layer,)
        )
        word = re.sub(r"[^\w.=+-]", "_", "+".join([Path(name).stem, *entry.split()[1:]]))
        arm = Arm(word, entry, settings, stream)
        _check(arm, recording, config)
    except ConfigError as error:
        raise ConfigError(f"arm {entry!r}: {error}") from error
    return arm


def _layer(name: str) -> dict[str, Any]:
    """What an arm's file changes."""
    if name == RECORDED:
        return {}
    path = Path(name) if name.endswith((".yaml", ".yml")) else CONFIG_DIR / "arm" / f"{name}.yaml"
    if not path.is_file():
        known = [RECORDED, *sorted(p.stem for p in (CONFIG_DIR / "arm").glob("*.yaml"))]
        raise ConfigError(f"no file {path}; known: {', '.join(known)}, or a YAML of yours by its path")
    try:
        layer = yaml.safe_load(path.read_text()) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: cannot be read ({' '.join(str(error).split())})") from error
    if not isinstance(layer, dict):
        raise ConfigError(f"{path}: expected keys with their values, as in configs/arm/rlpd.yaml")
    return layer


def _stream(section: Any, changes: Sequence[str]) -> StreamConfig:
    try:
        merged = OmegaConf.merge(
            OmegaConf.create(OmegaConf.structured(StreamConfig), flags={"readonly": False}),
            section,
            OmegaConf.from_dotlist([_enum_word(change) for change in changes]),
        )
        stream = OmegaConf.to_object(merged)
    except (OmegaConfBaseException, ValueError) as error:
        raise ConfigError(f"{STREAM}: {str(error).splitlines()[0]}") from error
    assert isinstance(stream, StreamConfig)
    return stream


def _enum_word(change: str) -> str:
    key, _, value = change.partition("=")
    return f"{key}={value.upper()}" if key == "imagined" else change


def _check(arm: Arm, recording: Recording, config: AblateConfig) -> None:
    """Raise ConfigError where the recording has no answer to what the arm asks."""
    asked, recorded = arm.config, recording.config
    for key in _changed(asked, recorded):
        raise ConfigError(
            f"it changes {key}, but the robot was recorded as it was; run it with `groundhog bench` instead"
        )
    if asked.correction.kind not in (CorrectionKind.NONE, recorded.correction.kind):
        raise ConfigError(
            f"correction.kind={asked.correction.kind.value}: the run recorded "
            f"{recorded.correction.kind.value}; only that or none can be shown"
        )
    if arm.stream.reward_model is not None and not recording.spec.views:
        raise ConfigError(
            "stream.reward_model: it judges images, and the run recorded none (robot.obs=state)"
        )
    _check_synthetic(arm, asked, recording, config)


def _check_synthetic(arm: Arm, asked: TrainConfig, recording: Recording, config: AblateConfig) -> None:
    if arm.stream.imagined is Imagined.RECORDED:
        if recording.synthetic is None or not recording.synthetic.num_transitions:
            raise ConfigError(
                "stream.imagined=recorded: the run imagined nothing; imagine anew, or replay a run that did"
            )
        if not asked.synthetic.on:
            raise ConfigError("stream.imagined=recorded: it needs synthetic.model=oracle or video")
        return
    if asked.synthetic.model is ImaginedBy.VIDEO and not recording.spec.views:
        raise ConfigError("synthetic.model=video: the run recorded no images (robot.obs=state)")
    check_synthetic(asked, recording.real.schema)
    if asked.synthetic.model is ImaginedBy.ORACLE and set(config.seeds) != {recording.config.seed}:
        raise ConfigError(
            "synthetic.model=oracle: the simulator re-enacts the recorded layouts, which belong to the run's own "
            f"seed; use seeds=[{recording.config.seed}]"
        )


def _changed(asked: TrainConfig, recorded: TrainConfig) -> list[str]:
    """Dotted keys of the fixed sections that differ."""
    mine, theirs = OmegaConf.structured(asked), OmegaConf.structured(recorded)
    names = [name for name, _ in keys(TrainConfig) if name.partition(".")[0] in FIXED]
    return [
        name for name in names[::-1] if OmegaConf.select(mine, name) != OmegaConf.select(theirs, name)
    ]  # a section's own keys come behind it: the innermost is named first
