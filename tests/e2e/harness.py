"""Starts real runs in real processes and kills them: shared by the end-to-end tests and by benchmarks/kills.py."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil
import torch

from rl import checkpoint
from rl.agent.acting import MODE, ActingPolicy
from rl.replay.reader import StoreReader
from rl.runtime.run_dir import RunDir
from rl.runtime.weights import WeightsError
from rl.workers.ports import ENV_STEPS, UPDATES
from robot.types import Float32

# State observations and small networks: what is tested here is processes, not learning.
SMALL = (
    "robot.obs=state",
    "wandb=disabled",
    "demos.episodes=3",
    "agent.hidden=32",
    "agent.num_critics=2",
    "learner.batch_size=16",
    "learner.warm_updates=20",
    "learner.publish_every=10",
    "learner.checkpoint_every=40",
    "actor.eval_every_env_steps=0",
    "actor.final_eval_episodes=1",
)


def start(*overrides: str, command: str = "train") -> subprocess.Popen[str]:
    """`groundhog <command>` in a process group of its own; output is collected by `finish`."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", f"rl.{command}", *overrides],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        start_new_session=True,
    )


def finish(process: subprocess.Popen[str], timeout: float = 120.0) -> tuple[int, str]:
    """Exit code and everything it printed; a run that does not end is an error, and is ended."""
    try:
        output, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        kill_tree(process)
        output, _ = process.communicate()
        raise AssertionError(f"did not end within {timeout} s; it printed:\n{output}") from None
    return process.returncode, output


def kill_tree(process: subprocess.Popen[str]) -> None:
    """SIGKILL to the supervisor and all its workers at once."""
    os.killpg(process.pid, signal.SIGKILL)


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[str], timeout: float = 60.0) -> None:
    """Return once `condition` holds; fails if the run ends or time is up before."""
    deadline = time.monotonic() + timeout
    while not condition():
        if process.poll() is not None:
            raise AssertionError(f"the run ended early:\n{finish(process)[1]}")
        if time.monotonic() > deadline:
            kill_tree(process)
            raise AssertionError(f"waited {timeout} s in vain; it printed:\n{finish(process)[1]}")
        time.sleep(0.005)


def started(path: Path) -> Callable[[], bool]:
    """The run has a board, so its counters can be read."""
    return lambda: (path / "board.bin").exists()


def children(process: subprocess.Popen[str]) -> list[psutil.Process]:
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


@dataclass
class Snapshot:
    """What a run had committed at a moment: rows by content, and the policy of each version by its action."""

    rows: int
    crcs: bytes
    actions: dict[int, Float32] = field(default_factory=dict)


def snapshot(run: RunDir) -> Snapshot:
    """Read beside the running processes."""
    reader = StoreReader(run.real)
    rows = reader.num_rows
    weights = run.weights()
    actions: dict[int, Float32] = {}
    for version in weights.versions():
        action = action_of(run, version)
        if action is not None:
            actions[version] = action
    return Snapshot(rows, _content(reader, rows), actions)


def action_of(run: RunDir, version: int) -> Float32 | None:
    """Deterministic action of a published version for a fixed observation, the first of the demonstrations.

    None if the learner, which goes on meanwhile, has dropped this version as an old one.
    """
    observation = StoreReader(run.demo).episode(0).observation(0)
    policy = ActingPolicy(run.config.agent, run.spec, device=torch.device("cpu"), seed=0)
    weights = run.weights()
    try:
        policy.load_tensors(weights.load(version).tensors)
    except (WeightsError, FileNotFoundError):
        assert version not in weights.versions(), f"published version {version} cannot be read"
        return None
    return policy.act(observation, noise=MODE)


def check_survived(run: RunDir, before: Snapshot) -> None:
    """No committed row is lost, changed or torn, and each version still is the policy that it was."""
    reader = StoreReader(run.real)
    assert reader.num_rows >= before.rows, f"{before.rows} rows were committed, {reader.num_rows} are left"
    assert _content(reader, before.rows) == before.crcs, "a committed row has changed"
    reader.verify_all()
    for version, action in before.actions.items():
        now = action_of(run, version)
        if now is not None:
            np.testing.assert_array_equal(now, action)


def check_checkpoint_policy(run: RunDir) -> None:
    """The newest checkpoint holds exactly the policy of the version that it names."""
    saved = checkpoint.load_latest(run.checkpoints)
    if saved is None or saved.meta["learner"]["policy_version"] < 0:
        return
    published = run.weights().load(saved.meta["learner"]["policy_version"]).tensors
    kept = {name.removeprefix("acting."): tensor for name, tensor in saved.tensors.items()}
    compared = 0
    for name, tensor in published.items():
        if name in kept:
            assert torch.equal(kept[name], tensor), f"{name} differs between checkpoint and published version"
            compared += 1
    assert compared, (
        f"nothing to compare: checkpoint has {sorted(kept)[:5]}, version has {sorted(published)[:5]}"
    )


def _content(reader: StoreReader, rows: int) -> bytes:
    """Observation checksums of the first `rows` rows, and transition checksums of all but the last of them."""
    if rows == 0:
        return b""
    records = reader.records(np.arange(rows))
    # The last row's transition half is written with the next observation; truncation flags of a closed episode
    # are set afterwards, so the executed actions are compared instead of the half's checksum.
    actions = records["transition"]["action"][:-1]
    return bytes(records["observation"].tobytes() + np.ascontiguousarray(actions).tobytes())


def counters(run: RunDir) -> tuple[int, int]:
    """Environment steps and updates."""
    board = run.board()
    return board.get(ENV_STEPS), board.get(UPDATES)


def kill_workers(run: RunDir, names: Sequence[str]) -> None:
    """SIGKILL to single workers, found by the board."""
    for name in names:
        pid = run.board().pid(name)
        if pid > 0:
            os.kill(pid, signal.SIGKILL)
