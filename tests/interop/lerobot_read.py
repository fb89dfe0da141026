"""Reads exported datasets with LeRobot's own reader and compares every number and pixel; needs nothing of this project.

Run by `make test-lerobot` in an environment with lerobot-dataset or lerobot.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import numpy as np
import torch


def reader() -> type:
    for package in ("ledataset", "lerobot"):
        try:
            return importlib.import_module(f"{package}.datasets.lerobot_dataset").LeRobotDataset
        except ModuleNotFoundError as error:
            if error.name != package:
                raise
    raise SystemExit("neither lerobot-dataset nor lerobot is installed here")


def compare(dataset: torch.utils.data.Dataset, expected: dict[str, np.ndarray]) -> dict[str, float]:
    """The largest difference of each column, in its own unit; pixels in 0..255."""
    worst: dict[str, float] = {}
    for index in range(len(dataset)):
        item = dataset[index]
        for name, values in expected.items():
            value = item[name].numpy()
            if values.ndim == 4:
                value = np.rint(np.moveaxis(value, 0, -1) * 255.0)
            # The reader hands out every float as 32 bits, whatever the file holds.
            got, want = (array.astype(value.dtype).astype(np.float64) for array in (value, values[index]))
            difference = np.where(np.isnan(got) & np.isnan(want), 0.0, np.abs(got - want))
            worst[name] = max(worst.get(name, 0.0), float(difference.max(initial=0.0)))
    return worst


def main(folder: Path) -> int:
    load, failed = reader(), 0
    print(f"read with {load.__module__}")
    for path in sorted(folder.glob("*.npz")):
        root = path.with_suffix("")
        with np.load(path) as file:
            expected = dict(file)
        dataset = load("local/export", root=root)
        rows = {len(values) for values in expected.values()}
        worst = compare(dataset, expected)
        off = {name: difference for name, difference in worst.items() if difference > 0}
        if rows != {len(dataset)} or off:
            failed += 1
        pixels = sum(values.size for values in expected.values() if values.ndim == 4)
        shape = f"{len(dataset)} rows, {len(worst)} columns, {pixels} pixel values"
        print(f"{root.name}: {shape}, differences: {off or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
