"""Action following of the truth itself: what a world model that is right would score, and how much the score scatters.

    OMP_NUM_THREADS=1 python -m benchmarks.following --tasks press insert

The score gives each context the actions of another clip. Not all of them can be followed: the finger already rests on
the lever, the block stands in its slot. So the truth scores less than 1; the simulator says how much, and what a model
scores that shows what really followed whatever is commanded. Writes benchmarks/results/following.json.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl.provenance import RESULTS, header, write
from rl.simulated_cell import SimulatedCell, play
from robot.factory import RobotConfig, make_expert, make_robot_env
from robot.sim.expert import ExpertNoise
from robot.types import ACTION_DIM, Clip, Float32
from worldmodel.baselines import CopyLastFrame
from worldmodel.following import action_following
from worldmodel.interface import ActionNormalisation, Context, Imagined, WorldModelSpec

SEED = 71_000_000  # layouts: SEED + episode
EPISODES = 40
HISTORY, STEPS = 1, 4
PROBE_PAIRS = 256  # real steps that the probe is fitted on, as in a run
COUNTS = (24, 64)  # held-out clips
VIEWS = {"press": ["wrist", "side"], "insert": ["wrist", "wrist_zoom"]}
DRAWS = 8  # of the held-out clips, for the scatter


class Truth(CopyLastFrame):
    """The simulator behind the interface of a world model; its contexts are the starts `rows` of the cell.

    instead: (B, n, A), what is carried out whatever is commanded.
    """

    def __init__(
        self,
        spec: WorldModelSpec,
        cell: SimulatedCell,
        rows: NDArray[np.int64],
        instead: Float32 | None = None,
    ) -> None:
        super().__init__(spec)
        self._cell, self._rows, self._instead = cell, rows, instead

    def rollout(self, context: Context, actions: Float32, seed: int = 0) -> Imagined:
        """What follows `actions` (B, n, A) in fact."""
        actions = actions if self._instead is None else self._instead
        done = [self._cell.execute(int(row), one) for row, one in zip(self._rows, actions, strict=True)]
        images = {view: np.stack([one.images[view] for one in done]) for view in self.spec.views}
        return Imagined(images, np.zeros(actions.shape[:2], np.float32), self.version)


def measure(task: str) -> list[dict[str, Any]]:
    """One row for each number of held-out clips."""
    env = make_robot_env(RobotConfig(task=task, image_px=64, views=VIEWS[task]))
    rng = np.random.default_rng(0)
    episodes = []
    for index in range(EPISODES):
        expert = make_expert(env, rng, ExpertNoise(float(rng.uniform(0.1, 0.9))))
        episodes.append(play(env, lambda _, expert=expert: expert.act(), SEED + index))  # type: ignore[misc]
    starts = [
        (index, step)
        for index, episode in enumerate(episodes)
        for step in range(max(0, len(episode.action) - STEPS))
    ]
    cell = SimulatedCell(env, episodes, starts)
    clips = cell.clip(STEPS, HISTORY)
    size = next(iter(clips.images.values())).shape[2:4]
    identity = ActionNormalisation.identity(ACTION_DIM)
    spec = WorldModelSpec(dict.fromkeys(clips.images, size), identity, HISTORY + 1, STEPS)
    rows = []
    for count in COUNTS:
        scores: dict[str, list[float]] = {"truth": [], "ignores": []}
        for _ in range(DRAWS):
            order = rng.permutation(len(starts))
            held_out, probe = (
                take(clips, order[:count]),
                _pairs(take(clips, order[count : count + PROBE_PAIRS])),
            )
            for name, instead in (("truth", None), ("ignores", held_out.action[:, HISTORY:])):
                model = Truth(spec, cell, order[:count], instead)
                scores[name].append(action_following(model, probe, held_out, rng).score)
        for name, found in scores.items():
            rows.append(
                {
                    "task": task,
                    "model": name,
                    "clips": count,
                    "score_mean": round(float(np.mean(found)), 3),
                    "score_std": round(float(np.std(found, ddof=1)), 3),
                    "score_min": round(float(np.min(found)), 3),
                    "draws": DRAWS,
                }
            )
            print(rows[-1], flush=True)
    env.close()
    return rows


def take(clip: Clip, rows: NDArray[np.int64]) -> Clip:
    """Some of the clips."""
    names = ("proprio", "action", "reward", "terminated", "valid", "episode", "step")
    images = {view: frames[rows] for view, frames in clip.images.items()}
    return replace(clip, images=images, **{name: getattr(clip, name)[rows] for name in names})


def _pairs(clip: Clip) -> Clip:
    """The first step behind each start, with its frames: what a probe is fitted on."""
    first, names = clip.history, ("action", "reward", "terminated", "valid")
    return replace(
        clip,
        images={view: frames[:, first : first + 2] for view, frames in clip.images.items()},
        proprio=clip.proprio[:, first : first + 2],
        history=0,
        **{name: getattr(clip, name)[:, first : first + 1] for name in names},
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", nargs="+", default=["press", "insert"])
    options = parser.parse_args()
    rows = [row for task in options.tasks for row in measure(task)]
    head = header(
        "following", f"python -m benchmarks.following --tasks {' '.join(options.tasks)}", ["mujoco", "torch"]
    )
    write(RESULTS / "following.json", head, rows)


if __name__ == "__main__":
    main()
