"""Speed and safety of the replay store: sampling from the page cache, appending, size, and killed writers.

    python -m benchmarks.replay

Two cameras. Sampling fills a preallocated batch (observations and next observations); appending counts the sync at
each episode's end. Medians with min and max over repeats; CPU time beside wall time, because machines are shared.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from rl.provenance import RESULTS, header, write
from rl.replay.arrays import empty_batch
from rl.replay.journal import EndReason, EpisodeOutcome
from rl.replay.mixer import Mixer
from rl.replay.reader import StoreReader
from rl.replay.sampler import PartConfig, TransitionSampler
from rl.replay.schema import StoreSchema
from rl.replay.store import RowCount, StorePaths
from rl.replay.writer import StoreWriter
from robot.types import ACTION_DIM, Observation, ProprioSpec, Transition

VIEWS = ("front", "wrist")
PROPRIO = 24
EPISODE_STEPS = 100


def schema(image_px: int) -> StoreSchema:
    zeros, ones = np.zeros(PROPRIO, np.float32), np.ones(PROPRIO, np.float32)
    spec = ProprioSpec([f"x{index}" for index in range(PROPRIO)], zeros, ones, zeros)
    return StoreSchema(task="benchmark", views=dict.fromkeys(VIEWS, (image_px, image_px)), proprio=spec)


class Episodes:
    """Appends episodes of random images and keeps the time that each took, in milliseconds per step."""

    def __init__(self, writer: StoreWriter, image_px: int) -> None:
        self._writer = writer
        rng = np.random.default_rng(0)
        self._images = rng.integers(0, 256, (64, image_px, image_px, 3), dtype=np.uint8)
        self._time = 0

    def append(self) -> float:
        observations = [self._observe() for _ in range(EPISODE_STEPS + 1)]
        action = np.zeros(ACTION_DIM, np.float32)
        steps = [
            Transition(now, action, action, 0.0, after, terminated=False, truncated=after is observations[-1])
            for now, after in itertools.pairwise(observations)
        ]
        start = time.perf_counter()
        self._writer.begin_episode(observations[0])
        for step in steps:
            self._writer.add(step)
        self._writer.end_episode(EpisodeOutcome(EndReason.TIMEOUT))
        return (time.perf_counter() - start) * 1e3 / EPISODE_STEPS

    def _observe(self) -> Observation:
        self._time += 1
        images = {v: self._images[(self._time + 31 * k) % len(self._images)] for k, v in enumerate(VIEWS)}
        return Observation(images, np.full(PROPRIO, self._time, np.float32), self._time * 0.1)


def sampling(path: Path, batch: int, repeats: int) -> dict[str, Any]:
    """Transitions per second of wall and of CPU time."""
    mixer = Mixer({"online": TransitionSampler([PartConfig(StoreReader(path))])})
    rng, out = np.random.default_rng(0), empty_batch(mixer.schema, batch)
    batches = max(4, 5120 // batch)
    wall, cpu = [], []
    for _ in range(repeats + 2):  # two to fault the pages in
        start, cpu_start = time.perf_counter(), time.process_time()
        for _ in range(batches):
            mixer.sample(batch, {"online": 1.0}, rng, out)
        wall.append(batch * batches / (time.perf_counter() - start))
        cpu.append(batch * batches / (time.process_time() - cpu_start))
    return {
        "batch": batch,
        "transitions_per_s": round(statistics.median(wall[2:])),
        "min": round(min(wall[2:])),
        "max": round(max(wall[2:])),
        "transitions_per_cpu_s": round(statistics.median(cpu[2:])),
    }


def write_until_killed(path: Path, image_px: int) -> None:
    with StoreWriter(path, schema(image_px)) as writer:
        episodes = Episodes(writer, image_px)
        while True:
            episodes.append()


def kill(path: Path, image_px: int, kills: int) -> dict[str, Any]:
    """Kill a writer `kills` times; what its stores had published, and what recovery found."""
    context = multiprocessing.get_context("spawn")
    rng = np.random.default_rng(0)
    recovered = torn = lost = 0
    for life in range(kills):
        store = path / str(life)
        child = context.Process(target=write_until_killed, args=(store, image_px))
        child.start()
        count = StorePaths(store).count
        while not (count.exists() and RowCount(count, writable=False).value > rng.integers(50, 500)):
            time.sleep(0.001)
        child.kill()
        child.join()
        published = RowCount(count, writable=False).value
        with StoreWriter(store, schema(image_px)) as writer:
            report = writer.recovery
        recovered += report.recovered_rows
        torn += report.torn_rows
        lost += max(0, published - StoreReader(store).verify_all())
    return {"kills": kills, "recovered_rows": recovered, "torn_rows": torn, "lost_rows": lost}


def measure(image_px: int, batches: list[int], options: argparse.Namespace) -> list[dict[str, Any]]:
    """The rows of one image size: one for each batch size."""
    with tempfile.TemporaryDirectory(dir=options.directory) as root:
        path = Path(root) / "real"
        with StoreWriter(path, schema(image_px)) as writer:
            episodes = Episodes(writer, image_px)
            append = [episodes.append() for _ in range(options.transitions // EPISODE_STEPS)]
        stored = sum(file.stat().st_size for file in path.glob("segments/*/*"))
        per_transition = stored / options.transitions
        shared = {
            "append_ms": round(statistics.median(append), 4),
            "append_ms_min": round(min(append), 4),
            "append_ms_max": round(max(append), 4),
            "bytes_per_transition": round(per_transition),
            "gb_per_100k_transitions": round(per_transition * 1e5 / 1e9, 2),
            "stored_transitions": options.transitions,
            **kill(Path(root) / "killed", image_px, options.kills),
        }
        return [
            {"image_px": image_px, "cameras": len(VIEWS), **sampling(path, batch, options.repeats), **shared}
            for batch in batches
        ]


def main() -> None:
    """Measure every row and write the results file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--transitions", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--core", type=int, default=0, help="the one core to run on")
    parser.add_argument(
        "--directory", type=Path, default=None, help="where the stores lie (default: temporary)"
    )
    parser.add_argument("--out", type=Path, default=RESULTS / "replay.json")
    options = parser.parse_args()
    head = header("replay", "python -m benchmarks.replay", ("numpy",))
    os.sched_setaffinity(0, {options.core})
    rows = []
    for image_px in (64, 128):
        rows += measure(image_px, [64, 256], options)
        print(*rows[-2:], sep="\n")
    write(options.out, head, rows)


if __name__ == "__main__":
    main()
