"""The one object that the SAC loop and the VLA trainer share: anchors in; calibrated scores, gate and weights out."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np

from reward_model.calibration.anchors import AnchorKind, AnchorPair, ScorerKey
from reward_model.calibration.debias import DebiasConfig, Debiaser, OnlineDebiaser
from reward_model.calibration.gates import Gate, GateConfig, GateReading
from reward_model.calibration.hardened import HardenedConfig, KeyedDebiaser
from reward_model.calibration.weight import (
    InverseVarianceWeighter,
    Law,
    Scale,
    WeightConfig,
    synthetic_td_weight,
)
from robot.types import Array

FORMAT = 2

_log = logging.getLogger(__name__)


class CalibrationError(ValueError):
    """A wrong state file; the message says what was expected and what to do."""


class OldCalibrationError(CalibrationError):
    """A state of another format."""


class CalibrationMode(Enum):
    """WMRL: the published algorithm to the letter; its gate is measured but obeyed by nobody. HARDENED: for a robot."""

    WMRL = "wmrl"
    HARDENED = "hardened"


@dataclass(frozen=True)
class CalibrationConfig:
    """Everything about calibration. standardised: advantages are divided by their group's deviation; sets the law."""

    mode: CalibrationMode = CalibrationMode.HARDENED
    standardised: bool = False
    debias: DebiasConfig = field(default_factory=DebiasConfig)
    hardened: HardenedConfig = field(default_factory=HardenedConfig)
    weight: WeightConfig = field(default_factory=WeightConfig)
    gate: GateConfig = field(default_factory=GateConfig)


class Calibrator:
    """Learns what a cheap score is worth from anchors, one group of them at a time, in the order of their arrival."""

    def __init__(self, config: CalibrationConfig) -> None:
        self._config = config
        self._hardened = config.mode is CalibrationMode.HARDENED
        self._debiaser: Debiaser
        if self._hardened:
            law = Law.ROOT if config.standardised else Law.LINEAR
            self._debiaser = KeyedDebiaser(config.debias, config.hardened)
            self._weighter = InverseVarianceWeighter(config.weight, law, Scale.UNIT)
        else:
            self._debiaser = OnlineDebiaser(config.debias)
            self._weighter = InverseVarianceWeighter(config.weight, Law.LINEAR, Scale.FROZEN)
        self._gates: dict[ScorerKey, Gate] = {}
        self._unknown = self._broken = self._drifts = 0

    @property
    def version(self) -> int:
        """How often the map was fitted; goes into the provenance of synthetic data."""
        return self._debiaser.fits

    def observe(self, key: ScorerKey, group: Sequence[AnchorPair]) -> None:
        """One anchor group (a real segment with its branches, or the rollouts of one initial state) with its outcomes.

        Predict with the map as it is, which is the evidence for the gate; then learn; then measure disagreement: WMRL
        on the refitted map, HARDENED on the prediction made before. Unknown and non-finite pairs never enter.
        """
        self._count_dropped(group)
        gate = self._gate(key)
        gate.note(np.array([_as_score(pair.raw) for pair in group]))
        known = [pair for pair in group if math.isfinite(_as_score(pair.raw) + _as_score(pair.true))]
        if not known:
            return
        raw = np.array([pair.raw for pair in known], np.float64)
        true = np.array([pair.true for pair in known], np.float64)
        episode = np.array([pair.episode for pair in known], np.int64)
        kinds = [pair.kind for pair in known]
        weight = np.array([self._weight(kind) for kind in kinds])
        predicted = self._debiaser.apply(key, raw)
        fitted = self._debiaser.fitted(key)
        if gate.observe(predicted, true, episode, kinds, fitted=fitted):
            self._drifts += 1
            if self._hardened:
                self._debiaser.reset(key)
        self._debiaser.push(key, raw, true, weight)
        measured = predicted if self._hardened else self._debiaser.apply(key, raw)
        self._weighter.observe(measured, true)

    def calibrate(self, key: ScorerKey, raw: Array) -> Array:
        """Scores (...) to calibrated ones (...); NaN (unknown) stays NaN, infinity (broken) becomes NaN; both count."""
        self._gate(key).note(raw.ravel())
        broken = np.isinf(raw)
        self._broken += int(broken.sum())
        self._unknown += int(np.isnan(raw).sum())
        return self._debiaser.apply(key, np.where(broken, np.nan, raw))

    def gate(self, key: ScorerKey) -> GateReading:
        """The gate of `key` and why; closed for a key that nothing is known of."""
        known = self._gates.get(key)
        return (self._new_gate(key) if known is None else known).reading

    def fitted(self, key: ScorerKey) -> bool:
        """Whether scores of `key` go through a map that was learnt; before, they are calibrated to themselves."""
        return self._debiaser.fitted(key)

    @property
    def obeys_gate(self) -> bool:
        """Whether the gate scales what cheap scores teach; the published algorithm has none."""
        return self._hardened

    @property
    def anchor_weight(self) -> float:
        """What the advantages of anchor groups are multiplied by, after their normalisation."""
        return self._weighter.weight

    @property
    def min_anchors(self) -> int:
        """Distinct episodes without which no gate opens."""
        return self._config.gate.min_anchors

    def synthetic_weight(self, key: ScorerKey) -> float:
        """What a synthetic TD term is multiplied by beside a real one, in [1 / max_weight, 1]."""
        evidence = self.gate(key).evidence
        return synthetic_td_weight(evidence.brier, evidence.outcome_variance, self._config.weight.max_weight)

    def metrics(self, key: ScorerKey) -> dict[str, float]:
        """All numbers about `key`, NaN where nothing is known yet."""
        return {
            **self._debiaser.metrics(key),
            **self._weighter.metrics(),
            **self.gate(key).metrics(),
            "calibration/unknown": float(self._unknown),
            "calibration/non_finite": float(self._broken),
            "calibration/drifts": float(self._drifts),
        }

    def _gate(self, key: ScorerKey) -> Gate:
        if key not in self._gates:
            of_task = [other for other in self._gates if other.task == key.task]
            self._gates[key] = self._new_gate(key)
            for old in of_task[: -self._config.hardened.versions_kept]:
                del self._gates[old]
        return self._gates[key]

    def _new_gate(self, key: ScorerKey) -> Gate:
        successor = any(other.task == key.task for other in self._gates)
        return Gate(self._config.gate, successor=successor, weight=self._weight)

    def _weight(self, kind: AnchorKind) -> float:
        """How much a pair counts, in the map and as evidence; as published, all alike."""
        return self._config.hardened.evidence(kind) if self._hardened else 1.0

    def _count_dropped(self, group: Sequence[AnchorPair]) -> None:
        values = [_as_score(value) for pair in group for value in (pair.raw, pair.true)]
        self._unknown += sum(map(math.isnan, values))
        self._broken += sum(map(math.isinf, values))

    def state_dict(self) -> dict[str, Any]:
        """JSON-able, finite numbers only."""
        return {
            "format": FORMAT,
            "mode": self._config.mode.value,
            "debiaser": self._debiaser.state_dict(),
            "weighter": self._weighter.state_dict(),
            "gates": [[key.task, key.version, gate.state_dict()] for key, gate in self._gates.items()],
            "counts": [self._unknown, self._broken, self._drifts],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where another calibrator of the same mode stopped; raises CalibrationError, and changes nothing."""
        if state.get("format") != FORMAT:
            raise OldCalibrationError(
                f"calibrator state: expected format {FORMAT}, got {state.get('format')}, which weighs and numbers the "
                "evidence otherwise; begin calibration anew: the gate opens when real outcomes have spoken again"
            )
        if state.get("mode") != self._config.mode.value:
            raise CalibrationError(
                f"calibrator state: expected mode {self._config.mode.value}, got {state.get('mode')}; load it with the "
                "mode that it was saved in"
            )
        self._debiaser.load_state_dict(state["debiaser"])
        self._weighter.load_state_dict(state["weighter"])
        self._gates = {}
        for task, version, entry in state["gates"]:
            self._gate(ScorerKey(task, version)).load_state_dict(entry)
        self._unknown, self._broken, self._drifts = state["counts"]

    def resume(self, state: Mapping[str, Any]) -> None:
        """As `load_state_dict`, but a state of another format is left behind with a warning.

        Only evidence is lost, and the gate stays shut without: no reason to refuse the run that it belongs to.
        """
        try:
            self.load_state_dict(state)
        except OldCalibrationError as error:
            _log.warning("%s", error)

    def save(self, path: Path) -> None:
        """Write the state as JSON, beside and renamed."""
        part = path.with_suffix(path.suffix + ".part")
        part.write_text(json.dumps(self.state_dict(), allow_nan=False))
        part.replace(path)

    def load(self, path: Path) -> None:
        """Read what `save` wrote; raises CalibrationError where the file is torn or of another mode."""
        try:
            state = json.loads(path.read_text())
        except ValueError as error:
            raise CalibrationError(
                f"{path}: expected JSON, got a torn file ({error}); restore it from a copy"
            ) from error
        self.load_state_dict(state)


def _as_score(value: float | None) -> float:
    """NaN for unknown, infinity for what is no number."""
    if value is None:
        return math.nan
    return value if math.isfinite(value) else math.inf
