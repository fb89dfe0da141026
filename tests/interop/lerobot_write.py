"""Writes exported datasets, and beside each one what its rows and pixels are, for LeRobot's own reader to confirm.

Run by `make test-lerobot`; further arguments are stores to export as well.
"""

from __future__ import annotations

import sys
from pathlib import Path

import lerobot_data as data
import numpy as np

from rl.replay.lerobot.decode import video_frames
from rl.replay.lerobot.encode import Encoding, VideoCodec
from rl.replay.lerobot.exporter import export_dataset
from rl.replay.lerobot.importer import import_dataset
from rl.replay.lerobot.layout import read_layout
from rl.replay.lerobot.rows import RowFiles


def expected(root: Path) -> dict[str, np.ndarray]:
    """Every number column and every frame of the dataset as this project reads them."""
    layout = read_layout(root)
    files = RowFiles(layout)
    parts: dict[str, list[np.ndarray]] = {}
    for entry in layout.episodes:
        rows = files.episode(entry)
        for name, feature in layout.features.items():
            if feature.dtype == "video":
                frames = list(video_frames(entry.videos[name], rows.timestamps(), 1e-4))
                parts.setdefault(name, []).append(np.stack(frames))
            elif feature.dtype != "string":
                parts.setdefault(name, []).append(rows.values(name))
    return {name: np.concatenate(values) for name, values in parts.items()}


def main(out: Path, stores: list[Path]) -> None:
    source = data.write_dataset(out / "source", data.Recipe(views=dict.fromkeys(data.VIEWS, (64, 96))))
    import_dataset(source, out / "store", data.MAPPING)
    exports = {f"small_{codec.value}": (out / "store", Encoding(codec)) for codec in VideoCodec}
    exports |= {f"{store.name}_h264": (store, Encoding()) for store in stores}
    for name, (store, encoding) in exports.items():
        export_dataset(store, out / "datasets" / name, encoding)
    export_dataset(out / "store", out / "datasets" / "small_carried", Encoding(), videos_from=source)
    for name in (*exports, "small_carried"):
        np.savez(out / "datasets" / f"{name}.npz", **expected(out / "datasets" / name))


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(argument) for argument in sys.argv[2:]])
