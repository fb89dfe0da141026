"""Published weights: atomic, versioned, never a version for two sets of tensors."""

from pathlib import Path

import pytest
import torch

from rl.runtime.weights import WeightsDirectory, WeightsError


def _tensors(value: float) -> dict[str, torch.Tensor]:
    return {"w": torch.full((3, 2), value)}


def test_the_newest_version_is_what_was_published(tmp_path: Path) -> None:
    weights = WeightsDirectory(tmp_path)
    assert weights.latest_version() == -1
    first, second = weights.publish(_tensors(1.0), 10), weights.publish(_tensors(2.0), 20)
    loaded = WeightsDirectory(tmp_path).load()
    assert (loaded.version, loaded.updates) == (second, 20)
    assert torch.equal(loaded.tensors["w"], _tensors(2.0)["w"])
    assert torch.equal(weights.load(first).tensors["w"], _tensors(1.0)["w"])


def test_a_reopened_directory_never_reuses_a_version(tmp_path: Path) -> None:
    seen = {WeightsDirectory(tmp_path).publish(_tensors(float(i)), i) for i in range(12)}
    assert len(seen) == 12


def test_old_versions_go_and_pinned_ones_stay(tmp_path: Path) -> None:
    weights = WeightsDirectory(tmp_path, keep=2)
    first = weights.publish(_tensors(0.0), 0)
    weights.pin(first)
    for i in range(1, 6):
        weights.publish(_tensors(float(i)), i)
    assert torch.equal(weights.load(first).tensors["w"], _tensors(0.0)["w"])
    with pytest.raises(WeightsError, match="version 2 is not here; available"):
        weights.load(2)


def test_nothing_published_is_named(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="no policy has been published"):
        WeightsDirectory(tmp_path).load()


def test_a_killed_publish_leaves_the_previous_version(tmp_path: Path) -> None:
    weights = WeightsDirectory(tmp_path)
    version = weights.publish(_tensors(1.0), 1)
    (tmp_path / f"{version + 1:06d}.tmp").write_bytes(b"half a file")
    assert WeightsDirectory(tmp_path).load().version == version


def test_damage_is_found_and_named(tmp_path: Path) -> None:
    weights = WeightsDirectory(tmp_path)
    version = weights.publish(_tensors(1.0), 1)
    path = weights.path(version)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(WeightsError, match=r"000000\.safetensors: damaged"):
        weights.load()
    (tmp_path / "latest.json").write_text("{")
    with pytest.raises(WeightsError, match=r"latest\.json: damaged"):
        weights.latest_version()
