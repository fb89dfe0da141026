"""From the hand on a device to the rows of the store: pretended hardware, the simulated arm, the real actor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rl.build import make_samplers, make_schema
from rl.evaluation import Evaluation
from rl.replay.reader import StoreReader
from rl.replay.writer import StoreWriter
from rl.runtime.board import Board
from rl.runtime.weights import WeightsDirectory
from rl.workers.actor import ActorConfig, ActorWorker
from rl.workers.pacing import ActorWaits, PacingConfig
from rl.workers.ports import HUMAN, OPERATOR_STOP, POLICY, TARGET_ENV_STEPS
from robot.factory import ObsKind, RobotConfig, make_robot_env
from robot.interfaces import TeleopEvent
from robot.teleop.window import load_pygame
from robot.types import Float32, Observation, Source
from robot.wrappers import HumanIntervention
from tests.robot.teleop_devices import GamepadPuppet, KeyboardPuppet, Puppet, SpaceMousePuppet

WISH = np.array([0, 0.3, 0, 0, 0, 0, 0], np.float32)


class Policy:
    """Always the same wish, so that a row shows who led it."""

    def act(self, observation: Observation, *, noise: Float32 | None = None) -> Float32:
        return WISH.copy()

    def load_tensors(self, tensors: Any) -> None: ...


class Session:
    """One actor with a person at a device; `play` does one thing per step with the hand."""

    def __init__(self, path: Path, puppet: Puppet) -> None:
        self.puppet = puppet
        self.env = make_robot_env(RobotConfig(obs=ObsKind.STATE))
        self.path = path
        self.metrics: dict[str, float] = {}
        self.board = Board(path / "board.bin", lambda: 1.0)
        self.board.set(TARGET_ENV_STEPS, 1000)
        weights = WeightsDirectory(path / "weights")
        weights.publish({"v": torch.zeros(1)}, updates=0)
        self.actor = ActorWorker(
            HumanIntervention(self.env, puppet.teleop),
            self.env,
            Policy(),
            StoreWriter(path / "real", make_schema(self.env)),
            weights,
            self.board,
            ActorConfig(max_env_steps=1000, eval_every_env_steps=0),
            PacingConfig(actor_waits=ActorWaits.NEVER),
            warm_updates=0,
            first_seed=0,
            hold=self.env.hold,
            save_state=lambda _state: None,
        )

    def play(self, hand: Sequence[Callable[[], None] | None]) -> list[str]:
        self.actor.step()  # begins the episode
        doing = []
        for move in hand:
            if move is not None:
                move()
            result = self.actor.step()
            doing.append(result.doing)
            self.metrics |= result.metrics
            self.puppet.clock.advance(0.101)
        return doing

    def rows(self):  # type: ignore[no-untyped-def]
        self.actor.close()
        reader = StoreReader(self.path / "real")
        return reader, reader.episode(0)


@pytest.fixture(params=[KeyboardPuppet, GamepadPuppet, SpaceMousePuppet])
def session(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Session]:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    monkeypatch.setenv("SDL_AUDIODRIVER", "dummy")
    pygame = load_pygame()
    session = Session(tmp_path, request.param(pygame, monkeypatch))
    yield session
    session.puppet.teleop.close()
    session.env.close()
    pygame.quit()


def test_k_corrected_steps_are_k_correction_rows_and_k_more_demonstrations(session: Session) -> None:
    hand = session.puppet
    # Two steps of the policy, four pushed, three of hold-off that still are the person's, then the policy again.
    doing = session.play(
        [None, None, hand.push_away, hand.push_away, hand.push_away, hand.push_away, hand.let_go, *[None] * 4]
    )
    reader, episode = session.rows()
    led = np.array([False, False, *[True] * 6, False, False, False])
    np.testing.assert_array_equal(episode.intervened, led)
    np.testing.assert_array_equal(episode.source == Source.CORRECTION, led)
    assert doing == [HUMAN if person else POLICY for person in led]
    np.testing.assert_array_equal(episode.requested_action, np.tile(WISH, (11, 1)))
    pushed = episode.action[2:6, 0]
    assert (pushed > 0.5).all() and not np.abs(episode.action[6:8, :6]).max() > 1e-3
    np.testing.assert_allclose(episode.action[~led, 1], 0.3, atol=0.02)
    with StoreWriter(session.path / "demo", reader.schema):
        pass
    shares = make_samplers(session.path / "real", session.path / "demo", "demo", "online")
    assert (shares["demo"].size, shares["online"].size) == (6, 11)


def test_a_success_key_ends_that_very_row_with_reward_one(session: Session) -> None:
    hand = session.puppet
    session.play([None, hand.push_away, lambda: hand.say(TeleopEvent.SUCCESS)])
    reader, episode = session.rows()
    assert len(reader.episodes()) == 1 and reader.episodes()[0].success
    assert episode.reward.tolist() == [0.0, 0.0, 1.0]
    assert episode.terminated.tolist() == [False, False, True] and not episode.truncated.any()
    assert session.metrics["actor/correction_rate"] == pytest.approx(2 / 3)


def test_a_device_pulled_in_mid_correction_leaves_true_rows(session: Session) -> None:
    hand = session.puppet

    def pull() -> None:
        hand.unplug()
        if isinstance(hand, KeyboardPuppet):
            hand.let_go()  # keys are released when the window loses the focus

    session.play([None, hand.push_away, hand.push_away, pull, *[None] * 4])
    _, episode = session.rows()
    assert episode.intervened[:3].tolist() == [False, True, True] and not episode.intervened[-2:].any()
    after = episode.action[3:]
    person = episode.intervened[3:]
    assert np.abs(after[person][:, :6]).max(initial=0.0) < 1e-3  # whose hand is gone moves nothing
    np.testing.assert_allclose(after[~person][:, 1], 0.3, atol=0.02)
    np.testing.assert_array_equal(episode.source == Source.CORRECTION, episode.intervened)


def test_a_discarded_episode_is_never_sampled_and_stop_ends_the_run(session: Session) -> None:
    hand = session.puppet
    session.play([hand.push_away, lambda: hand.say(TeleopEvent.DISCARD)])
    session.play([hand.let_go, lambda: hand.say(TeleopEvent.STOP)])
    reader, _ = session.rows()
    assert [info.discarded for info in reader.episodes()] == [True, False]
    assert session.board.get(OPERATOR_STOP) == 1
    before = session.env.robot.clock.now()
    assert all(session.actor.step().waiting == "stop requested" for _ in range(3))
    assert (
        session.env.robot.clock.now() == before
    )  # no reset moves the arm before the runtime has seen the stop
    with StoreWriter(session.path / "demo", reader.schema):
        pass
    shares = make_samplers(session.path / "real", session.path / "demo", "demo", "online")
    assert (shares["demo"].size, shares["online"].size) == (0, 2)


def test_a_person_judges_evaluations_and_stops_them_without_leading(session: Session) -> None:
    hand, env = session.puppet, HumanIntervention(session.env, session.puppet.teleop, leads=False)
    shown: list[bool] = []
    evaluation = Evaluation(
        env, Policy(), 10, on_step=lambda _o, info: shown.append(bool(info.get("intervened")))
    )

    def play(*moves: Callable[[], None] | None) -> None:
        evaluation.step()  # the reset
        for move in moves:
            if move is not None:
                move()
            evaluation.step()
            session.puppet.clock.advance(0.101)

    play(hand.push_away, lambda: hand.say(TeleopEvent.SUCCESS))
    hand.let_go()
    play(None, None, lambda: hand.say(TeleopEvent.FAILURE))
    play(None, lambda: hand.say(TeleopEvent.DISCARD))
    assert evaluation.completed == 2 and not evaluation.finished
    play(None, lambda: hand.say(TeleopEvent.STOP))
    assert evaluation.finished and evaluation.stopped
    result = evaluation.result()
    assert (result.successes, result.episodes, result.correction_rate) == (1, 2, 0.0)
    assert dict(result.failures) == {"failure": 1}
    assert len(shown) == 4 + 2 + 3 + 2 + 2 and not any(shown)
