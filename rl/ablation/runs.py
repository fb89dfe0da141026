"""The runs of an ablation: every arm x seed once, side by side in processes, one JSON each, safe to interrupt."""

from __future__ import annotations

import hashlib
import json
import math
import multiprocessing
import shutil
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing.synchronize import Event
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
from rl.provenance import header
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
    question = {
        "recording": recording.identity,
        "settings": OmegaConf.to_yaml(arm.settings, resolve=True, sort_keys=True),
        "stream": asdict(arm.stream) | {"imagined": arm.stream.imagined.value},
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
    stop = spawn.Event()
    interrupted = InterruptFlag()
    pool = ProcessPoolExecutor(config.parallel, spawn, _begin_process, (stop,))
    failed: list[AblationRun] = []
    try:
        open_runs: dict[Future[None], AblationRun] = {
            pool.submit(_run_in_process, run, config, command, clocks): run for run in runs
        }
        while open_runs and not interrupted.seen:
            done, _ = wait(open_runs, POLL_S, FIRST_COMPLETED)
            for future in done:
                run = open_runs.pop(future)
                if not _say_outcome(run, say, future.result):
                    failed.append(run)
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)
        interrupted.restore()
    if interrupted.seen:
        raise KeyboardInterrupt
    return failed


def _say_outcome(run: AblationRun, say: Say, outcome: Callable[[], None]) -> bool:
    """Whether it went well; what a run itself could not do does not end the others."""
    try:
        outcome()
    except (ConfigError, FloatingPointError, BrokenProcessPool, RuntimeError, ValueError, OSError) as error:
        say(f"failed {run.name}: {type(error).__name__}: {error}")
        return False
    say(f"finished {run.name}")
    return True


_stop: Event | None = None  # of a pool's process: set when the ablation is to end


def _begin_process(stop: Event) -> None:
    global _stop
    _stop = stop
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to everybody; the parent decides


def _run_in_process(run: AblationRun, config: AblateConfig, command: str, clocks: Clocks) -> None:
    run_one(run, config, command, clocks, on_tick=_end_if_told)


def _end_if_told() -> None:
    if _stop is not None and _stop.is_set():
        raise KeyboardInterrupt


def run_one(
    run: AblationRun,
    config: AblateConfig,
    command: str,
    clocks: Clocks,
    on_tick: Callable[[], None] = lambda: None,
) -> None:
    """Replay, judge, and write the result beside and rename; its run directory goes unless it is to be kept."""
    load_optimiser()  # before an environment makes a GL context
    begun, computed = clocks.wall(), clocks.cpu()
    recording = Recording.open(Path(config.run), config.device)
    arm = make_arm(recording, config, run.entry)
    threads = torch.get_num_threads()
    torch.set_num_threads(arm.config.runtime.torch_threads)
    try:
        measured = Replaying(recording, arm, run.seed, run.work, config).run(on_tick)
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
    run.result.parent.mkdir(parents=True, exist_ok=True)
    beside = run.result.with_suffix(".part")
    beside.write_text(json.dumps(result, indent=1) + "\n")
    beside.rename(run.result)


def _plain(value: Any) -> Any:
    """JSON knows no NaN: unknown is null."""
    if isinstance(value, dict):
        return {name: _plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
