"""What clips that a finished run has imagined and admitted would really have led to: carried out in the simulator.

    OMP_NUM_THREADS=1 python -m benchmarks.imagined_truth runs/closed_loop/runs/press_scarce/full/* [--clips 200]

Clips are drawn evenly over the whole run, from those that are still held. Writes imagined_truth.json beside the results
of that experiment: for each run and kind of actions how often a clip called success succeeds (precision), how many of
those that succeed are called so (recall), and how many that fail are called success (false positives), with 95%
intervals.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from rl.imagination.clip import Origin, Start
from rl.imagination.oracle import OracleImaginer
from rl.provenance import RESULTS, header, write
from rl.relived import Relived, read_relived
from rl.replay.reader import StoreReader
from rl.runtime.imagining import layout_seed
from rl.runtime.run_dir import RunDir
from rl.statistics import wilson_interval
from robot.factory import make_robot_env, make_task
from robot.types import Label

Pair = tuple[bool, bool]  # called success, succeeds


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--clips", type=int, default=200)
    arguments = parser.parse_args()
    rows = [row for path in arguments.runs for row in measure(path, arguments.clips)]
    experiment = arguments.runs[0].parts[-3]
    runs = " ".join("/".join(("runs", *path.parts[-3:])) for path in arguments.runs)
    command = f"python -m benchmarks.imagined_truth {runs} --clips {arguments.clips}"
    head = header("imagined_truth", command, ["mujoco"])
    write(RESULTS / "closed_loop" / experiment / "imagined_truth.json", head, rows)
    return 0


def measure(path: Path, count: int) -> list[dict[str, Any]]:
    """One row for each kind of actions, and one for all."""
    run = RunDir.open(path)
    env = make_robot_env(run.config.robot, seed=run.config.seed)
    hold = make_task(run.config.robot.task).spec.hold_steps
    readers = {Origin.DEMO: StoreReader(run.demo), Origin.ONLINE: StoreReader(run.real)}
    oracle = OracleImaginer(env, readers, layout_seed(run.config))
    synthetic = StoreReader(run.synthetic)
    held = [number for number in range(synthetic.num_episodes) if synthetic.holds(number)]
    chosen = np.unique(np.linspace(0, len(held) - 1, count).round().astype(int))
    pairs: dict[str, list[Pair]] = defaultdict(list)
    for number in chosen:
        (clip,) = read_relived(run.synthetic, run.demo, run.real, held[number], 1)
        succeeds = _succeeds(oracle, clip, hold)
        if succeeds is not None:
            pairs[clip.kind.value].append((clip.label is Label.SUCCESS, succeeds))
    env.close()
    pairs["all"] = [pair for of in list(pairs.values()) for pair in of]
    rows = [
        {"arm": path.parts[-2], "seed": run.config.seed, "actions": k, **rates(v)} for k, v in pairs.items()
    ]
    for row in rows:
        print(row, flush=True)
    return rows


def _succeeds(oracle: OracleImaginer, clip: Relived, hold: int) -> bool | None:
    """Whether the clip's actions lead to success, and None where the simulator cannot tell.

    A clip is cut where success shows; it counts once it has held, so behind such a clip the arm stands still as long.
    """
    told = clip.told
    start = Start(Origin(told.source_origin), told.source_episode, told.source_step)
    session = oracle.begin([start], 0)
    steps = hold if clip.label is Label.SUCCESS else 0
    still = np.zeros((steps, clip.imagined.action.shape[1]), np.float32)
    for action in np.concatenate([clip.imagined.action, still]):
        futures = session.step(action[None])
        if futures.lost[0]:
            return None
        if futures.truth[0] is Label.SUCCESS:
            return True
        if futures.over[0]:
            return False
    return False


def rates(pairs: list[Pair]) -> dict[str, Any]:
    """Counts and rates of (called success, succeeds)."""
    called = [truth for said, truth in pairs if said]
    true = [said for said, truth in pairs if truth]
    false = [said for said, truth in pairs if not truth]
    found: dict[str, Any] = {"clips": len(pairs), "success_share": round(len(true) / max(1, len(pairs)), 3)}
    for name, hits in (("precision", called), ("recall", true), ("false_positives", false)):
        low, high = wilson_interval(sum(hits), len(hits))
        found[name] = round(sum(hits) / len(hits), 3) if hits else None
        found[f"{name}_low"], found[f"{name}_high"] = round(low, 3), round(high, 3)
    return found


if __name__ == "__main__":
    raise SystemExit(main())
