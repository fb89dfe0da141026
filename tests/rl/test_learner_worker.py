"""The learner against counting fakes: warm start, exact shares, pacing, publishing, checkpoints, resume."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rl.replay.mixer import Waiting
from rl.runtime.board import Board
from rl.runtime.weights import WeightsDirectory
from rl.workers.learner import LearnerConfig, LearnerWorker
from rl.workers.pacing import PacingConfig
from rl.workers.ports import COLLECTED, ENV_STEPS, LEARNER_DONE, UPDATES


class FakeAgent:
    def __init__(self) -> None:
        self.calls: list[str] = []

    def behaviour_cloning(self, batch: Any) -> dict[str, float]:
        self.calls.append("bc")
        return {"learner/bc_loss": 1.0}

    def update(self, batch: Any) -> dict[str, float]:
        self.calls.append("update")
        return {"learner/q_mean": 1.0}

    def policy_tensors(self) -> dict[str, torch.Tensor]:
        return {"calls": torch.tensor(len(self.calls))}


class FakeMixer:
    def __init__(self) -> None:
        self.shares: list[dict[str, float]] = []
        self.waiting: Waiting | None = None
        self.online = 1000

    def refresh(self) -> None:
        pass

    def sizes(self) -> dict[str, int]:
        return {"demo": 100, "online": self.online}

    def sample(self, batch_size: int, shares: Mapping[str, float], rng: np.random.Generator, out: Any) -> Any:
        rng.random()
        self.shares.append(dict(shares))
        return self.waiting or "batch"


class Rig:
    def __init__(self, path: Path, **config: Any) -> None:
        self.board, self.weights = Board(path / "board.bin", lambda: 1.0), WeightsDirectory(path / "weights")
        self.agent, self.mixer = FakeAgent(), FakeMixer()
        self.saved: list[tuple[int, Mapping[str, Any]]] = []
        settings = {
            "warm_updates": 4,
            "learning_starts_env_steps": 3,
            "publish_every": 2,
            "checkpoint_every": 5,
        }
        self.learner = LearnerWorker(
            self.agent,
            self.mixer,  # type: ignore[arg-type]
            self.weights,
            self.board,
            LearnerConfig(**(settings | config)),
            PacingConfig(utd_ratio=2.0),
            rng=np.random.default_rng(0),
            batch=None,
            save_checkpoint=lambda updates, state: self.saved.append((updates, state)),
        )

    def run(self, steps: int) -> str:
        for _ in range(steps):
            result = self.learner.step()
        return result.waiting


def test_warm_start_uses_demonstrations_only_then_exact_shares(tmp_path: Path) -> None:
    rig = Rig(tmp_path, bc_updates=2)
    assert "actor" in rig.run(20)
    assert rig.agent.calls == ["bc"] * 2 + ["update"] * 4
    assert rig.mixer.shares == [{"demo": 1.0}] * 6
    rig.board.set(ENV_STEPS, 10)
    rig.run(50)
    assert rig.mixer.shares[6:] == [{"demo": 0.5, "online": 0.5}] * 20


def test_steps_that_were_discarded_are_not_waited_for(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.board.set(ENV_STEPS, 50)
    rig.mixer.online = 0  # all of them lie in a discarded episode
    rig.run(200)
    assert rig.board.get(UPDATES) == 4 + 2 * 50
    assert rig.mixer.shares[-1] == {"demo": 1.0}


def test_updates_never_outrun_the_environment(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.board.set(ENV_STEPS, 7)
    rig.run(100)
    assert rig.board.get(UPDATES) == 4 + 2 * 7


def test_an_empty_share_is_named_and_costs_no_update(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.mixer.waiting = Waiting("demo", 0, 64)
    assert "demo" in rig.run(5)
    assert rig.agent.calls == [] and rig.weights.latest_version() == -1


def test_the_first_policy_appears_after_the_warm_start(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.run(3)
    assert rig.weights.latest_version() == -1
    rig.run(1)
    assert int(rig.weights.load().tensors["calls"]) == 4


def test_a_checkpoint_names_a_published_policy_with_the_same_tensors(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.board.set(ENV_STEPS, 3)
    rig.run(30)
    updates, state = rig.saved[-1]
    assert state["updates"] == updates == 10
    assert int(rig.weights.load(int(state["policy_version"])).tensors["calls"]) == updates


def test_the_end_publishes_and_saves_the_last_update(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.board.set(ENV_STEPS, 3)
    rig.run(30)
    assert rig.board.get(LEARNER_DONE) == 0  # the actor may still be in the middle of its last episode
    rig.board.set(COLLECTED, 1)
    rig.run(1)
    assert rig.board.get(LEARNER_DONE) == 1
    assert rig.saved[-1][0] == 10
    assert int(rig.weights.load().tensors["calls"]) == 10


def test_resume_restores_counters_and_sampling_and_publishes_a_new_version(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.board.set(ENV_STEPS, 3)
    rig.run(30)
    _, state = rig.saved[-1]
    before = rig.weights.latest_version()
    again = Rig(tmp_path)
    again.learner.load_state(state)
    assert again.board.get(UPDATES) == 10
    assert again.weights.latest_version() == before + 1
    assert again.learner.state()["rng"] == state["rng"]


def test_a_clean_stop_saves_what_was_learnt_since_the_last_checkpoint(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.board.set(ENV_STEPS, 1)
    rig.run(30)
    rig.learner.close()
    assert rig.saved[-1][0] == 6
