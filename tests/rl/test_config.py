"""Configs: every YAML composes; a wrong key or value is refused by its path with the nearest valid name."""

from __future__ import annotations

from pathlib import Path

import pytest

from rl import cli
from rl.command import help_text
from rl.config import (
    CONFIG_DIR,
    SCHEMAS,
    ConfigError,
    RuntimeKind,
    TrainConfig,
    load,
    load_dict,
    read,
    to_object,
)
from robot.factory import ClockKind

EXPERIMENTS = sorted(p.stem for p in (CONFIG_DIR / "experiment").glob("*.yaml"))
ARMS = sorted(p.stem for p in (CONFIG_DIR / "arm").glob("*.yaml"))


@pytest.mark.parametrize("command", ["train", "record", "bench"])
def test_defaults_compose(command: str) -> None:
    assert isinstance(load(command, []), SCHEMAS[command])


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_experiment_composes(experiment: str) -> None:
    assert isinstance(load("train", [f"experiment={experiment}"]), TrainConfig)


@pytest.mark.parametrize("arm", ARMS)
def test_every_arm_composes(arm: str) -> None:
    assert isinstance(load("train", ["experiment=press_pixels", f"arm={arm}"]), TrainConfig)


@pytest.mark.parametrize(
    ("preset", "episodes", "noise"), [("clean", 20, 0.0), ("human", 20, 0.25), ("scarce", 5, 0.25)]
)
def test_difficulty_presets_of_demonstrations(preset: str, episodes: int, noise: float) -> None:
    for command in ("train", "record"):
        demos = load(command, [f"demos={preset}"]).demos
        assert (demos.episodes, demos.noise) == (episodes, noise)
    assert load("train", [f"demos={preset}", "demos.episodes=7"]).demos.episodes == 7


def test_overrides_reach_their_dataclass_and_enums_may_be_lower_case() -> None:
    config = load(
        "train", ["seed=3", "robot.clock=wall", "runtime.kind=INLINE", "agent.encoder.channels=[8,8,8]"]
    )
    assert (config.seed, config.robot.clock, config.runtime.kind) == (3, ClockKind.WALL, RuntimeKind.INLINE)
    assert list(config.agent.encoder.channels) == [8, 8, 8]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("sed=3", "sed: unknown key .* did you mean `seed`"),
        ("robot.clok=wall", "robot.clok: unknown key .* did you mean `robot.clock`"),
        ("discount=.9", "did you mean `agent.discount`"),
        ("robot.clock=wal", "robot.clock: did you mean `wall`"),
        ("wandb=off", "wandb: did you mean `offline`"),
        ("seed=abc", "seed: Value 'abc'"),
        ("robot.image_px=1000", "robot.image_px: expected 32 to 512, got 1000"),
        ("demos.episodes=0", "demos.episodes: expected at least 1"),
        ("agent.discount=2", "discount in"),
        ("experiment=pres_pixels", "experiment=pres_pixels: no such file .*press_pixels"),
        ("pacing.utd_ratio=0", "utd_ratio"),
        ("nonsense", "nonsense"),
        ("demos=scarse", "demos=scarse: no such file in configs/demos; did you mean `scarce`"),
    ],
)
def test_a_wrong_override_is_named_with_its_remedy(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load("train", [override])


def test_a_missing_value_is_asked_for() -> None:
    with pytest.raises(ConfigError, match="path: a value is needed"):
        load("show", [])


def test_a_stored_config_comes_back_and_takes_overrides(tmp_path: Path) -> None:
    from omegaconf import OmegaConf

    OmegaConf.save(load_dict("train", ["seed=5", "agent.hidden=32"]), tmp_path / "config.yaml")
    config = to_object(read(tmp_path / "config.yaml", "train", ["actor.max_env_steps=7"]))
    assert (config.seed, config.agent.hidden, config.actor.max_env_steps) == (5, 32, 7)
    with pytest.raises(ConfigError, match=r"actor\.max_env_step"):
        read(tmp_path / "config.yaml", "train", ["actor.max_env_step=7"])
    with pytest.raises(ConfigError, match="no such file"):
        read(tmp_path / "nowhere.yaml", "train")


def test_help_lists_every_key(capsys: pytest.CaptureFixture[str]) -> None:
    assert "robot.image_px" in help_text("train") and "virtual|wall" in help_text("train")
    assert cli.main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in cli.COMMANDS)


def test_an_unknown_command_is_refused_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["trian"]) == 2
    assert "did you mean `train`" in capsys.readouterr().err
