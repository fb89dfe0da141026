"""What the critic says of a clip is compared with what it says of its source over the same steps."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from replay_data import action, observation, record, schema

from rl.imagination.clip import Origin, Start
from rl.imagination.starts import StartConfig, StartPool
from rl.imagination.valuing import ClipValues
from rl.replay.reader import StoreReader
from rl.replay.writer import StoreWriter


class ByStep:
    """Values the state of step t with .9 to the power of the steps that are left of 8."""

    def q(self, batch: Any) -> Any:
        return 0.9 ** (8.0 - batch.proprio[:, 1])


def test_both_means_are_over_the_steps_that_both_have(tmp_path: Path) -> None:
    """A source that ends after two steps is not compared with the eight of a clip that goes on."""
    with StoreWriter(tmp_path / "demo", schema()) as demo, StoreWriter(tmp_path / "real", schema()):
        record(demo, 8)
    readers = [StoreReader(tmp_path / name) for name in ("demo", "real")]
    pool = StartPool(*readers, StartConfig())
    values = ClipValues(ByStep(), pool, schema(), steps=8, discount=0.9, half_life=10.0)  # type: ignore[arg-type]
    clip = SimpleNamespace(
        start=Start(Origin.DEMO, 0, 6),
        observations=[observation(0, 6 + t) for t in range(9)],
        action=np.stack([action(0, t) for t in range(8)]),
    )
    (value,) = values.of([SimpleNamespace(clip=clip, length=8)])  # type: ignore[list-item]
    assert value.q == pytest.approx(np.mean([0.9**2, 0.9]))
    assert value.q == pytest.approx(value.source_q), (
        "the same states, whatever follows behind the source's end"
    )
    assert value.first_q == pytest.approx(0.9**2)
