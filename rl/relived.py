"""Imagined clips beside the real steps that they branched from: as a table, and as pictures of both."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image as PilImage
from PIL import ImageDraw
from rich.table import Table

from rl.imagination.clip import Origin
from rl.pictures import HUMAN, POLICY, TILE, strip
from rl.replay.reader import StoreReader
from rl.replay.rows import provenance_of
from rl.selection.admission import Admission
from robot.types import Episode, Image, Label, Provenance
from worldmodel.counterfactual import BranchKind

CAPTION = 18  # pixels above each strip
COLUMNS = 9  # a clip of 8 steps in full


@dataclass(frozen=True)
class Relived:
    """Clip `number` of a synthetic store, where it came from, and the real episode from the same state on.

    first: the step of `real` in which both begin. label: of the clip. policy: version that acted in it.
    """

    number: int
    imagined: Episode
    real: Episode
    first: int
    label: Label
    policy: int
    told: Provenance

    @property
    def kind(self) -> BranchKind:
        return list(BranchKind)[self.told.kind]

    @property
    def source(self) -> str:
        """In words: store, episode and step."""
        return f"{Origin(self.told.source_origin).name.lower()} {self.told.source_episode}:{self.told.source_step}"

    @property
    def real_outcome(self) -> str:
        """What really came of the steps that the clip covers."""
        stop = self.first + len(self.imagined)
        reached = self.real.terminated[self.first : stop] & (self.real.reward[self.first : stop] > 0)
        return "success" if reached.any() else "no success"


def read_relived(synthetic: Path, demo: Path, real: Path, last: int, count: int) -> list[Relived]:
    """At most `count` clips up to the `last`, negative from the end; those that are still held."""
    readers = {Origin.DEMO: StoreReader(demo), Origin.ONLINE: StoreReader(real)}
    reader = StoreReader(synthetic)
    held = held_clips(reader)
    chosen = [number for number in held if number <= last] if last >= 0 else held[: len(held) + last + 1]
    return [relived(reader, readers, number) for number in chosen[-count:]]


def held_clips(synthetic: StoreReader) -> list[int]:
    """The clips that were not pruned, oldest first."""
    infos = synthetic.episodes()
    return [info.episode for info in infos if synthetic.holds(info.episode) and not info.discarded]


def relived(reader: StoreReader, readers: Mapping[Origin, StoreReader], number: int) -> Relived:
    """Clip `number` of a synthetic store; readers: of the stores that it may have branched from."""
    info = reader.episodes()[number]
    record = reader.records(np.array([info.first_row]))[0]
    told = provenance_of(record)
    return Relived(
        number=number,
        imagined=reader.episode(number),
        real=readers[Origin(told.source_origin)].episode(told.source_episode),
        first=told.source_step,
        label=Label(int(record["transition"]["label"])),
        policy=int(record["transition"]["policy_version"]),
        told=told,
    )


def relived_table(title: str, clips: Sequence[Relived]) -> Table:
    """One line per clip: where it began and who acted, what it was judged to be, what the critic said, all versions."""
    table = Table(title=title, title_justify="left")
    for name in (
        "clip", "from", "actions", "steps", "imagined", "really", "score", "calibrated", "risk", "Q", "Q of source",
        "policy", "world", "reward", "calibrator", "decision",
    ):  # fmt: skip
        table.add_column(name, justify="right")
    for clip in clips:
        told = clip.told
        table.add_row(
            str(clip.number),
            clip.source,
            clip.kind.value,
            str(len(clip.imagined)),
            clip.label.name.lower(),
            clip.real_outcome,
            _number(told.success_prob),
            _number(told.calibrated),
            _number(told.risk),
            _number(told.q),
            _number(told.source_q),
            str(clip.policy),
            *(_version(v) for v in (told.world_model_version, told.reward_model_version, told.calibrator_version)),
            Admission(told.admission).name.lower(),
        )  # fmt: skip
    return table


def side_by_side(clips: Sequence[Relived], columns: int = COLUMNS) -> Image | None:
    """Each clip as two strips, what really followed above what was imagined; None without pictures."""
    panels = [panel for clip in clips for panel in _panels(clip, columns)]
    if not panels:
        return None
    width = max(columns * TILE, *(panel.shape[1] for panel in panels))
    return np.concatenate([np.pad(p, ((0, 0), (0, width - p.shape[1]), (0, 0))) for p in panels])


def _panels(clip: Relived, columns: int) -> list[Image]:
    if not clip.imagined.images:
        return []
    frames = len(clip.imagined) + 1
    real = {view: _cut(shown, clip.first, frames) for view, shown in clip.real.images.items()}
    truth = f"real     {clip.source}  {clip.real_outcome}"
    verdict = (
        f"imagined  clip {clip.number}  {clip.kind.value}  {clip.label.name.lower()}"
        f"  score {_number(clip.told.success_prob)}  Q {_number(clip.told.q)} ({_number(clip.told.source_q)})"
    )
    colour = POLICY if clip.label is Label.SUCCESS else HUMAN
    return [
        _caption(truth, strip(real, columns), (200, 200, 200)),
        _caption(verdict, strip(clip.imagined.images, columns), colour),
    ]


def _cut(frames: NDArray[np.uint8], first: int, count: int) -> NDArray[np.uint8]:
    """`count` frames from `first` on; black ones where the real episode had ended."""
    cut = frames[first : first + count]
    return np.pad(cut, ((0, count - len(cut)), (0, 0), (0, 0), (0, 0)))


def _caption(text: str, picture: Image, colour: tuple[int, int, int]) -> Image:
    band = PilImage.new("RGB", (max(picture.shape[1], 4 * TILE), CAPTION))
    ImageDraw.Draw(band).text((4, 3), text, fill=colour)
    wide = np.pad(picture, ((0, 0), (0, band.width - picture.shape[1]), (0, 0)))
    return np.concatenate([np.asarray(band), wide])


def _number(value: float) -> str:
    """Nobody asked for it: a dash, not a zero."""
    return f"{value:.2f}" if math.isfinite(value) else "-"


def _version(value: int) -> str:
    return str(value) if value >= 0 else "-"
