"""Adaptation beside a working robot: when to train, and which weights to trust (champion and challenger)."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from worldmodel.interface import ClipSource, WorldModel, WorldModelError


@dataclass(frozen=True)
class ScheduleConfig:
    """A first fit on the demonstrations, then `steps` updates after every `every_episodes` new episodes."""

    fit_steps: int = 1500
    every_episodes: int = 5
    steps: int = 200

    def __post_init__(self) -> None:
        if min(self.fit_steps, self.every_episodes, self.steps) < 1:
            raise ValueError(f"world model schedule: expected all >= 1, got {self}")

    def due(self, new_episodes: int, updates: int) -> int:
        """Updates to do now, given all episodes since the first fit and all updates ever; 0 for none.

        A worker that fell behind does one round and not all that it missed: the newest episodes are what counts.
        """
        if updates < self.fit_steps:
            return self.fit_steps - updates
        rounds = new_episodes // self.every_episodes
        return min(self.steps, max(0, self.fit_steps + rounds * self.steps - updates))


@dataclass(frozen=True)
class Scores:
    """How a model does on held-out clips. psnr: dB. following: does the commanded motion appear; None: not measured.

    extra: what else the published file shall say.
    """

    psnr: float
    following: float | None = None
    extra: Mapping[str, float] = field(default_factory=dict)

    def named(self) -> dict[str, float]:
        """As they travel in a version's metadata."""
        following = {} if self.following is None else {"following": self.following}
        return {"psnr": self.psnr, **following, **self.extra}


@dataclass(frozen=True)
class ChampionConfig:
    """max_psnr_drop [dB], max_following_drop: how much worse than the champion a challenger may score.

    Of two models on the same 24 clips, drawn anew, the difference in action following scatters by .05.
    """

    max_psnr_drop: float = 0.3
    max_following_drop: float = 0.05

    def __post_init__(self) -> None:
        if self.max_psnr_drop < 0 or self.max_following_drop < 0:
            raise ValueError(f"champion: expected drops >= 0, got {self}")

    def objection(self, challenger: Scores, champion: Scores | None, following_enough: float = 1.0) -> str:
        """Why the challenger is not published; "" where it is. A score that is not finite is never published.

        following_enough: action following that counts as complete. The truth itself does not score 1, since not every
        action of another clip can be followed; a champion that scores more than it need not be matched.
        """
        if not math.isfinite(challenger.psnr) or not math.isfinite(challenger.following or 0.0):
            return f"its scores are not finite: psnr {challenger.psnr}, following {challenger.following}"
        if champion is None:
            return ""
        if challenger.psnr < champion.psnr - self.max_psnr_drop:
            return f"psnr fell from {champion.psnr:.2f} to {challenger.psnr:.2f} dB, more than {self.max_psnr_drop:g}"
        if champion.following is not None:
            if challenger.following is None:
                return "its action following was not measured, that of the champion was"
            if challenger.following < min(champion.following, following_enough) - self.max_following_drop:
                return (
                    f"action following fell from {champion.following:.3f} to {challenger.following:.3f}, "
                    f"more than {self.max_following_drop:g} below {min(champion.following, following_enough):.3f}"
                )
        return ""


class Versions:
    """`<directory>/<version:06d>.safetensors`, the newest `keep` of them; numbers never repeat."""

    def __init__(self, directory: Path, keep: int = 2) -> None:
        if keep < 1:
            raise ValueError(f"versions: expected keep >= 1, got {keep}")
        self.directory, self._keep = directory, keep

    def path(self, version: int) -> Path:
        return self.directory / f"{version:06d}.safetensors"

    def all(self) -> list[int]:
        """Published versions that are still here, oldest first."""
        return sorted(int(path.stem) for path in self.directory.glob("[0-9]*.safetensors"))

    def latest(self) -> int:
        """The newest version, 0 before the first."""
        return max(self.all(), default=0)

    def newest_path(self) -> Path:
        """The file of the newest version; raises WorldModelError where none was published."""
        if not self.all():
            raise WorldModelError(
                f"{self.directory}: no world model was published here; run `groundhog finetune-world-model` first"
            )
        return self.path(self.latest())

    def publish(self, model: WorldModel, scores: Scores, learned: Collection[str] | None = None) -> int:
        """Write `model` as the next version, under which it goes from now on; the oldest make room.

        learned: names of the episodes that it has learned from, None: not known.
        """
        model.version = self.latest() + 1
        model.save(self.path(model.version), scores.named(), learned)
        for old in self.all()[: -self._keep]:
            self.path(old).unlink()
        return model.version


@dataclass(frozen=True)
class Verdict:
    """The outcome of a contest. version: of the champion after it. objection: why the challenger was refused."""

    published: bool
    version: int
    challenger: Scores
    champion: Scores | None
    objection: str


class Champion:
    """Trains a challenger and publishes it only if held-out scores do not fall; a refused one starts over.

    challenger: a new model, or the newest version again. judge: scores a model on held-out clips, both contestants
    on the same ones. load: reads a version's file. learned: what the challenger has learned from by now, see
    `WorldModel.save`. following_enough: see `ChampionConfig.objection`.
    """

    def __init__(
        self,
        challenger: WorldModel,
        versions: Versions,
        judge: Callable[[WorldModel], Scores],
        load: Callable[[Path], WorldModel],
        config: ChampionConfig | None = None,
        learned: Callable[[], Collection[str] | None] = lambda: None,
        following_enough: float = 1.0,
    ) -> None:
        self.challenger, self.versions, self._learned = challenger, versions, learned
        self._judge, self._load, self._config = judge, load, config or ChampionConfig()
        self._enough = following_enough

    def train(self, clips: ClipSource, steps: int, rng: np.random.Generator) -> dict[str, float]:
        """`steps` updates of the challenger; the published versions stay as they are."""
        return self.challenger.adapt(clips, steps, rng)

    def measure(self) -> Scores:
        """Of the newest version, on held-out clips; raises WorldModelError where there is neither."""
        return self._judge(self._load(self.versions.newest_path()))

    def compete(self) -> Verdict:
        """Judge challenger and champion; publish the challenger, or replace it by the champion."""
        scores = self._judge(self.challenger)
        newest = self.versions.latest()
        reigning = self._load(self.versions.path(newest)) if newest else None
        standing = None if reigning is None else self._judge(reigning)
        objection = self._config.objection(scores, standing, self._enough)
        if objection:
            if reigning is None:
                raise WorldModelError(f"the first version was not published: {objection}")
            self.challenger = reigning
            return Verdict(False, newest, scores, standing, objection)
        version = self.versions.publish(self.challenger, scores, self._learned())
        return Verdict(True, version, scores, standing, "")
