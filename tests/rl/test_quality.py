"""Quality: whole data raises no finding; doubled, shifted, frozen and paused data does, at the right episode."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import lerobot_data as data
import numpy as np
import pytest

from rl.cli import main
from rl.replay.lerobot.importer import import_dataset
from rl.replay.quality import Recording, check, gaps, histogram_bars, stale_frames

STEPS = 60


def recording(number: int) -> Recording:
    """A square that follows the state, on a busy background."""
    rng = np.random.default_rng(number)
    speed = np.abs(np.sin(np.arange(STEPS) / 4.0 + number)) * rng.uniform(0.5, 1.0, STEPS)
    place = np.cumsum(speed)
    frames = np.repeat(rng.integers(0, 255, (1, 40, 300, 3), dtype=np.uint8), STEPS, axis=0)
    for t in range(STEPS):
        at = 5 + round(place[t] * 6)
        frames[t, 10:25, at : at + 15] = 255
    times = np.arange(STEPS) / 10.0
    return Recording(
        number=number,
        state=np.stack([place, -place, np.cos(place)], axis=1),
        action=np.stack([speed[:-1], rng.normal(size=STEPS - 1)], axis=1),
        timestamp=times,
        capture={"side": times - 0.01},
        period=0.1,
        views=["side"],
        frames=lambda view: frames,
    )


def pictures(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Recording], Recording]:
    def damage(whole: Recording) -> Recording:
        frames = change(whole.frames("side"))
        return replace(whole, frames=lambda view: frames)

    return damage


def repeat_some(frames: np.ndarray) -> np.ndarray:
    repeated = frames.copy()
    repeated[21:60:2] = repeated[20:59:2]
    return repeated


DAMAGE = {
    "the pictures seem 3 steps behind": pictures(
        lambda f: np.concatenate([np.repeat(f[:1], 3, axis=0), f[:-3]])
    ),
    "the pictures seem 3 steps ahead of": pictures(
        lambda f: np.concatenate([f[3:], np.repeat(f[-1:], 3, axis=0)])
    ),
    "the picture never changes": pictures(lambda f: np.repeat(f[:1], STEPS, axis=0)),
    "frames repeat while the arm moves": pictures(repeat_some),
    "no entry of the state ever changes": lambda r: replace(r, state=np.ones_like(r.state)),
    "no entry of the action ever changes": lambda r: replace(r, action=np.zeros_like(r.action)),
    "1 gaps": lambda r: replace(r, timestamp=r.timestamp + 0.3 * (np.arange(STEPS) > 30)),
    "images were taken over a period from their row": lambda r: replace(
        r, capture={"side": r.timestamp - 0.25}
    ),
    "the same states and actions as episode 0": lambda r: replace(recording(0), number=1),
    "side: the same pictures as episode 0": lambda r: replace(r, frames=recording(0).frames),
}


def test_whole_data_raises_nothing() -> None:
    assert list(check(recording(number) for number in range(8))) == []


@pytest.mark.parametrize("text", DAMAGE)
def test_damage_is_found_where_it_is(text: str) -> None:
    found = list(check([recording(0), DAMAGE[text](recording(1)), recording(2)]))
    assert any(text in finding.text and finding.episode == 1 for finding in found), found
    assert all(finding.episode == 1 for finding in found)


def test_an_entry_that_never_moves_is_only_noted() -> None:
    def still(number: int) -> Recording:
        whole = recording(number)
        return replace(whole, action=whole.action * [1.0, 0.0])

    (finding,) = check(still(number) for number in range(3))
    assert finding.note and "action entries [1]" in finding.text


def test_the_numbers_of_a_table_row() -> None:
    whole = recording(0)
    assert gaps(whole) == 0 and stale_frames(whole) == 0
    late = whole.timestamp.copy()
    late[[5, 6, 9]] = late[[4, 4, 8]]
    assert stale_frames(replace(whole, capture={"side": late})) == 3
    assert stale_frames(replace(whole, capture={"side": np.full(STEPS, np.nan)})) is None
    assert stale_frames(replace(whole, capture={})) is None
    assert histogram_bars(np.array([[-1.0], [-1.0], [0.0], [1.0]]), np.ones(1)) == "█   ▄   ▄"


def test_show_examines_a_dataset(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = data.write_dataset(tmp_path / "set")
    assert main(["show", f"path={root}", "check=true", f"out={tmp_path / 'out'}", "episode=0"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "LeRobot v3.0, 3 episodes at 10 Hz" in shown and "found" not in shown
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "episode_000000.mp4",
        "episode_000000.png",
    ]
    (root / "data/chunk-000/file-001.parquet").unlink()
    (root / "videos/observation.images.wrist/chunk-000/file-002.mp4").unlink()
    assert main(["show", f"path={root}", "check=true", f"out={tmp_path / 'out'}", "episode=0"]) == 1
    shown = capsys.readouterr().out
    assert "found: episode 1: " in shown and "the file is missing" in shown
    assert "found: episode 2: " in shown and "the video is missing" in shown


def test_show_examines_a_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data.write_dataset(tmp_path / "set")
    import_dataset(tmp_path / "set", tmp_path / "store", data.MAPPING)
    assert main(["show", f"path={tmp_path / 'store'}", "check=true", "columns=2"]) == 0
    shown = capsys.readouterr().out
    assert "19 rows, every checksum holds" in shown and "found" not in shown
