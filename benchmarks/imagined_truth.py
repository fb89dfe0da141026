"""What clips that a finished run has imagined and admitted would really have led to: carried out in the simulator.

    OMP_NUM_THREADS=1 python -m benchmarks.imagined_truth runs/closed_loop/runs/press_scarce/full/* [--clips 200]

Clips are drawn evenly from those that are still held; `from_clip` of `of_clips` says how late in the run they begin.
Writes imagined_truth.json beside the results of that experiment, for each run and kind of actions, and for all by where
they begin, with 95% intervals: how often a clip called success succeeds (precision), how many of those that succeed are
called so (recall), and how many that fail are called success (false positives). Then the same of the reward model
alone, without calibration and of one draw of the readings, on each link replaced by the truth of the same actions:
`imagined_...` (none), `true_readings_...`, `true_frames_...`, `true_both_...`. psnr, copy: of the imagined frames, and
of the first one copied, against the true ones. position_mm: of the imagined arm behind the last action from the true
one, on the mean along x, y and z.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.finished_runs import asked
from reward_model.interface import Readings, by_name
from reward_model.labels import label_clips
from rl.imagination.clip import Origin, Start
from rl.imagination.oracle import OracleImaginer
from rl.provenance import RESULTS, header, write
from rl.relived import Relived, held_clips, relived
from rl.replay.reader import StoreReader
from rl.reward_models.loading import load_for_labels
from rl.runtime.given import own_reward_model
from rl.runtime.imagining import layout_seed
from rl.runtime.run_dir import RunDir
from rl.statistics import wilson_interval
from rl.synthetic import ImaginedBy
from robot.factory import make_robot_env
from robot.tasks import POSITION_NAMES
from robot.types import Array, Label
from worldmodel.metrics import psnr

Images = NDArray[np.uint8]  # (T, H, W, 3)
# Says of the frames of a clip by view, and of what the arm read at each (T,) by name, whether they show success.
ShowsSuccess = Callable[[Mapping[str, Images], Readings], bool]
LINKS = ("imagined", "true_readings", "true_frames", "true_both")


@dataclass(frozen=True)
class Told:
    """One clip: where it begins, what it was called, what it leads to, and what the reward model calls it.

    shown: by LINKS whether it calls it success, empty where the run has no reward model. psnr, copy: of its frames
    against the true ones, averaged over steps and views [dB]. apart: (3,) [m] of the last imagined position from the
    true one.
    """

    origin: Origin
    called: bool
    succeeds: bool
    shown: Mapping[str, bool]
    psnr: float
    copy: float
    apart: Array


def main() -> int:
    runs, clips, command = asked("imagined_truth", __doc__, 200)
    experiments = sorted({path.parts[-3] for path in runs})
    if len(experiments) > 1:
        raise SystemExit(f"runs: expected those of one experiment, got {', '.join(experiments)}")
    rows = [row for path in runs for row in measure(path, clips)]
    head = header("imagined_truth", command, ["mujoco"])
    write(RESULTS / "closed_loop" / experiments[0] / "imagined_truth.json", head, rows)
    return 0


def measure(path: Path, count: int) -> list[dict[str, Any]]:
    """One row for each kind of actions, for each origin, and one for all; that alone where a run holds no clip."""
    run = RunDir.open(path)
    env = make_robot_env(run.config.robot, seed=run.config.seed)
    readers = {Origin.DEMO: StoreReader(run.demo), Origin.ONLINE: StoreReader(run.real)}
    simulator = OracleImaginer(env, readers, layout_seed(run.config))
    labels = _reward_model(run, env.proprio_spec.names)
    synthetic = StoreReader(run.synthetic)
    held = held_clips(synthetic)
    evenly = np.unique(np.linspace(0, len(held) - 1, count).round().astype(int)) if held else []
    told: dict[str, list[Told]] = defaultdict(list)
    for index in evenly:
        clip = relived(synthetic, readers, held[index])
        carried_out = _carry_out(simulator, clip, env.proprio_spec.names)
        if carried_out is not None:
            told[clip.kind.value].append(_tell(clip, *carried_out, labels, env.proprio_spec.names))
    env.close()
    every = [one for of in told.values() for one in of]
    begun = {origin: [one for one in every if one.origin is origin] for origin in readers}
    groups = [(kind, "all", clips) for kind, clips in told.items()]
    groups += [("all", origin.name.lower(), clips) for origin, clips in begun.items() if clips]
    whence = {"from_clip": held[0] if held else None, "of_clips": synthetic.num_episodes}
    rows = [
        {"arm": path.parts[-2], "seed": run.config.seed, "actions": kind, "begun": begun_in, **whence}
        | rates(clips)
        for kind, begun_in, clips in (*groups, ("all", "all", every))
    ]
    for row in rows:
        print(row, flush=True)
    return rows


def _reward_model(run: RunDir, proprio_names: Sequence[str]) -> ShowsSuccess | None:
    """None where a run has none."""
    if run.config.synthetic.model is not ImaginedBy.VIDEO:
        return None
    own, given = own_reward_model(run), run.config.synthetic.video.reward_model
    # Runs from before they kept a copy have none.
    path = own if own.exists() or given is None else Path(given)
    model, thresholds = load_for_labels(path, run.config.robot.task, proprio_names, torch.device("cpu"))

    def shows_success(images: Mapping[str, Images], readings: Readings) -> bool:
        score = model.score(
            {view: images[view][None] for view in model.views},
            {name: values[None] for name, values in readings.items()},
        )
        return bool(label_clips(score, thresholds).label[0] == Label.SUCCESS)

    return shows_success


def _carry_out(
    simulator: OracleImaginer, clip: Relived, proprio_names: Sequence[str]
) -> tuple[dict[str, Images], Readings, bool] | None:
    """The frames and readings that the clip's actions lead to, as many as it has, and whether they lead to success.

    None where the simulator cannot tell. A clip that is called success is cut where success has held as long as the
    task asks for, so whether it succeeds is whether it has by its last action.
    """
    told, actions = clip.told, clip.imagined.action
    session = simulator.begin([Start(Origin(told.source_origin), told.source_episode, told.source_step)], 0)
    seen = [session.observations[0]]
    succeeds = False
    for action in actions:
        futures = session.step(action[None])
        if futures.lost[0]:
            return None
        seen.append(futures.observations[0])
        succeeds = futures.truth[0] is Label.SUCCESS
        if futures.over[0]:
            break
    shown = seen[: len(actions) + 1]
    shown += [shown[-1]] * (len(actions) + 1 - len(shown))  # behind the end nothing moves
    views = clip.imagined.images
    return (
        {view: np.stack([observation.images[view] for observation in shown]) for view in views},
        by_name(np.stack([observation.proprio for observation in shown]), proprio_names),
        succeeds,
    )


def _tell(
    clip: Relived,
    true: Mapping[str, Images],
    true_readings: Readings,
    succeeds: bool,
    shows_success: ShowsSuccess | None,
    proprio_names: Sequence[str],
) -> Told:
    imagined, readings = clip.imagined.images, by_name(clip.imagined.proprio, proprio_names)
    shown = zip(LINKS, product((imagined, true), (readings, true_readings)), strict=True)
    last = [[of[name][-1] for name in POSITION_NAMES] for of in (readings, true_readings)]
    return Told(
        origin=Origin(clip.told.source_origin),
        called=clip.label is Label.SUCCESS,
        succeeds=succeeds,
        shown={} if shows_success is None else {link: shows_success(*both) for link, both in shown},
        psnr=float(np.mean([psnr(imagined[v][1:], true[v][1:]) for v in true])),
        copy=float(
            np.mean([psnr(np.broadcast_to(true[v][0], true[v][1:].shape), true[v][1:]) for v in true])
        ),
        apart=np.abs(np.subtract(*last)),
    )


def rates(clips: Sequence[Told]) -> dict[str, Any]:
    """Counts, and rates with their intervals."""
    apart = np.mean([clip.apart for clip in clips], axis=0) * 1e3 if clips else None
    found: dict[str, Any] = {
        "clips": len(clips),
        "success_share": _mean([clip.succeeds for clip in clips]),
        "psnr": _mean([clip.psnr for clip in clips]),
        "copy": _mean([clip.copy for clip in clips]),
        "position_mm": None if apart is None else apart.round(2).tolist(),
    }
    found |= _hits("", [(clip.called, clip.succeeds) for clip in clips])
    for link in LINKS if clips and clips[0].shown else ():
        found |= _hits(f"{link}_", [(clip.shown[link], clip.succeeds) for clip in clips])
    return found


def _hits(prefix: str, clips: Sequence[tuple[bool, bool]]) -> dict[str, Any]:
    """Rates with their intervals of clips (called success, succeeds)."""
    found: dict[str, Any] = {}
    hits = {
        "precision": [succeeds for called, succeeds in clips if called],
        "recall": [called for called, succeeds in clips if succeeds],
        "false_positives": [called for called, succeeds in clips if not succeeds],
    }
    for name, of in hits.items():
        low, high = wilson_interval(sum(of), len(of))
        name = f"{prefix}{name}"
        found |= {name: _mean(of), f"{name}_of": len(of)}
        found |= {f"{name}_low": round(low, 3), f"{name}_high": round(high, 3)}
    return found


def _mean(values: Sequence[float]) -> float | None:
    """None of nothing."""
    return round(float(np.mean(values)), 3) if values else None


if __name__ == "__main__":
    raise SystemExit(main())
