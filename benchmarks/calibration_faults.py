"""How fast injected faults close the calibration gate, and how often an honest judge finds it closed.

    python -m benchmarks.calibration_faults [--runs 48]

Writes benchmarks/results/calibration_faults.json. Each run calibrates on honest episodes until the gate is open, then
injects one fault and counts anchored episodes until the gate is 0.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from reward_model.calibration.calibrator import CalibrationConfig, Calibrator
from rl.provenance import RESULTS, header, write
from tests.reward_model.calibration_cases import FAULTS, KEY, SWAPPED, anchors_to_closure, episode

HONEST = {"clear": (0.5, 0.12), "noisy": (0.3, 0.2), "poor": (0.2, 0.2)}  # signal, noise
PATIENCE = 100  # anchored episodes after which a fault counts as unnoticed


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=48)
    runs = parser.parse_args().runs
    rows: list[dict[str, Any]] = []
    for success_rate in (0.5, 0.2):
        trained = [open_gate(seed, success_rate) for seed in range(runs)]
        rows += [fault_row(name, trained, success_rate) for name in FAULTS]
        rows.append(swap_row(trained, success_rate))
        rows += [honest_row(name, max(2, runs // 4), success_rate) for name in HONEST]
    command = f"python -m benchmarks.calibration_faults --runs {runs}"
    write(
        RESULTS / "calibration_faults.json", header("calibration_faults", command, ("numpy", "scipy")), rows
    )
    return 0


def open_gate(seed: int, success_rate: float) -> dict[str, Any]:
    """The state of a calibrator that honest episodes have opened."""
    rng, calibrator = np.random.default_rng(seed), Calibrator(CalibrationConfig())
    for index in range(200):
        calibrator.observe(KEY, episode(rng, index, success_rate=success_rate))
        if index >= 69 and calibrator.gate(KEY).value > 0.0:
            return calibrator.state_dict()
    raise RuntimeError(f"seed {seed}: the gate stayed closed for 200 honest episodes, {calibrator.gate(KEY)}")


def fault_row(name: str, trained: list[dict[str, Any]], success_rate: float) -> dict[str, Any]:
    fault, limit = FAULTS[name]
    taken, reasons = [], set()
    for seed, state in enumerate(trained):
        calibrator = Calibrator(CalibrationConfig())
        calibrator.load_state_dict(state)
        rng = np.random.default_rng([seed, 7])
        anchors = anchors_to_closure(calibrator, rng, fault, PATIENCE, success_rate=success_rate)
        taken.append(PATIENCE + 1 if anchors is None else anchors)
        reasons |= {closure.value for closure in calibrator.gate(KEY).closures}
    return {
        "fault": name,
        "success_rate": success_rate,
        "runs": len(trained),
        "anchors_median": float(np.median(taken)),
        "anchors_max": max(taken),
        "limit": limit,
        "reasons": sorted(reasons),
    }


def swap_row(trained: list[dict[str, Any]], success_rate: float) -> dict[str, Any]:
    """Version swap: closed at once; counts the honest episodes of the new version that open the gate again."""
    reopened = []
    for seed, state in enumerate(trained):
        calibrator, rng = Calibrator(CalibrationConfig()), np.random.default_rng([seed, 8])
        calibrator.load_state_dict(state)
        reasons = [closure.value for closure in calibrator.gate(SWAPPED).closures]
        count = 0
        while calibrator.gate(SWAPPED).value == 0.0 and count < PATIENCE:
            calibrator.observe(SWAPPED, episode(rng, 1000 + count, success_rate=success_rate))
            count += 1
        reopened.append(count)
    return {
        "fault": "version_swap",
        "success_rate": success_rate,
        "runs": len(trained),
        "anchors_median": 0.0,
        "anchors_max": 0 if reasons else PATIENCE,
        "limit": 0,
        "reasons": reasons,
        "reopens_median": float(np.median(reopened)),
        "reopens_max": max(reopened),
    }


def honest_row(name: str, runs: int, success_rate: float) -> dict[str, Any]:
    """A judge without a fault, over 100 episodes after calibration: the gate, and how often it is closed."""
    signal, noise = HONEST[name]
    gates = []
    for seed in range(runs):
        rng, calibrator = np.random.default_rng(seed), Calibrator(CalibrationConfig())
        for index in range(180):
            calibrator.observe(
                KEY, episode(rng, index, success_rate=success_rate, signal=signal, noise=noise)
            )
            if index >= 80 and index % 5 == 0:
                gates.append(calibrator.gate(KEY).value)
    return {
        "fault": "none",
        "judge": name,
        "signal": signal,
        "noise": noise,
        "success_rate": success_rate,
        "runs": runs,
        "gate_mean": round(float(np.mean(gates)), 4),
        "closed_share": round(float(np.mean(np.array(gates) == 0.0)), 4),
    }


if __name__ == "__main__":
    raise SystemExit(main())
