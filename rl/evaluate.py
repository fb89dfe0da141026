"""`groundhog evaluate`: success rate of a published policy with its interval, on fixed layouts."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.progress import Progress

from rl import command
from rl.agent.acting import ActingConfig, ActingPolicy
from rl.cloned import CONFIG, check_fits, is_cloned
from rl.cloning import ClonePolicyConfig
from rl.config import ConfigError, load, read, to_object
from rl.corrections import make_teleop, make_window
from rl.evaluation import Evaluation
from rl.runtime.interrupt import InterruptFlag
from rl.runtime.run_dir import RunDir
from rl.schemas import EvaluateConfig, check_device
from rl.workers.ports import PolicyWeights
from robot.factory import RobotConfig, make_env
from robot.interfaces import RobotFault
from robot.wrappers import HumanIntervention

MAX_RESETS = 3  # in a row that a fault may end


def main(argv: Sequence[str] | None = None) -> int:
    return command.run("evaluate", argv, _evaluate)


def _evaluate(overrides: list[str]) -> int:
    request = load("evaluate", overrides)
    assert isinstance(request, EvaluateConfig)
    run, console = RunDir(Path(request.run)), Console()
    cloned, robot = is_cloned(run.path), _robot_words(overrides)
    setting = (_of_cloned if cloned else _of_run)(run.path, request, robot)
    weights = run.weights().load(request.version)
    out = Path(request.out) if request.out else run.path / "evaluations" / f"v{weights.version:06d}.json"
    noise = setting.noise if request.noise is None else request.noise
    _check_writable(out)  # before the minutes that the episodes take
    policy = ActingPolicy(setting.agent, run.spec, device=torch.device(setting.device), seed=setting.seed)
    policy.load_tensors(weights.tensors)

    def report() -> None:
        if evaluation.completed:
            extra = {"robot": robot} if cloned else {}
            _report(run, out, evaluation, weights, noise, extra, console)

    interrupted = InterruptFlag()
    with ExitStack() as end:  # last in, first out
        end.callback(interrupted.restore)
        env = make_env(setting.robot, seed=setting.seed, keep_waiting=lambda _request: not interrupted.seen)
        end.callback(env.close)
        if cloned:
            check_fits(run.path, run.spec, env)
        teleop = make_teleop(request.correction, env, np.random.default_rng([setting.seed, 4]))
        if teleop is not None:
            end.callback(teleop.close)
        led = HumanIntervention(env, teleop) if teleop is not None else env
        show = make_window(request.correction.kind)
        evaluation = Evaluation(led, policy, request.episodes, noise, on_step=show)
        end.callback(report)  # whatever ends it: what is complete is kept
        _play(evaluation, console, lambda: interrupted.seen)
    if not evaluation.completed:
        raise ConfigError("stopped before an episode was complete; nothing is written")
    return 130 if interrupted.seen else 0


def _play(evaluation: Evaluation, console: Console, interrupted: Callable[[], bool]) -> None:
    """Episodes until there are enough, or somebody stops it.

    An episode that a fault ends has failed; a reset that one ends is tried again, where nobody refused it, and raises
    the fault of the last of MAX_RESETS.
    """
    failed_resets = 0
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task("evaluating", total=evaluation.episodes)
        while not (evaluation.finished or interrupted()):
            try:
                evaluation.step()
                failed_resets = 0
            except RobotFault as fault:
                if evaluation.under_way:
                    evaluation.fault()
                elif interrupted():  # Ctrl-C was the answer to a question
                    return
                elif (failed_resets := failed_resets + 1) == MAX_RESETS or fault.name == "not_confirmed":
                    raise
                console.print(str(fault), highlight=False)
            progress.update(bar, completed=evaluation.completed)


def _report(
    run: RunDir,
    out: Path,
    evaluation: Evaluation,
    weights: PolicyWeights,
    noise: float,
    extra: Mapping[str, object],
    console: Console,
) -> None:
    """Write the statistics of the complete episodes into `out`, and say them."""
    values = evaluation.result().as_metrics() | {
        "policy_version": weights.version,
        "updates": weights.updates,
        "noise": noise,
    }
    # JSON knows no NaN, which is the cycle length where no episode succeeded.
    finite = {name: value if math.isfinite(value) else None for name, value in values.items()}
    run.write_json(str(out.absolute()), {**finite, **extra})
    if evaluation.completed < evaluation.episodes:
        console.print(
            f"stopped after {evaluation.completed} of {evaluation.episodes} episodes", highlight=False
        )
    console.print(
        f"policy version {weights.version}: success {values['eval/success']:.0%} of {values['eval/episodes']} "
        f"(95% interval {values['eval/wilson_low']:.0%}-{values['eval/wilson_high']:.0%}), "
        f"cycle {values['eval/cycle_steps']:.1f} steps, corrected {values['eval/correction_rate']:.1%}\n{out}",
        soft_wrap=True,
        highlight=False,
    )


@dataclass(frozen=True)
class _Setting:
    """What a policy needs to act. noise: the share of its spread that acts where none is asked for."""

    agent: ActingConfig
    robot: RobotConfig
    seed: int
    device: str
    noise: float


def _of_run(path: Path, request: EvaluateConfig, robot: Sequence[str]) -> _Setting:
    if robot:
        raise ConfigError(f"robot: {path} is a run and brings its robot; leave robot out")
    config = RunDir.open(path, (f"device={request.device}",) if request.device else ()).config
    return _Setting(config.agent, config.robot, config.seed, config.device, config.actor.eval_noise)


def _of_cloned(path: Path, request: EvaluateConfig, robot: Sequence[str]) -> _Setting:
    if not robot:
        raise ConfigError(
            f"robot: {path} is a cloned policy and brings no robot; name it as for `groundhog record`, with "
            "robot=<file> or robot.task=<task> and the image size and views that were recorded"
        )
    config = to_object(read(path / CONFIG, "clone-policy"))
    assert isinstance(config, ClonePolicyConfig)
    device = request.device or config.device
    check_device(device)
    return _Setting(config.agent, request.robot, config.seed, device, noise=0.0)


def _robot_words(overrides: Sequence[str]) -> list[str]:
    """What the command line says of the robot."""
    return [o for o in overrides if o.lstrip("+~").partition("=")[0].partition(".")[0] == "robot"]


def _check_writable(out: Path) -> None:
    """Raise ConfigError where no file `out` can be written; makes its directory."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out.parent):
            pass
    except OSError as error:
        raise ConfigError(
            f"{out}: cannot write there ({error.strerror}); choose another out=<file>"
        ) from error
    if out.is_dir():
        raise ConfigError(f"{out}: a directory; expected out=<file>, such as out={out / 'evaluation.json'}")


if __name__ == "__main__":
    raise SystemExit(main())
