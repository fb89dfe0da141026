"""Statistics of a dataset's features, exact: over every row, and over every pixel of every frame by histograms."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from robot.types import Array, Image

QUANTILES = {"q01": 0.01, "q10": 0.10, "q50": 0.50, "q90": 0.90, "q99": 0.99}
Stats = dict[str, list[object]]
Histogram = NDArray[np.int64]  # (3, 256) of the values of each channel


def vector_stats(values: NDArray[np.generic]) -> Stats | None:
    """min, max, mean, std, quantiles of (N,) or (N, n) numbers, count; None where they are not all finite."""
    rows = values.astype(np.float64).reshape(len(values), -1)
    if not np.isfinite(rows).all():
        return None
    stats = {
        "min": rows.min(axis=0),
        "max": rows.max(axis=0),
        "mean": rows.mean(axis=0),
        "std": rows.std(axis=0),
    }
    quantiles = np.quantile(rows, list(QUANTILES.values()), axis=0)
    stats |= dict(zip(QUANTILES, quantiles, strict=True))
    return {**{name: entry.tolist() for name, entry in stats.items()}, "count": [len(rows)]}


def histogram(frame: Image) -> Histogram:
    """How often each value occurs in each channel of a frame (H, W, 3)."""
    return np.stack([np.bincount(frame[..., channel].ravel(), minlength=256) for channel in range(3)])


def image_stats(histograms: Sequence[Histogram]) -> Stats:
    """The same of pixel values in 0..1, per channel and shaped (3, 1, 1); count: frames."""
    counts = np.sum(histograms, axis=0)
    values = np.arange(256) / 255.0
    total = counts.sum(axis=1)
    mean = counts @ values / total
    present = counts > 0
    stats = {
        "min": values[present.argmax(axis=1)],
        "max": values[255 - present[:, ::-1].argmax(axis=1)],
        "mean": mean,
        "std": np.sqrt(np.maximum(counts @ values**2 / total - mean**2, 0.0)),
    }
    cumulated = counts.cumsum(axis=1) / total[:, None]
    for name, share in QUANTILES.items():
        stats[name] = values[(cumulated >= share).argmax(axis=1)]
    return {**{name: _channels(entry) for name, entry in stats.items()}, "count": [len(histograms)]}


def _channels(values: Array) -> list[object]:
    return [[[value]] for value in values.tolist()]
