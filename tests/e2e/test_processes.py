"""Real processes: they learn, they are killed, they are interrupted, they fail; nothing recorded is lost."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from rl.metrics import read_metrics
from rl.replay.reader import StoreReader
from rl.runtime.run_dir import RunDir
from rl.workers.ports import ADMITTED
from tests.e2e import harness
from tests.e2e.harness import SMALL

pytestmark = pytest.mark.wall_clock


def _start(tmp_path: Path, *overrides: str):  # type: ignore[no-untyped-def]
    process = harness.start(f"runs_dir={tmp_path}", "name=run", *SMALL, *overrides)
    return process, RunDir(tmp_path / "run")


def _running(run: RunDir, env_steps: int):  # type: ignore[no-untyped-def]
    return lambda: harness.started(run.path)() and harness.counters(run)[0] >= env_steps


def test_killed_workers_are_restarted_and_the_run_reaches_its_end(tmp_path: Path) -> None:
    process, run = _start(tmp_path, "actor.max_env_steps=300")
    for target, names in ((60, ["learner"]), (120, ["actor"])):
        harness.wait_until(_running(run, target), process)
        before = harness.snapshot(run)
        harness.kill_workers(run, names)
        time.sleep(0.5)
        harness.check_survived(run, before)
    code, output = harness.finish(process)
    assert code == 0, output
    assert "learner was killed by SIGKILL" in output and "actor was killed by SIGKILL" in output
    env_steps, updates = harness.counters(run)
    assert env_steps >= 300
    assert updates == run.config.pacing.updates_due(env_steps, 20)
    harness.check_checkpoint_policy(run)
    assert (run.path / "summary.json").exists()


def test_a_killed_tree_resumes_with_the_same_data_and_policy(tmp_path: Path) -> None:
    process, run = _start(tmp_path, "actor.max_env_steps=150")
    harness.wait_until(_running(run, 70), process)
    before = harness.snapshot(run)
    harness.kill_tree(process)
    harness.finish(process)
    harness.check_survived(run, before)
    code, output = harness.finish(harness.start(f"resume={run.path}"))
    assert code == 0, output
    harness.check_survived(run, before)
    reader = StoreReader(run.real)
    assert reader.num_transitions >= 150
    outcomes = [info.outcome.reason.value for info in reader.episodes()]
    assert outcomes.count("recovered") <= 1  # only the episode that was open
    seeds = [r["env_steps"] for r in read_metrics(run.metrics_path) if r["worker"] == "actor"]
    assert seeds == sorted(seeds)


def test_an_exception_ends_everybody_within_ten_seconds(tmp_path: Path) -> None:
    process, run = _start(tmp_path, "agent.lr=1e30", "actor.max_env_steps=500")
    harness.wait_until(lambda: (run.path / "errors" / "learner.txt").exists(), process)
    children = harness.children(process)
    began = time.monotonic()
    code, output = harness.finish(process, timeout=30)
    assert code == 1
    _, alive = psutil.wait_procs(children, timeout=max(0.1, 10 - (time.monotonic() - began)))
    assert not alive
    assert "learner failed: FloatingPointError" in output and "resume=" in output


def test_ctrl_c_ends_cleanly_and_leaves_a_run_that_continues(tmp_path: Path) -> None:
    process, run = _start(tmp_path, "actor.max_env_steps=100000")
    harness.wait_until(_running(run, 50), process)
    os.killpg(process.pid, signal.SIGINT)
    code, output = harness.finish(process, timeout=30)
    assert code == 130, output
    reader = StoreReader(run.real)
    assert reader.episodes()[-1].outcome.reason.value in ("stopped", "success", "timeout")
    env_steps, updates = harness.counters(run)
    assert reader.num_transitions == env_steps
    code, output = harness.finish(
        harness.start(f"resume={run.path}", f"actor.max_env_steps={env_steps + 20}")
    )
    assert code == 0, output
    assert harness.counters(run)[1] > updates


def test_the_arm_holds_within_one_control_step_of_the_learners_death(tmp_path: Path) -> None:
    process, run = _start(
        tmp_path, "actor.max_env_steps=100000", "robot.clock=wall", "pacing.actor_waits=episode"
    )
    harness.wait_until(_running(run, 15), process)
    board = run.board()
    harness.kill_workers(run, ["learner"])
    began = time.monotonic()
    harness.wait_until(lambda: "worker is down" in board.status("actor"), process, timeout=5)
    reaction = time.monotonic() - began
    os.killpg(process.pid, signal.SIGINT)
    harness.finish(process, timeout=30)
    # One control step, the 100 ms that the step under way may take, and the scheduling of a shared machine.
    assert reaction < 0.4, f"the arm held after {reaction:.3f} s"
    assert np.any([i.outcome.reason.value == "stopped" for i in StoreReader(run.real).episodes()])


def test_workers_end_with_their_supervisor(tmp_path: Path) -> None:
    process, run = _start(tmp_path, "actor.max_env_steps=100000")
    harness.wait_until(_running(run, 10), process)
    children = harness.children(process)
    os.kill(process.pid, signal.SIGKILL)
    process.wait(5)
    _, alive = psutil.wait_procs(children, timeout=10)
    assert not alive
    StoreReader(run.real).verify_all()


def test_a_frozen_actor_is_replaced_and_a_paused_learner_costs_nothing(tmp_path: Path) -> None:
    process, run = _start(tmp_path, "actor.max_env_steps=250", "runtime.silent_s=2.5")
    harness.wait_until(_running(run, 40), process)
    before = harness.snapshot(run)
    board = run.board()
    frozen = board.pid("actor")
    os.kill(frozen, signal.SIGSTOP)
    harness.wait_until(lambda: board.pid("actor") not in (0, frozen), process, timeout=30)
    harness.check_survived(run, before)
    paused = board.pid("learner")
    os.kill(paused, signal.SIGSTOP)
    time.sleep(1.0)
    os.kill(paused, signal.SIGCONT)
    code, output = harness.finish(process)
    assert code == 0, output
    assert "actor has been silent" in output
    reader = StoreReader(run.real)
    starts = reader.valid_starts
    steps = reader.records(starts)["transition"]["env_step"]
    np.testing.assert_array_equal(steps, np.arange(len(starts)))  # none lost, none twice


def test_ctrl_c_while_recording_keeps_every_finished_demonstration(tmp_path: Path) -> None:
    out = tmp_path / "demos"
    process = harness.start(f"out={out}", "demos.episodes=100000", "robot.obs=state", command="record")
    harness.wait_until(lambda: (out / "journal.jsonl").exists() and len(_lines(out)) >= 3, process)
    finished = len(_lines(out))
    os.killpg(process.pid, signal.SIGINT)
    code, output = harness.finish(process, timeout=30)
    assert code == 130, output
    reader = StoreReader(out)
    assert reader.num_episodes >= finished
    assert reader.verify_all() == reader.num_rows
    kept = [info for info in reader.episodes() if not info.discarded]
    assert len(kept) >= finished and all(info.success for info in kept)


def _lines(store: Path) -> list[str]:
    return (store / "journal.jsonl").read_text().splitlines()


def test_nothing_imagined_is_used_once_the_world_model_was_killed_and_the_run_goes_on(tmp_path: Path) -> None:
    process, run = _start(
        tmp_path,
        "actor.max_env_steps=100000",
        "learner.log_every=1",
        "synthetic.model=oracle",
        "synthetic.imagination.parallel=4",
        "synthetic.selection.mode=none",
        "synthetic.share.pacing.rule=constant",
        "synthetic.share.pacing.rise_per_100=100",
    )
    harness.wait_until(lambda: _running(run, 60)() and run.board().get(ADMITTED) > 50, process, timeout=150)
    time.sleep(0.5)  # the learner takes some of it
    harness.kill_workers(run, ["world_model"])
    killed, env_steps = time.time(), harness.counters(run)[0]
    harness.wait_until(_running(run, env_steps + 40), process)
    os.killpg(process.pid, signal.SIGINT)
    code, output = harness.finish(process)
    assert code == 130, output
    assert "world_model: killed by SIGKILL; nothing imagined is used until it is back" in output
    records = [r for r in read_metrics(run.metrics_path) if "selection/ratio" in r]
    assert any(r["selection/ratio"] > 0.2 for r in records if r["time"] < killed)
    after = [r for r in records if r["time"] > killed]
    noticed = next(i for i, r in enumerate(after) if r["selection/alive"] == 0.0)
    back = next((i for i, r in enumerate(after) if i > noticed and r["selection/alive"] == 1.0), len(after))
    assert back - noticed > 20, "it went on learning meanwhile"
    assert all(r["selection/ratio"] == 0.0 for r in after[noticed:back])
