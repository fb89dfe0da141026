"""The runs of a bench: each one is a `groundhog train` of its own process, deterministic, with one thread."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from rl.config import CONFIG_DIR, ConfigError, load, read
from rl.digests import digest_of
from rl.provenance import header, write_json
from rl.runtime.interrupt import InterruptFlag
from rl.schemas import BenchConfig
from rl.world_models.inputs import published_path
from worldmodel.interface import WorldModelError

PACKAGES = ("torch", "mujoco", "numpy", "gymnasium")
COPIED = [
    "sustained_env_steps",
    "final_success",
    "wilson_low",
    "wilson_high",
    "eval_episodes",
    "eval_noise",
    "cycle_steps",
    "env_steps",
    "updates",
    "minutes",
    "correction_rate",
    "correction_seconds",
    "bc_line",
    "failures",
    "value_bias",
    "value_correlation",
    "generated",
    "admitted",
    "used",
    "ratio_mean",
    "curve",
]
ELSEWHERE = (
    "seed",
    "name",
    "runs_dir",
    "resume",
    "device",
    "open_picture",
    "wandb",
)  # keys that are no settings
PATHS = (  # keys of which counts what lies there
    "demos.path",
    "agent.encoder.weights",
    "synthetic.video.world_model",
    "synthetic.video.reward_model",
    "synthetic.video.anchors",
    "synthetic.video.recordings",
    "synthetic.video.reward_fit.classifier.weights",
)
POLL_S = 0.5


@dataclass(frozen=True)
class BenchRun:
    """One run: where it happens, where its result goes, and the command that repeats it."""

    task: str
    arm: str
    seed: int
    obs: str
    overrides: tuple[str, ...]
    path: Path
    result: Path

    @property
    def name(self) -> str:
        return f"{self.task} {self.arm} seed {self.seed} ({self.obs})"

    @property
    def log(self) -> Path:
        return self.path.with_suffix(".log")

    @property
    def command(self) -> list[str]:
        """A run that was interrupted continues; a new one starts."""
        if (self.path / "config.yaml").exists():
            return [f"resume={self.path}"]
        return list(self.overrides)


def plan_runs(config: BenchConfig) -> list[BenchRun]:
    """All runs of the bench; raises ConfigError before the first one starts where one could not."""
    runs = []
    for task in config.tasks:
        for arm in config.arms:
            if not (CONFIG_DIR / "arm" / f"{arm}.yaml").exists():
                known = sorted(p.stem for p in (CONFIG_DIR / "arm").glob("*.yaml"))
                raise ConfigError(f"arms: no configs/arm/{arm}.yaml; known: {', '.join(known)}")
            for seed in config.seeds:
                runs.append(_plan(config, task, arm, seed))
    return runs


def _plan(config: BenchConfig, task: str, arm: str, seed: int) -> BenchRun:
    obs = config.obs.value
    folder = task if obs == "pixels" else f"{task}_{obs}"
    path = Path(config.runs_dir) / folder / arm / str(seed)
    overrides = (
        f"experiment={task}_{obs}",
        f"arm={arm}",
        f"seed={seed}",
        f"name={path.name}",
        f"runs_dir={path.parent}",
        "runtime.kind=inline",
        "wandb=disabled",
        "open_picture=false",
        *config.train,
    )
    load("train", overrides)
    result = Path(config.results_dir) / folder / arm / f"{seed}.json"
    return BenchRun(task, arm, seed, obs, overrides, path, result)


def run_all(runs: Sequence[BenchRun], parallel: int, say: Callable[[str], None]) -> list[BenchRun]:
    """Run all, `parallel` side by side; returns those that failed. An interrupt ends the children cleanly."""
    waiting, failed = list(runs), []
    interrupted = InterruptFlag()
    running: dict[BenchRun, subprocess.Popen[bytes]] = {}
    try:
        while (waiting or running) and not interrupted.seen:
            while waiting and len(running) < parallel:
                run = waiting.pop(0)
                running[run] = _start(run)
                say(f"started {run.name}")
            time.sleep(POLL_S)
            for run, process in list(running.items()):
                if process.poll() is None:
                    continue
                del running[run]
                if process.returncode == 0:
                    result = write_result(run)
                    say(f"finished {run.name}: {_outcome(result)}")
                else:
                    failed.append(run)
                    say(f"failed {run.name}: exit code {process.returncode}, see {run.log}")
    finally:
        for process in running.values():
            process.terminate()  # a clean end of that run; the next bench resumes it
        for process in running.values():
            process.wait()
        interrupted.restore()
    if interrupted.seen:
        raise KeyboardInterrupt
    return failed


def _start(run: BenchRun) -> subprocess.Popen[bytes]:
    run.log.parent.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with run.log.open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "rl.train", *run.command],
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
        )


def write_result(run: BenchRun) -> dict[str, Any]:
    """The result file of a finished run, from its summary."""
    summary = json.loads((run.path / "summary.json").read_text())
    result = {
        **header(f"bench/{run.task}", " ".join(["groundhog train", *run.overrides]), PACKAGES),
        "task": run.task,
        "arm": run.arm,
        "seed": run.seed,
        "obs": run.obs,
        "settings": settings_digest(run.path / "config.yaml"),
        **{key: summary[key] for key in COPIED},
    }
    write_json(run.result, result)
    return result


def settings_digest(path: Path) -> str:
    """Of a run's config.yaml: equal where two runs differ in seed, device and places alone.

    Of a path counts what lies there, see `_content`.
    """
    settings = OmegaConf.create(OmegaConf.to_yaml(read(path, "train"), resolve=True))
    for key in ELSEWHERE:
        OmegaConf.update(settings, key, None)
    for key in PATHS:
        if (given := OmegaConf.select(settings, key)) is not None:
            OmegaConf.update(settings, key, _content(Path(given)))
    return hashlib.sha256(OmegaConf.to_yaml(settings, sort_keys=True).encode()).hexdigest()


def _content(path: Path) -> str:
    """Digest of a file, of the newest world model in a directory, or of a store's journal; "none" where it is gone."""
    try:
        path = published_path(path)
    except WorldModelError:
        path = path / "journal.jsonl"
    return digest_of(path) or "none"


def seeds_cell(results: Sequence[Mapping[str, Any]]) -> str:
    """The number of `results` in a table, and of their settings where those are not all the same.

    Results from before settings were kept do not tell, and are taken for like the others.
    """
    settings = {result["settings"] for result in results if "settings" in result}
    return f"{len(results)}, {len(settings)} settings" if len(settings) > 1 else str(len(results))


def read_results(results_dir: Path) -> Iterator[dict[str, Any]]:
    """All result files, sorted by path."""
    for path in sorted(results_dir.glob("*/*/*.json")):
        try:
            yield json.loads(path.read_text())
        except ValueError as error:
            raise ConfigError(f"{path}: torn ({error}); delete it and run that seed again") from error


def _outcome(result: dict[str, Any]) -> str:
    success, steps = result["final_success"], result["sustained_env_steps"]
    sustained = f"sustained from {steps} env steps" if steps is not None else "not sustained"
    return f"{success:.0%} of {result['eval_episodes']:.0f}, {sustained}, {result['minutes']:.1f} min"
