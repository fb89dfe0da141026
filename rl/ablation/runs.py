"""The runs of an ablation: every arm x seed once, side by side in processes, one JSON each, safe to interrupt."""

from __future__ import annotations

import hashlib
import json
import math
import multiprocessing
import shutil
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf

from rl.ablation.arms import Arm, make_arm, make_arms
from rl.ablation.config import AblateConfig
from rl.ablation.recording import Recording
from rl.ablation.replaying import Replaying
from rl.ablation.results import read_result
from rl.agent.adam import load_optimiser
from rl.config import ConfigError
from rl.digests import digest_of
from rl.provenance import header, write_json
from rl.runtime.interrupt import InterruptFlag

PACKAGES = ("torch", "numpy", "mujoco")
POLL_S = 0.5
Say = Callable[[str], None]


@dataclass(frozen=True)
class Clocks:
    """Seconds that have passed, and seconds that this process has computed."""

    wall: Callable[[], float]
    cpu: Callable[[], float]


@dataclass(frozen=True)
class AblationRun:
    """One arm and seed: where its result goes, and by what a result is known to be that of the same question."""

    arm: str
    entry: str
    seed: int
    result: Path
    identity: str

    @property
    def name(self) -> str:
        return f"{self.arm} seed {self.seed}"

    @property
    def work(self) -> Path:
        """The run directory that the recording is replayed into."""
        return self.result.with_suffix(".run")


def out_dir(config: AblateConfig) -> Path:
    return Path(config.out) if config.out else Path(config.run) / "ablations" / config.name


def plan_runs(recording: Recording, config: AblateConfig) -> list[AblationRun]:
    """All runs; raises ConfigError before the first one starts where one could not, or where a result is of another."""
    out = out_dir(config).resolve()
    stores = [(recording.run.path / name).resolve() for name in ("real", "demo", "synthetic", "weights")]
    if out == recording.run.path.resolve() or any(out.is_relative_to(store) for store in stores):
        raise ConfigError(f"out={config.out}: lies in what was recorded; choose a folder beside it")
    runs = [
        AblationRun(
            arm.name,
            arm.entry,
            seed,
            out / arm.name / f"{seed}.json",
            _identity(recording, arm, seed, config),
        )
        for arm in make_arms(recording, config)
        for seed in config.seeds
    ]
    for run in runs:
        if run.result.exists() and read_result(run.result)["identity"] != run.identity:
            raise ConfigError(
                f"{run.result}: of another recording or other settings of this arm; choose another name=, or delete it"
            )
    return runs


def _identity(recording: Recording, arm: Arm, seed: int, config: AblateConfig) -> str:
    """Changes with whatever changes the numbers of a result, code aside."""
    judge = arm.stream.reward_model
    question = {
        "recording": recording.identity,
        "settings": OmegaConf.to_yaml(arm.settings, resolve=True, sort_keys=True),
        "stream": asdict(arm.stream) | {"imagined": arm.stream.imagined.value},
        "reward_model": None if judge is None else digest_of(Path(judge)),
        "judged": [config.holdout_every, config.eval_episodes, asdict(config.fqe)],
        "seed": seed,
    }
    return hashlib.sha256(json.dumps(question, sort_keys=True).encode()).hexdigest()


def run_all(
    runs: Sequence[AblationRun], config: AblateConfig, command: str, clocks: Clocks, say: Say
) -> list[AblationRun]:
    """Run all that have no result yet, `parallel` side by side; returns those that failed.

    An interrupt ends them at their next update; what is finished stays, and a later call goes on with the rest.
    """
    if config.parallel == 1:
        return [
            run for run in runs if not _say_outcome(run, say, partial(run_one, run, config, command, clocks))
        ]
    spawn = multiprocessing.get_context("spawn")  # a fresh process: no thread or GL context of this one
    interrupted = InterruptFlag()
    # A terminal sends Ctrl-C to everybody; only this process decides.
    pool = ProcessPoolExecutor(config.parallel, spawn, signal.signal, (signal.SIGINT, signal.SIG_IGN))
    failed: list[AblationRun] = []
    open_runs = {pool.submit(run_one, run, config, command, clocks): run for run in runs}
    try:
        while open_runs and not interrupted.seen:
            done, _ = wait(open_runs, POLL_S, FIRST_COMPLETED)
            for future in done:
                run = open_runs.pop(future)
                if not _say_outcome(run, say, future.result):
                    failed.append(run)
    finally:
        if open_runs:
            for process in multiprocessing.active_children():
                process.terminate()
        pool.shutdown(cancel_futures=True)
        for run in open_runs.values():
            shutil.rmtree(run.work, ignore_errors=True)  # where one was ended before it could do so itself
        interrupted.restore()
    if interrupted.seen:
        raise KeyboardInterrupt
    return failed


def _say_outcome(run: AblationRun, say: Say, outcome: Callable[[], None]) -> bool:
    """Whether it went well; what a run itself could not do does not end the others."""
    try:
        outcome()
    except (RuntimeError, ValueError, OSError, FloatingPointError) as error:
        say(f"failed {run.name}: {type(error).__name__}: {error}")
        return False
    say(f"finished {run.name}")
    return True


def run_one(run: AblationRun, config: AblateConfig, command: str, clocks: Clocks) -> None:
    """Replay, judge, and write the result beside and rename; its run directory goes unless it is to be kept."""
    load_optimiser()  # before an environment makes a GL context
    begun, computed = clocks.wall(), clocks.cpu()
    recording = Recording.open(Path(config.run), config.device)
    arm = make_arm(recording, config, run.entry)
    threads = torch.get_num_threads()
    torch.set_num_threads(arm.config.runtime.torch_threads)
    try:
        measured = Replaying(recording, arm, run.seed, run.work, config).run()
    finally:
        torch.set_num_threads(threads)
        if not config.keep:
            shutil.rmtree(run.work, ignore_errors=True)
    result = {
        **header("ablate", command, PACKAGES),
        "identity": run.identity,
        "arm": run.arm,
        "entry": run.entry,
        "seed": run.seed,
        "minutes": (clocks.wall() - begun) / 60,
        "cpu_minutes": (clocks.cpu() - computed) / 60,
        "measured": _plain(measured),
    }
    write_json(run.result, result)


def _plain(value: Any) -> Any:
    """JSON knows no NaN: unknown is null."""
    if isinstance(value, dict):
        return {name: _plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
