"""Configs: every YAML composes; a wrong key or value is refused by its path with the nearest valid name."""

from __future__ import annotations

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from rl import cli
from rl.command import help_text
from rl.config import CONFIG_DIR, ConfigError, keys, load, load_dict, read, to_object
from rl.schemas import SCHEMAS, CorrectionKind, RuntimeKind, TrainConfig
from robot.factory import ClockKind
from robot.teleop.gamepad import GamepadConfig
from robot.teleop.spacemouse import SpaceMouseConfig

EXPERIMENTS = sorted(p.stem for p in (CONFIG_DIR / "experiment").glob("*.yaml"))
REAL_TIME = ["robot.clock=wall"]
NEEDED = {"show": ["path=x"], "evaluate": ["run=x"], "check-robot": ["robot=a1x_simulated_pixels"]}
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
    overrides = ["seed=3", "robot.clock=wall", "pacing.actor_waits=episode", "runtime.kind=INLINE"]
    config = load("train", [*overrides, "agent.encoder.channels=[8,8,8]"])
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
        ("seed=-1", "seed: expected 0 to 2147483647, got -1"),
        ("seed=12345678901234567890123", "seed: expected 0 to 2147483647"),
        ("device=quatsch", "device: expected cpu, cuda or cuda:<index>, got 'quatsch'"),
        ("device=cuda:99", r"device=cuda:99: PyTorch finds \d+ CUDA devices .* use device=cpu"),
        ("robot.clock=wall", "use pacing.actor_waits=episode"),
        ("correction.kind=keyboard", "use robot.clock=wall"),
        ("correction.kind=gamepad", "use robot.clock=wall"),
        ("correction.kind=spacemouse", "use robot.clock=wall"),
        ("robot.views=wrist", "robot.views: "),
        ("seed=ä (", r"seed=ä \(: cannot be read; expected key=value"),
        ("zzz=1", "zzz: unknown key of `groundhog train`; --help lists them all"),
        ("demos=scarse", "demos=scarse: no such file in configs/demos; did you mean `scarce`"),
    ],
)
def test_a_wrong_override_is_named_with_its_remedy(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load("train", [override])


@pytest.mark.parametrize(
    ("arm", "differs"),
    [
        ("full_linear", {"synthetic.share.pacing.rule"}),
        ("no_schedule", {"synthetic.share.pacing.rule"}),
        ("no_selection", {"synthetic.selection.mode"}),
        ("naive", {"synthetic.selection.mode", "synthetic.share.pacing.rule"}),
        ("full_anchored", {"synthetic.video.executed_share"}),
        ("oracle_labels", {"synthetic.video.true_labels"}),
        (
            "full_carried",
            {
                "synthetic.share.pacing.rule",
                "synthetic.worker.per_update",
                "agent.synthetic_trains_policy",
            },
        ),
    ],
)
def test_arms_beside_full_differ_from_it_in_what_they_are_named_for(arm: str, differs: set[str]) -> None:
    full, other = (
        load_dict("train", ["experiment=press_scarce_pixels", f"arm={name}"]) for name in ("full", arm)
    )
    names = [name for name, _ in keys(TrainConfig)]
    changed = {name for name in names if OmegaConf.select(full, name) != OmegaConf.select(other, name)}
    assert {name for name in changed if not any(inner.startswith(f"{name}.") for inner in changed)} == differs


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["arm=vlaw", "synthetic.selection.mode=none"], "agent.synthetic_imitated: .* got True with none"),
        (
            ["arm=full", "synthetic.selection.mode=successes"],
            "synthetic_imitated: .* got False with successes",
        ),
        (["arm=vlaw", "synthetic.share.mode=loss_weight"], "synthetic.share.mode: expected fraction"),
        (
            ["arm=full", "agent.synthetic_trains_policy=true", "synthetic.share.mode=loss_weight"],
            "expected fraction with agent.synthetic_trains_policy=true, got loss_weight",
        ),
        (["arm=full", "synthetic.share.weight_share=0.5"], r"weight_share: expected \(0, 0.3\], got 0.5"),
    ],
)
def test_what_the_policy_learns_from_what_is_imagined_is_bounded_and_of_both_signs(
    overrides: list[str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        load("train", overrides)


@pytest.mark.parametrize(
    ("command", "override", "message"),
    [
        ("record", "seed=-1", "seed: expected 0 to"),
        ("record", "correction.kind=keyboard", "use robot.clock=wall"),
        (
            "record",
            "experiment=demo",
            "experiment: not for `groundhog record`; its groups: robot, correction, demos",
        ),
        ("show", "columns=0", "columns: expected at least 1, got 0"),
        ("show", "columns=-2", "columns: expected at least 1, got -2"),
        ("check-correction", "seconds=0", "seconds: expected 0.2 to 3600"),
        ("check-correction", "correction.gamepad.buttons.stop=0", "0 for success and for stop"),
        (
            "check-correction",
            "correction.gamepad.buttons.stp=0",
            "did you mean `correction.gamepad.buttons.stop`",
        ),
        ("check-correction", "correction.gamepad.dead_man=RB", "correction.gamepad.dead_man: Value 'RB'"),
        (
            "record",
            "correction.spacemouse.hands.signs=[1,1]",
            r"signs: expected six of -1 and 1, got \[1.0, 1.0\]",
        ),
        ("train", "correction.spacemouse.product=1234", "product: expected one of c603"),
        (
            "evaluate",
            "correction=gamepad",
            "no such file in configs/correction; known: playstation4, playstation5",
        ),
        ("bench", "train=x=3", r"cannot be read; expected key=value, and a list as key=\[a,b\]"),
    ],
)
def test_other_commands_refuse_as_clearly(command: str, override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(command, [*NEEDED.get(command, []), override])


@pytest.mark.parametrize("command", ["train", "record", "evaluate", "check-robot", "check-correction"])
@pytest.mark.parametrize("name", sorted(p.stem for p in (CONFIG_DIR / "correction").glob("*.yaml")))
def test_every_file_of_a_correction_device_composes_with_keys_on_top(name: str, command: str) -> None:
    needed = {
        "train": [*REAL_TIME, "pacing.actor_waits=episode"],
        "evaluate": ["run=x"],
        "check-correction": [],
    }
    keys = ["correction.gamepad.buttons.discard=null", "correction.gamepad.hands.signs=[-1,-1,1,-1,-1,1]"]
    made = load(command, [f"correction={name}", *keys, *needed.get(command, REAL_TIME)]).correction
    assert made.kind is CorrectionKind.GAMEPAD and made.gamepad.buttons.discard is None
    assert made.gamepad.buttons != GamepadConfig().buttons
    assert made.gamepad.hands.signs == [-1, -1, 1, -1, -1, 1] and made.spacemouse == SpaceMouseConfig()


TEXTS = ["/tmp/räum", "run (1), é=x", "don't", "a\\b\\", "[a", "5", "true", "a: b # c", "~/x{y}"]


@pytest.mark.parametrize("text", TEXTS)
def test_text_may_hold_any_character(text: str, tmp_path: Path) -> None:
    assert load("show", [f"path={text}"]).path == text
    OmegaConf.save(load_dict("train", [f"name={text}"]), tmp_path / "config.yaml")
    assert to_object(read(tmp_path / "config.yaml", "train")).name == text
    again = read(tmp_path / "config.yaml", "train", [f"name={text} again", f"demos.path={text}"])
    assert (again.name, again.demos.path) == (f"{text} again", text)


def test_null_nothing_and_quotes_keep_their_meaning(tmp_path: Path) -> None:
    assert load("train", ["name=null"]).name is None
    assert load("train", ["name="]).name == ""
    assert load("train", ["name='a b'"]).name == "a b"
    OmegaConf.save(load_dict("train", ["name=x"]), tmp_path / "config.yaml")
    assert read(tmp_path / "config.yaml", "train", ["name=null"]).name is None
    assert read(tmp_path / "config.yaml", "train", ['name="a b"']).name == "a b"


@pytest.mark.parametrize(
    ("written", "elements"),
    [
        ("[actor.max_env_steps=60]", ["actor.max_env_steps=60"]),
        ("[a=[8,8,8], 'name=x,y',b=é (1]", ["a=[8,8,8]", "name=x,y", "b=é (1"]),
        ("[]", []),
    ],
)
def test_a_list_of_texts_is_split_at_its_own_commas(written: str, elements: list[str]) -> None:
    assert load("bench", [f"train={written}"]).train == elements


def test_a_missing_value_is_asked_for() -> None:
    with pytest.raises(ConfigError, match="path: a value is needed"):
        load("show", [])


def test_a_stored_config_comes_back_and_takes_overrides(tmp_path: Path) -> None:
    OmegaConf.save(load_dict("train", ["seed=5", "agent.hidden=32"]), tmp_path / "config.yaml")
    config = to_object(read(tmp_path / "config.yaml", "train", ["actor.max_env_steps=7"]))
    assert (config.seed, config.agent.hidden, config.actor.max_env_steps) == (5, 32, 7)
    with pytest.raises(ConfigError, match=r"actor\.max_env_step"):
        read(tmp_path / "config.yaml", "train", ["actor.max_env_step=7"])
    with pytest.raises(ConfigError, match="no such file"):
        read(tmp_path / "nowhere.yaml", "train")


@pytest.mark.parametrize("robot", ["a1x", "piper"])
def test_a_physical_arm_has_no_default_workspace(robot: str) -> None:
    asked = ["correction.kind=none", "pacing.actor_waits=episode"]
    with pytest.raises(ConfigError, match=r"robot\.cell\.workspace_lower.*no default workspace"):
        load("train", [f"robot={robot}", *asked])
    load("train", ["robot=a1x_simulated", *asked])


@pytest.mark.parametrize("group", ["experiment=demo", "arm=bc", "demos=scarce", "robot=a1x_simulated"])
def test_groups_are_chosen_once(group: str, tmp_path: Path) -> None:
    OmegaConf.save(load_dict("train", []), tmp_path / "config.yaml")
    with pytest.raises(ConfigError, match="chosen when a run starts and cannot change on resume"):
        read(tmp_path / "config.yaml", "train", [group])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "robot and agent missing"),
        (b"seed: 1\nrobot: {task: press}\n", "agent missing"),
        (b"seed: 1\nrobot: {task: press}\nagent:\n", "agent missing"),
        (b"robot: {task: press}\nagent: {hid", "cannot be read"),
        (b"robot: {task: press}\nagent: hid", "agent missing"),
        (b"- seed\n", "expected keys with their values, got a list"),
        (b"5\n", "cannot be read"),
        (b"\xff\xfe\xfa", "cannot be read"),
        (bytes(20), "cannot be read"),
    ],
)
def test_a_torn_stored_config_is_refused_by_name(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=f"{path}: .*{message}"):
        read(path, "train")


def test_keys_that_came_after_a_run_was_made_are_completed(tmp_path: Path) -> None:
    stored = load_dict("train", ["seed=5"])
    older = {name: value for name, value in stored.items() if name not in ("open_picture", "pacing")}
    OmegaConf.save(OmegaConf.create(older), tmp_path / "config.yaml")
    assert to_object(read(tmp_path / "config.yaml", "train")) == load("train", ["seed=5"])


def test_help_lists_every_key(capsys: pytest.CaptureFixture[str]) -> None:
    assert "robot.image_px" in help_text("train") and "virtual|wall" in help_text("train")
    assert cli.main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in cli.COMMANDS)


def test_an_unknown_command_is_refused_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["trian"]) == 2
    assert "did you mean `train`" in capsys.readouterr().err
