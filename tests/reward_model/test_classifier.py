"""The classifier learns from few frames, survives its file, and refuses what it was not made for."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from reward_model.classifier import ClassifierConfig, SuccessClassifier, TrunkKind
from reward_model.dataset import FrameSampler, KnownClip
from reward_model.evaluate import score_clips, trials_of
from reward_model.interface import RewardModelError
from reward_model.labels import Thresholds
from reward_model.trainer import RewardTrainer, RewardTrainerConfig, augment
from robot.types import Float32, Label
from tests.reward_model.frames import VIEWS, batch, clip, clips

CPU = torch.device("cpu")
SMALL = ClassifierConfig(channels=(8, 8), width=16)
SHORT = RewardTrainerConfig(steps=40, batch=16, learning_rate=3e-3, shift_px=1, log_every=20)


def untrained(seed: int = 0, config: ClassifierConfig = SMALL) -> SuccessClassifier:
    return SuccessClassifier(config, "press", VIEWS, seed=seed, device=CPU)


def trained(seed: int = 0) -> SuccessClassifier:
    model = untrained(seed)
    assert list(RewardTrainer(model, FrameSampler(clips(12), 0.5), SHORT, seed=seed).train())
    return model


@pytest.fixture(scope="module")
def model() -> SuccessClassifier:
    return trained()


def test_it_tells_success_from_failure_on_episodes_it_never_saw(model: SuccessClassifier) -> None:
    trials = trials_of(score_clips(model, clips(20, first=100), 2))
    score, truth = np.array([t.score for t in trials]), np.array([t.succeeded for t in trials], np.bool_)
    assert (truth.sum(), (~truth).sum()) == (10, 20)
    assert score[truth].min() > score[~truth].max()


def test_the_same_seed_gives_the_same_weights_whatever_was_drawn_before(model: SuccessClassifier) -> None:
    torch.rand(7)
    again = trained()
    for name, value in model.network.state_dict().items():
        assert torch.equal(value, again.network.state_dict()[name]), name


def test_training_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    trained(1)
    assert torch.equal(torch.rand(4), expected)


def test_probabilities_have_the_clips_shape_and_range(model: SuccessClassifier) -> None:
    images = {view: np.stack([frames, frames]) for view, frames in clip(0, Label.SUCCESS).images.items()}
    prob = model.score(images)
    assert prob.shape == (2, 8) and prob.dtype == np.float32
    assert ((prob >= 0) & (prob <= 1)).all()
    np.testing.assert_array_equal(prob[0], prob[1])


def test_more_views_than_it_needs_are_no_harm(model: SuccessClassifier) -> None:
    images = batch(clip(0, Label.SUCCESS))
    more = images | {"zoom": np.zeros((1, 8, 4, 4, 3), np.uint8)}
    np.testing.assert_array_equal(model.score(images), model.score(more))


def test_a_dead_camera_is_unknown(model: SuccessClassifier) -> None:
    images = batch(clip(0, Label.SUCCESS))
    images["side"][0, 3:5] = 17
    prob = model.score(images)
    assert np.isnan(prob[0, 3:5]).all() and np.isfinite(np.delete(prob[0], [3, 4])).all()


def test_weights_that_are_not_finite_make_everything_unknown() -> None:
    broken = untrained()
    with torch.no_grad():
        next(broken.network.parameters()).fill_(float("nan"))
    assert np.isnan(broken.score(batch(clip(0, Label.SUCCESS)))).all()


def test_it_survives_its_file(model: SuccessClassifier, tmp_path: Path) -> None:
    model.version, model.thresholds = 3, Thresholds(0.9, 0.1, hold_frames=3, negatives=60, positives=40)
    model.data = {"learned": ["store/1"], "thresholds": ["store/2"]}
    model.save(tmp_path / "press.safetensors")
    again = SuccessClassifier.load(tmp_path / "press.safetensors", device=CPU)
    images = batch(clip(5, Label.FAILURE))
    np.testing.assert_array_equal(model.score(images), again.score(images))
    for name in ("task", "views", "version", "thresholds", "data", "config"):
        assert getattr(again, name) == getattr(model, name), name
    assert [path.name for path in tmp_path.iterdir()] == ["press.safetensors"]


@pytest.mark.parametrize("damage", ["missing", "cut", "changed", "foreign", "other_format"])
def test_a_damaged_file_is_refused_by_its_name(damage: str, model: SuccessClassifier, tmp_path: Path) -> None:
    path = tmp_path / "press.safetensors"
    model.save(path)
    data = path.read_bytes()
    match damage:
        case "missing":
            path.unlink()
        case "cut":
            path.write_bytes(data[: len(data) // 2])
        case "changed":
            path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        case "foreign":
            save_file({"weight": torch.zeros(2)}, path)
        case "other_format":
            with safe_open(path, framework="pt") as file:
                meta = json.loads(file.metadata()["reward_model"])
                tensors = {name: file.get_tensor(name) for name in list(file.keys())}
            save_file(tensors, path, {"reward_model": json.dumps(meta | {"format": 99})})
    with pytest.raises(RewardModelError, match=r"press\.safetensors"):
        SuccessClassifier.load(path, device=CPU)


READING = replace(SMALL, readings=("ee_z",))


def depths(known: KnownClip) -> Float32:
    """Height of the tool, 2 mm lower in success frames."""
    rng = np.random.default_rng(0)
    depth = np.where(known.label == Label.SUCCESS, 0.048, 0.050) + rng.normal(0.0, 2e-4, len(known.label))
    return depth.astype(np.float32)


def felt(count: int, first: int = 0, *, seen: bool) -> list[KnownClip]:
    """Clips with readings that tell success; of images that tell it too, or do not."""
    found = []
    for known in clips(count, first=first):
        images = known.images if seen else {view: np.full_like(f, 90) for view, f in known.images.items()}
        for frames in images.values():
            frames[..., 0, 0, 0] = 5  # not blank
        found.append(replace(known, images=images, readings={"ee_z": depths(known)}))
    return found


def learned(known: list[KnownClip]) -> SuccessClassifier:
    model = untrained(config=READING)
    assert list(RewardTrainer(model, FrameSampler(known, 0.5), SHORT, seed=0).train())
    return model


@pytest.fixture(scope="module")
def feeling() -> SuccessClassifier:
    return learned(felt(12, seen=False))


def test_readings_tell_what_images_cannot(feeling: SuccessClassifier) -> None:
    trials = trials_of(score_clips(feeling, felt(20, first=100, seen=False), 2))
    score, truth = np.array([t.score for t in trials]), np.array([t.succeeded for t in trials], np.bool_)
    assert score[truth].min() > score[~truth].max()


def test_images_still_count_where_readings_are_those_of_success() -> None:
    """Half of the failures have the readings of success, as a finger beside the lever has them."""
    known = felt(24, seen=True)
    for failure in known[1::4]:
        failure.readings["ee_z"][:] -= 0.002  # type: ignore[index]
    model = learned(known)
    failure = felt(2, first=200, seen=True)[1]
    deep = {"ee_z": failure.readings["ee_z"][None] - np.float32(0.002)}
    assert (model.score(batch(failure), deep) < 0.5).all()


def test_scales_of_readings_survive_the_file(feeling: SuccessClassifier, tmp_path: Path) -> None:
    feeling.save(tmp_path / "press.safetensors")
    again = SuccessClassifier.load(tmp_path / "press.safetensors", device=CPU)
    assert again.config == feeling.config and again.readings == ("ee_z",)
    (known,) = felt(1, first=7, seen=False)
    readings = {"ee_z": known.readings["ee_z"][None]}
    np.testing.assert_array_equal(again.score(batch(known), readings), feeling.score(batch(known), readings))
    network = again.network.arm
    assert network is not None and network.edges[1].item() == pytest.approx(0.048, abs=3e-4)


def test_a_file_from_before_there_were_readings_loads(model: SuccessClassifier, tmp_path: Path) -> None:
    path = tmp_path / "press.safetensors"
    model.save(path)
    with safe_open(path, framework="pt") as file:
        meta = json.loads(file.metadata()["reward_model"])
        tensors = {name: file.get_tensor(name) for name in list(file.keys())}
    meta["classifier"] = {
        name: value for name, value in meta["classifier"].items() if not name.startswith("reading")
    }
    save_file(tensors, path, {"reward_model": json.dumps(meta)})
    images = batch(clip(5, Label.FAILURE))
    np.testing.assert_array_equal(SuccessClassifier.load(path, device=CPU).score(images), model.score(images))


@pytest.mark.parametrize("names", [("force_z",), ("ee_z", "ee_z"), ("lever_depth",)])
def test_readings_that_nobody_can_imagine_are_refused_by_name(names: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=rf"classifier.readings: .*'{names[0]}'.* cannot be imagined"):
        replace(SMALL, readings=names)


def test_frames_without_the_readings_of_a_model_are_refused() -> None:
    with pytest.raises(RewardModelError, match=r"'ee_z'\] are missing"):
        learned(clips(4))


class Trunk(nn.Module):
    """A frozen trunk of one convolution."""

    def __init__(self, checksum: int) -> None:
        super().__init__()
        self.checksum = checksum
        self.layer = nn.Conv2d(3, 4, 4, 4)
        nn.init.constant_(self.layer.weight, 0.01)

    def forward(self, images: Tensor) -> Tensor:
        maps: Tensor = self.layer(images.permute(0, 3, 1, 2).float())
        return maps


def test_a_frozen_trunk_is_neither_trained_nor_saved_and_must_be_the_same(tmp_path: Path) -> None:
    config = ClassifierConfig(TrunkKind.FROZEN, width=8)
    trunk = Trunk(5)
    before = trunk.layer.weight.clone()
    model = SuccessClassifier(config, "press", VIEWS, seed=0, device=CPU, frozen=trunk)
    list(
        RewardTrainer(
            model, FrameSampler(clips(4), 0.5), RewardTrainerConfig(steps=2, batch=4), seed=0
        ).train()
    )
    assert torch.equal(trunk.layer.weight, before)
    assert all(name.startswith("head.") for name in model.network.state_dict())
    path = tmp_path / "m.safetensors"
    model.save(path)
    images = batch(clip(0, Label.SUCCESS))
    again = SuccessClassifier.load(path, device=CPU, make_trunk=lambda _: trunk)
    np.testing.assert_array_equal(again.score(images), model.score(images))
    with pytest.raises(RewardModelError, match="other weights"):
        SuccessClassifier.load(path, device=CPU, make_trunk=lambda _: Trunk(6))
    with pytest.raises(RewardModelError, match="frozen trunk"):
        SuccessClassifier.load(path, device=CPU)


def test_a_loss_that_is_not_finite_ends_the_training() -> None:
    broken = untrained()
    with torch.no_grad():
        next(broken.network.parameters()).fill_(float("inf"))
    with pytest.raises(RewardModelError, match="the loss is"):
        list(RewardTrainer(broken, FrameSampler(clips(4), 0.5), SHORT, seed=0).train())


def test_augmentation_moves_every_image_by_its_own_shift_within_reach() -> None:
    images = np.zeros((64, 16, 16, 3), np.uint8)
    images[:, 8, 8] = 255
    config = RewardTrainerConfig(shift_px=2, brightness=0.0, contrast=0.0)
    places = {
        tuple(np.argwhere(image[..., 0])[0]) for image in augment(images, config, np.random.default_rng(0))
    }
    assert len(places) > 15
    assert all(abs(y - 8) <= 2 and abs(x - 8) <= 2 for y, x in places)


def test_no_augmentation_changes_nothing() -> None:
    images = clip(0, Label.SUCCESS).images["wrist"]
    config = RewardTrainerConfig(shift_px=0, brightness=0.0, contrast=0.0)
    np.testing.assert_array_equal(augment(images, config, np.random.default_rng(0)), images)
