"""The summary of what was imagined: nothing used has a named reason, and the picture holds what was relived."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from rl.imagined_summary import describe, imagined_anything, shut_gates
from rl.metrics import MetricsLog
from rl.replay.schema import StoreSchema
from rl.replay.writer import StoreWriter
from rl.summary import draw
from robot.types import ProprioSpec

OPEN = {
    "selection/ratio": 0.12,
    "selection/gate_world_model": 0.8,
    "selection/gate_selection": 1.0,
    "selection/gate_calibration": 0.5,
    "selection/alive": 1.0,
    "selection/paced": 0.24,
    "selection/uncertainty": 0.2,
    "selection/used": 700.0,
    "selection/queue_successes": 40.0,
    "selection/queue_failures": 300.0,
}


def worker(**changes: float) -> dict[str, float]:
    return {
        "world_model/generated": 900.0,
        "world_model/admitted": 400.0,
        "world_model/held_out_psnr": 21.0,
        "world_model/held_out_copy_psnr": 20.5,
        "calibration/effective_anchors": 14.0,
        "calibration/closed_too_few_anchors": 1.0,
        "calibration/closed_drift": 0.0,
        **changes,
    }


def test_what_was_used_is_counted() -> None:
    said = describe([worker(), OPEN])
    assert said == "imagined 900 transitions, 400 admitted, 700 used; share of a batch at the end 12.0%"
    assert imagined_anything([OPEN]) and not imagined_anything([{"learner/q_mean": 1.0}])


def test_a_share_of_zero_names_every_gate_that_is_shut_and_why() -> None:
    shut = OPEN | {"selection/ratio": 0.0, "selection/gate_calibration": 0.0, "selection/used": 0.0}
    assert describe([worker(), shut]).endswith(
        "0, as the calibration gate is shut (too few anchors, 14 episodes seen)"
    )
    assert shut_gates([worker(), shut | {"selection/gate_world_model": 0.0}])[0] == (
        "the world-model gate is shut (+0.5 dB over the copied frame, action following not measured)"
    )
    unfed = OPEN | {"selection/gate_selection": 0.0, "selection/queue_successes": 0.0}
    assert shut_gates([unfed]) == [
        "the selection gate is shut (transitions to draw from: 0 successes, 300 failures)"
    ]
    unsure = {"selection/paced": 0.0, "selection/uncertainty": 1.0}
    assert shut_gates([OPEN | unsure | {"selection/alive": 0.0}]) == [
        "the world-model worker does not answer",
        "the policy is too unsure (pacing)",
    ]
    assert shut_gates([OPEN | unsure | {"selection/paced": 0.15}]) == [], (
        "a rule that leaves the unsure a part"
    )
    assert shut_gates([OPEN | {"selection/paced": 0.0}]) == ["too few real steps (pacing)"]
    assert shut_gates([OPEN]) == [], "an open gate is not named"


def test_what_never_came_is_not_called_measured() -> None:
    nothing: dict[str, Any] = {"selection/ratio": 0.0, "selection/gate_world_model": 0.0}
    assert "no version was measured yet" in describe([nothing | {"selection/gate_calibration": 0.0}])
    assert "nothing was labelled yet" in describe([nothing | {"selection/gate_calibration": 0.0}])


def test_the_picture_holds_the_share_and_what_was_relived(tmp_path: Path) -> None:
    spec = ProprioSpec(("x",), *(np.ones(1, np.float32) for _ in range(3)))
    StoreWriter(tmp_path / "real", StoreSchema(task="press", views={}, proprio=spec)).close()
    log = MetricsLog(tmp_path / "metrics.jsonl", lambda: 0.0)
    log.write("learner", 10, 20, OPEN)
    log.write("world_model", 10, 25, worker())
    log.close()
    relived = np.full((64, 256, 3), 200, np.uint8)
    arguments = (tmp_path / "metrics.jsonl", tmp_path / "real", {}, None)
    with_clip = draw(tmp_path / "with.png", "press", *arguments, relived)
    without = draw(tmp_path / "without.png", "press", *arguments)
    assert with_clip.stat().st_size > without.stat().st_size > 1000
