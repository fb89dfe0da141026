"""Labels: imagined clips -> what the critic may learn from them; a clip is cut at its success."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from reward_model.calibration.anchors import AnchorKind, AnchorPair, ScorerKey
from reward_model.calibration.calibrator import Calibrator
from reward_model.calibration.gates import Closure
from reward_model.interface import Images, RewardModel, by_name
from reward_model.labels import Labels, Thresholds, label_clips
from rl.imagination.clip import ImaginedClip, Origin, Start
from robot.tasks import PROPRIO_NAMES
from robot.types import Array, Float32, Label
from worldmodel.counterfactual import BranchKind


@dataclass(frozen=True)
class LabelledClip:
    """An imagined clip with its outcome. length: steps that count; behind a success nothing does.

    SUCCESS: the last of them reaches it, reward 1, terminal. FAILURE: none does; the clip is cut off and goes on in
    the critic's mind, it is no terminal failure. success_prob, calibrated: scores, NaN where nobody scored.
    agreed: every judgement gave this label; not so where the clip begins in what was judged a success.
    """

    clip: ImaginedClip
    label: Label
    length: int
    success_prob: float = float("nan")
    calibrated: float = float("nan")
    reward_model_version: int = -1
    calibrator_version: int = -1
    agreed: bool = True

    def discounted_return(self, discount: float) -> float:
        """Of the labels, from the first step on."""
        return discount ** (self.length - 1) if self.label is Label.SUCCESS else 0.0


class Labeller(Protocol):
    """Judges imagined clips."""

    @property
    def gate(self) -> float:
        """How far its labels are trusted, in [0, 1]."""

    @property
    def newcomer(self) -> bool:
        """Whether the gate is shut only because the scorer has just been replaced."""

    def trust(self, version: int) -> float:
        """How far labels of what this world model imagined are trusted by now, in [0, 1]."""

    def wants_replays(self, version: int, episodes: int) -> bool:
        """Whether labels of what this world model imagines lack evidence that replays of so many episodes can give."""

    def metrics(self) -> dict[str, float]:
        """What the gate rests on."""

    def label(self, clips: Sequence[ImaginedClip]) -> list[LabelledClip]:
        """One label per clip, UNKNOWN where it is not known; unknown is never failure."""

    def state(self) -> dict[str, Any]:
        """JSON-able: what it has learned about its labels."""

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from `state()`."""


def scorer_version(reward_model: int, world_model: int) -> str:
    """What a calibrator calls the scores of a reward model on what a world model showed."""
    return f"reward-{reward_model}/world-{world_model}"


class TruthLabeller:
    """Takes the simulator's word: for the ceiling, and to find out what labels cost."""

    gate = 1.0
    newcomer = False

    def trust(self, version: int) -> float:
        """Always."""
        return 1.0

    def wants_replays(self, version: int, episodes: int) -> bool:
        """Never: the truth needs no evidence."""
        return False

    def metrics(self) -> dict[str, float]:
        """The truth needs no calibration."""
        return {}

    def label(self, clips: Sequence[ImaginedClip]) -> list[LabelledClip]:
        """SUCCESS at the first step that reached it; UNKNOWN where the simulator said nothing of some step."""
        return [self._one(clip) for clip in clips]

    def state(self) -> dict[str, Any]:
        """The truth learns nothing."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Nothing to continue from."""

    @staticmethod
    def _one(clip: ImaginedClip) -> LabelledClip:
        reached = np.flatnonzero([truth is Label.SUCCESS for truth in clip.truth])
        if len(reached):
            return LabelledClip(clip, Label.SUCCESS, int(reached[0]) + 1)
        known = all(truth is Label.FAILURE for truth in clip.truth)
        return LabelledClip(clip, Label.FAILURE if known else Label.UNKNOWN, len(clip))


class RewardModelLabeller:
    """A reward model looks at the imagined frames; what it says of replays, whose outcome is known, calibrates it.

    Labels come from its raw scores and its own thresholds, which were chosen on held-out real episodes. Once a map is
    learnt, the calibrated score has to agree: success needs one of at least `confidence`, failure of at most
    1 - `confidence`, and anything else is unknown. So is what becomes of a first frame that already looks like success:
    it is real and the episode went on behind it, so either the model errs there, or success was about to be declared
    and the clip says nothing of the actions. Such a clip is no evidence on labels either when it is a replay. The
    calibrator's gate says how far they are trusted at all.

    unseen: whether the version that imagines has learned nothing from the episode of a start, so that its replay is a
    test and no rehearsal. proprio_names: of the entries that the clips' observations hold.
    """

    def __init__(
        self,
        model: RewardModel,
        thresholds: Thresholds,
        calibrator: Calibrator,
        task: str,
        unseen: Callable[[Start], bool] = lambda start: False,
        confidence: float = 0.5,
        proprio_names: Sequence[str] = PROPRIO_NAMES,
    ) -> None:
        self._names = proprio_names
        self._model, self._thresholds, self._confidence = model, thresholds, confidence
        self.calibrator, self._task, self._unseen = calibrator, task, unseen
        self._scorer: ScorerKey | None = None  # of the newest labels

    @property
    def gate(self) -> float:
        """How far labels of the newest scorer are trusted, in [0, 1]; 0 until enough replays have been seen."""
        return 0.0 if self._scorer is None else self.calibrator.gate(self._scorer).value

    @property
    def newcomer(self) -> bool:
        return self._scorer is not None and self.calibrator.gate(self._scorer).closures == (
            Closure.NEW_VERSION,
        )

    def trust(self, version: int) -> float:
        """The calibration gate of this world model's labels; 0 where nothing is known of them."""
        return self.calibrator.gate(self._key(version)).value

    def wants_replays(self, version: int, episodes: int) -> bool:
        """While no map has been learnt, or this scorer has shown too little, and there are episodes enough."""
        if episodes < self.calibrator.min_anchors:
            return False
        if self._scorer is None or self._key(version) != self._scorer:
            return True
        return any(closure.wants_evidence for closure in self.calibrator.gate(self._scorer).closures)

    def metrics(self) -> dict[str, float]:
        return {} if self._scorer is None else self.calibrator.metrics(self._scorer)

    def label(self, clips: Sequence[ImaginedClip]) -> list[LabelledClip]:
        """One label per clip; those whose outcome is known teach the calibrator as they pass."""
        labelled: dict[int, LabelledClip] = {}
        for length in sorted({len(clip) for clip in clips}):
            chosen = [index for index, clip in enumerate(clips) if len(clip) == length]
            for index, one in zip(chosen, self._label_alike([clips[i] for i in chosen]), strict=True):
                labelled[index] = one
        self._learn([labelled[index] for index in range(len(clips))])
        return [labelled[index] for index in range(len(clips))]

    def state(self) -> dict[str, Any]:
        """What replays have told so far."""
        return self.calibrator.state_dict()

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from `state()`, see `Calibrator.resume`; raises CalibrationError where it is of another mode."""
        self.calibrator.resume(state)

    def _label_alike(self, clips: Sequence[ImaginedClip]) -> list[LabelledClip]:
        """Clips of one length and one world-model version."""
        images = {
            view: np.stack(
                [[observation.images[view] for observation in clip.observations] for clip in clips]
            )
            for view in self._model.views
        }
        success_prob, clips = self._score(images, clips)
        found = label_clips(success_prob, self._thresholds)
        version = clips[0].world_model_version
        key = self._scorer = self._key(version)
        calibrated = self.calibrator.calibrate(key, found.score.astype(np.float64))
        begins_in_success = self._begins_in_success(success_prob)
        unknown = self._contradicted(key, found.label, calibrated) | begins_in_success
        outcomes = np.where(unknown, Label.UNKNOWN, found.label)
        steps = np.where(unknown, -1, found.step)
        return [
            LabelledClip(
                clip,
                Label(int(label)),
                length=int(step) if step >= 0 else len(clip),  # frame k is behind step k - 1
                success_prob=float(score),
                calibrated=float(value),
                reward_model_version=self._model.version,
                calibrator_version=self.calibrator.version,
                agreed=not wrong,
            )
            for clip, label, step, score, value, wrong in zip(
                clips, outcomes, steps, found.score, calibrated, begins_in_success, strict=True
            )
        ]

    def _score(self, images: Images, clips: Sequence[ImaginedClip]) -> tuple[Float32, Sequence[ImaginedClip]]:
        """(B, T) probabilities, the mean over all draws of the readings, and the clips with the draw that is nearest.

        One draw may sink through a table by chance; where successes are rare, most of what it would be called is wrong.
        """
        paths = [np.stack([[observation.proprio for observation in clip.observations] for clip in clips])]
        others = [clip.others for clip in clips if clip.others is not None]
        if self._model.readings and others:
            paths += list(np.stack(others, axis=1))
        drawn = np.stack([self._model.score(images, by_name(path, self._names)) for path in paths])
        mean = drawn.mean(axis=0)
        nearest = np.abs(drawn - mean).sum(axis=2).argmin(axis=0)
        chosen = [
            clip if path == 0 else clip.reading(paths[path][index])
            for index, (clip, path) in enumerate(zip(clips, nearest, strict=True))
        ]
        return mean, chosen

    def _contradicted(self, key: ScorerKey, label: Labels, calibrated: Array) -> NDArray[np.bool_]:
        """(B,) labels that the calibrated scores (B,) speak against; none before a map is learnt."""
        if not self.calibrator.fitted(key):
            return np.zeros(len(label), np.bool_)
        success = (label == Label.SUCCESS) & ~(calibrated >= self._confidence)
        failure = (label == Label.FAILURE) & ~(calibrated <= 1.0 - self._confidence)
        contradicted: NDArray[np.bool_] = success | failure
        return contradicted

    def _begins_in_success(self, success_prob: Float32) -> NDArray[np.bool_]:
        """(B,) of (B, T): whether the first, real frame is taken for a success."""
        threshold = np.inf if self._thresholds.success is None else self._thresholds.success
        begins: NDArray[np.bool_] = success_prob[:, 0] >= threshold
        return begins

    def _key(self, world_model: int) -> ScorerKey:
        return ScorerKey(self._task, scorer_version(self._model.version, world_model))

    def _learn(self, labelled: Sequence[LabelledClip]) -> None:
        pairs = [
            AnchorPair(
                raw=None if np.isnan(one.success_prob) else one.success_prob,
                true=float(Label.SUCCESS in one.clip.truth),
                # Episodes of each store are numbered from 0 on.
                episode=len(Origin) * one.clip.start.episode + int(one.clip.start.origin),
                kind=self._kind(one.clip),
            )
            for one in labelled
            if one.agreed and (Label.SUCCESS in one.clip.truth or Label.UNKNOWN not in one.clip.truth)
        ]
        if pairs and self._scorer is not None:
            self.calibrator.observe(self._scorer, pairs)

    def _kind(self, clip: ImaginedClip) -> AnchorKind:
        if clip.kind is not BranchKind.REPLAY:
            return AnchorKind.COUNTERFACTUAL
        return AnchorKind.HINDSIGHT if self._unseen(clip.start) else AnchorKind.REPLAY
