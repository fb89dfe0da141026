"""Samplers, mixer and memory plan: shares are exact, batches never shrink, clips stay in their episode."""

from __future__ import annotations

import collections
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from replay_data import action, image, observation, schema, transition, triples

from rl.batch import Batch
from rl.replay.arrays import empty_batch
from rl.replay.errors import EmptyShareError, SchemaMismatchError
from rl.replay.journal import EndReason, EpisodeOutcome
from rl.replay.memory_plan import MemoryPlanError, plan
from rl.replay.mixer import Mixer, MixerConfig, Waiting, exact_counts
from rl.replay.reader import Lookahead, StoreReader
from rl.replay.sampler import (
    ClipSampler,
    Filter,
    Holdout,
    PartConfig,
    Split,
    TransitionSampler,
    gather_clips,
)
from rl.replay.writer import StoreWriter

DONE = EpisodeOutcome(EndReason.TIMEOUT)


def record(writer: StoreWriter, steps: int, corrected: range = range(0)) -> None:
    number = writer.begin_episode(observation(writer.num_episodes, 0))
    for step in range(steps):
        writer.add(transition(number, step, truncated=step == steps - 1, intervened=step in corrected))
    writer.end_episode(DONE)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(3)


def test_correction_of_k_steps_grows_the_demo_share_by_k(tmp_path: Path, rng: np.random.Generator) -> None:
    with StoreWriter(tmp_path / "demo", schema()) as demo, StoreWriter(tmp_path / "real", schema()) as real:
        record(demo, 5)
        real_reader = StoreReader(tmp_path / "real")
        demo_share = TransitionSampler(
            [
                PartConfig(StoreReader(tmp_path / "demo")),
                PartConfig(real_reader, Filter.INTERVENED_ONLY),
            ]
        )
        online = TransitionSampler([PartConfig(real_reader)])
        assert (demo_share.size, online.size) == (5, 0)
        number = real.begin_episode(observation(0, 0))
        for step in range(8):
            real.add(transition(number, step, intervened=2 <= step < 5))
            online.refresh()  # they share a reader: refreshing one moves both
        assert (demo_share.size, online.size) == (8, 8)
        real.end_episode(DONE)
        demo_share.refresh()
        assert (demo_share.size, online.size) == (8, 8)
        record(real, 4)
        record(real, 4, corrected=range(4))
        demo_share.refresh()
        assert (demo_share.size, online.size) == (12, 16)
        corrections = TransitionSampler([PartConfig(real_reader, Filter.INTERVENED_ONLY)])
        drawn = triples(corrections.sample(300, rng))
        assert set(drawn) == {(0, 2), (0, 3), (0, 4), (2, 0), (2, 1), (2, 2), (2, 3)}
        real.begin_episode(observation(3, 0))
        real.add(transition(3, 0, intervened=True))
        demo_share.refresh()
        assert (demo_share.size, corrections.size) == (13, 8)
        real.discard_episode()
        demo_share.refresh()
        assert (demo_share.size, corrections.size, online.size) == (12, 7, 16)


def test_draws_are_uniform_over_the_union(tmp_path: Path, rng: np.random.Generator) -> None:
    for name, steps in (("a", 3), ("b", 9)):
        with StoreWriter(tmp_path / name, schema()) as writer:
            record(writer, steps)
    sampler = TransitionSampler([PartConfig(StoreReader(tmp_path / name)) for name in ("a", "b")])
    batch = sampler.sample(12_000, rng)
    drawn = collections.Counter(batch.proprio[:, 1].tolist())  # steps 0..2 lie in both stores
    for step in range(9):
        assert drawn[step] == pytest.approx(2000 if step < 3 else 1000, rel=0.12)


def test_returns_look_ahead_within_their_episode_and_within_what_is_visible(tmp_path: Path) -> None:
    ahead = Lookahead(3, 0.5)
    with StoreWriter(tmp_path / "real", schema()) as writer:
        for ending in ("success", "timeout", "open"):
            number = writer.begin_episode(observation(writer.num_episodes, 0))
            for step in range(4):
                ends = step == 3 and ending != "open"
                writer.add(
                    transition(
                        number,
                        step,
                        terminated=ends and ending == "success",
                        truncated=ends and ending == "timeout",
                    )
                )
            if ending != "open":
                writer.end_episode(DONE)
        reader = StoreReader(tmp_path / "real")
        rows = reader.valid_starts
        batch, single = empty_batch(schema(), len(rows)), empty_batch(schema(), len(rows))
        reader.gather(rows, batch, ahead)
        reader.gather(rows, single)
    assert batch.steps.tolist() == [3, 3, 2, 1] * 3 and single.steps.tolist() == [1] * 12
    assert batch.reward.tolist() == [0.0, 0.25, 0.5, 1.0] + [0.0] * 8
    assert batch.terminated.tolist() == [False, True, True, True] + [False] * 8
    assert batch.truncated.tolist() == [False] * 4 + [False, True, True, True] + [False] * 4
    for k, (episode, step) in enumerate(batch.proprio.astype(int).tolist()):
        arrives = step + int(batch.steps[k])
        np.testing.assert_array_equal(batch.next_proprio[k], [episode, arrives])
        np.testing.assert_array_equal(batch.next_images["wrist"][k], image("wrist", episode, arrives))
        np.testing.assert_array_equal(batch.action[k], single.action[k])
    with pytest.raises(ValueError, match=r"1\.\.255 steps"):
        Lookahead(0)


def test_newest_window(tmp_path: Path, rng: np.random.Generator) -> None:
    with StoreWriter(tmp_path / "real", schema()) as writer:
        record(writer, 6)
        sampler = TransitionSampler([PartConfig(StoreReader(tmp_path / "real"), newest=4)])
        record(writer, 2)
        sampler.refresh()
        assert sampler.size == 4
        assert set(triples(sampler.sample(200, rng))) == {(0, 4), (0, 5), (1, 0), (1, 1)}


def test_nothing_to_sample(tmp_path: Path, rng: np.random.Generator) -> None:
    StoreWriter(tmp_path / "real", schema()).close()
    part = PartConfig(StoreReader(tmp_path / "real"))
    with pytest.raises(EmptyShareError, match="no transition yet"):
        TransitionSampler([part]).sample(1, rng)
    with pytest.raises(EmptyShareError):
        ClipSampler([part]).sample(1, 4, rng)


def test_stores_of_different_tasks_do_not_mix(tmp_path: Path) -> None:
    parts = []
    for task in ("insert", "press"):
        StoreWriter(tmp_path / task, schema(task=task)).close()
        parts.append(PartConfig(StoreReader(tmp_path / task)))
    with pytest.raises(SchemaMismatchError, match="task differs: expected 'insert', got 'press'"):
        TransitionSampler(parts)
    with pytest.raises(SchemaMismatchError, match="task"):
        Mixer({part.reader.schema.task: TransitionSampler([part]) for part in parts})


@pytest.fixture
def mixer(tmp_path: Path) -> Mixer:
    samplers = {}
    for name, steps in (("demo", 4), ("online", 12), ("synthetic", 0)):
        with StoreWriter(tmp_path / name, schema()) as writer:
            if steps:
                record(writer, steps)
        samplers[name] = TransitionSampler([PartConfig(StoreReader(tmp_path / name))])
    return Mixer(samplers, MixerConfig(min_transitions=4))


def test_batch_has_the_size_and_shares_asked_for(mixer: Mixer, rng: np.random.Generator) -> None:
    batch = mixer.sample(33, {"demo": 0.5, "online": 0.5, "synthetic": 0.0}, rng)
    assert isinstance(batch, Batch)
    batch.check()
    assert batch.shares == {"demo": 17, "online": 16, "synthetic": 0}
    assert (batch.proprio[:17, 1] < 4).all() and batch.proprio[17:, 1].max() > 4
    assert (batch.weight == 1).all()
    triples(batch)


def test_batch_never_shrinks(mixer: Mixer, tmp_path: Path, rng: np.random.Generator) -> None:
    shares = {"demo": 0.4, "online": 0.4, "synthetic": 0.2}
    waiting = mixer.sample(10, shares, rng)
    assert waiting == Waiting("synthetic", have=0, need=4)
    assert str(waiting) == "waiting for 'synthetic': 0 of 4 transitions"
    with StoreWriter(tmp_path / "synthetic", schema()) as writer:
        record(writer, 3)
        mixer.refresh()
        assert mixer.sample(10, shares, rng) == Waiting("synthetic", have=3, need=4)
        record(writer, 1)
    mixer.refresh()
    assert mixer.sizes() == {"demo": 4, "online": 12, "synthetic": 4}
    batch = mixer.sample(50, shares, rng)  # more than a share holds: with replacement
    assert isinstance(batch, Batch) and len(batch) == 50
    assert batch.shares == {"demo": 20, "online": 20, "synthetic": 10}


def test_batch_into_preallocated_arrays(mixer: Mixer, rng: np.random.Generator) -> None:
    out = empty_batch(mixer.schema, 8)
    out.weight[:] = 5
    batch = mixer.sample(8, {"online": 1.0}, rng, out)
    assert isinstance(batch, Batch)
    assert batch.images["front"] is out.images["front"] and batch.reward is out.reward
    assert (out.weight == 1).all()
    triples(out)
    with pytest.raises(ValueError, match="expected a batch of 9 transitions, got 8"):
        mixer.sample(9, {"online": 1.0}, rng, out)


def test_same_seed_same_batch(mixer: Mixer) -> None:
    one, two = (mixer.sample(16, {"demo": 0.5, "online": 0.5}, np.random.default_rng(9)) for _ in range(2))
    assert isinstance(one, Batch) and isinstance(two, Batch)
    np.testing.assert_array_equal(one.proprio, two.proprio)


@pytest.mark.parametrize(
    "shares", [{"online": 0.9}, {"online": 1.5, "demo": -0.5}, {"online": float("nan")}, {}]
)
def test_bad_shares(mixer: Mixer, shares: dict[str, float], rng: np.random.Generator) -> None:
    with pytest.raises(ValueError, match="fractions >= 0 that sum to 1"):
        mixer.sample(8, shares, rng)
    with pytest.raises(ValueError, match="unknown share 'dream'"):
        mixer.sample(8, {"dream": 1.0}, rng)


@given(weights=st.lists(st.integers(0, 1000), min_size=1, max_size=5), size=st.integers(1, 512))
def test_exact_counts(weights: list[int], size: int) -> None:
    total = sum(weights) or 1
    shares = {str(k): weight / total for k, weight in enumerate(weights)}
    if not sum(weights):
        shares["0"] = 1.0
    counts = exact_counts(size, shares)
    assert sum(counts.values()) == size
    for name, share in shares.items():
        assert abs(counts[name] - size * share) < 1
        assert share or not counts[name]


def test_clips_are_padded_and_stay_in_their_episode(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "real", schema()) as writer:
        record(writer, 5)
        record(writer, 2)
        writer.begin_episode(observation(2, 0))
        writer.add(transition(2, 0, terminated=True))
        reader = StoreReader(tmp_path / "real")
    length = 4
    clip = gather_clips(reader, reader.valid_starts, length)
    assert clip.episode.tolist() == [0, 0, 0, 0, 0, 1, 1, 2]
    assert clip.step.tolist() == [0, 1, 2, 3, 4, 0, 1, 0]
    assert clip.valid.sum(axis=1).tolist() == [4, 4, 3, 2, 1, 2, 1, 1]
    for k in range(len(clip.episode)):
        episode, valid = int(clip.episode[k]), int(clip.valid[k].sum())
        assert clip.valid[k].tolist() == [True] * valid + [False] * (length - valid)
        for t in range(length + 1):
            step = int(clip.step[k]) + min(t, valid)  # padding repeats the last observation
            np.testing.assert_array_equal(clip.images["wrist"][k, t], image("wrist", episode, step))
            np.testing.assert_array_equal(clip.proprio[k, t], [episode, step])
        for t in range(length):
            expected = action(episode, int(clip.step[k]) + t) if t < valid else np.zeros(3)
            np.testing.assert_array_equal(clip.action[k, t], expected)
    assert clip.terminated.sum() == 1 and clip.terminated[7, 0] and clip.reward[7].tolist() == [1, 0, 0, 0]


def test_clip_sampler_joins_stores(tmp_path: Path, rng: np.random.Generator) -> None:
    for name in ("a", "b"):
        with StoreWriter(tmp_path / name, schema()) as writer:
            record(writer, 6)
    sampler = ClipSampler([PartConfig(StoreReader(tmp_path / name)) for name in ("a", "b")])
    clip = sampler.sample(20, 3, rng)
    assert clip.images["front"].shape == (20, 4, 3, 4, 3)
    assert clip.action.shape == (20, 3, 3) and clip.valid[:, 0].all()
    with pytest.raises(ValueError, match=">= 1 actions and history >= 0, got 0"):
        sampler.sample(1, 0, rng)


def test_plan_of_two_cameras(tmp_path: Path) -> None:
    large = schema(segment_rows=1024, views={"front": (128, 128), "wrist": (128, 128)})
    result = plan(large, 100_000, 12_000_000_000, tmp_path / "runs" / "real")
    assert result.total_bytes < 12_000_000_000
    assert "100,000 transitions of 100.5 kB" in str(result)
    with pytest.raises(
        MemoryPlanError, match="over the budget: lower the number of transitions to about 79,"
    ):
        plan(large, 100_000, 8_000_000_000, tmp_path)
    with pytest.raises(MemoryPlanError, match="raise `ulimit -n`"):
        plan(schema(segment_rows=2), 10_000_000, 12_000_000_000, tmp_path)


def test_plan_counts_what_is_stored_and_what_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "real"
    with StoreWriter(path, schema()) as writer:
        record(writer, 7)
    stored = sum(file.stat().st_size for file in path.glob("segments/*/*"))
    before, after = plan(schema(), 100, 10**9, tmp_path / "new"), plan(schema(), 100, 10**9, path)
    assert before.new_bytes - after.new_bytes == stored
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=after.new_bytes))
    plan(schema(), 100, 10**9, path)
    with pytest.raises(MemoryPlanError, match="not enough free disk"):
        plan(schema(), 100, 10**9, tmp_path / "new")
    assert list(tmp_path.iterdir()) == [path]  # planning writes nothing


def test_history_stays_in_the_episode_and_repeats_its_first_frame(tmp_path: Path) -> None:
    with StoreWriter(tmp_path, schema()) as writer:
        record(writer, 4)
        record(writer, 6)
    reader = StoreReader(tmp_path)
    clip = gather_clips(reader, np.array([1, 6, 9]), length=3, history=3)
    assert clip.history == 3 and clip.step.tolist() == [1, 1, 4] and clip.episode.tolist() == [0, 1, 1]
    assert clip.valid.tolist() == [
        [False, False, True, True, True, True],
        [False, False, True, True, True, True],
        [True, True, True, True, True, False],
    ]
    rows = [[0, 0, 0, 1, 2, 3, 4], [5, 5, 5, 6, 7, 8, 9], [6, 7, 8, 9, 10, 11, 11]]
    for which, mine in enumerate(rows):
        np.testing.assert_array_equal(
            clip.proprio[which], reader.records(np.array(mine))["observation"]["proprio"]
        )
    assert not clip.action[~clip.valid].any()


def test_held_out_episodes_are_whole_and_never_trained_on(tmp_path: Path, rng: np.random.Generator) -> None:
    with StoreWriter(tmp_path, schema()) as writer:
        for _ in range(5):
            record(writer, 3)
    reader, holdout = StoreReader(tmp_path), Holdout(every=2)
    parts = {s: ClipSampler([PartConfig(reader, split=s, holdout=holdout)]) for s in Split}
    drawn = {s: set(sampler.sample(200, 1, rng).episode.tolist()) for s, sampler in parts.items()}
    assert drawn == {Split.ALL: {0, 1, 2, 3, 4}, Split.TRAIN: {0, 2, 4}, Split.HELD_OUT: {1, 3}}
    listed = ClipSampler([PartConfig(reader, split=Split.HELD_OUT, holdout=Holdout(episodes=(4,)))])
    assert set(listed.sample(50, 1, rng).episode.tolist()) == {4}
    with pytest.raises(ValueError, match="holdout"):
        Holdout(every=1)


def test_an_open_episode_is_on_no_side_of_a_hold_out(tmp_path: Path, rng: np.random.Generator) -> None:
    """What is published while it goes on must not have learned from an episode that counts as unseen by it."""
    with StoreWriter(tmp_path, schema()) as writer:
        record(writer, 3)
        number = writer.begin_episode(observation(1, 0))
        for step in range(4):
            writer.add(transition(number, step))
        reader = StoreReader(tmp_path)
        parts = {s: ClipSampler([PartConfig(reader, split=s)]) for s in (Split.ALL, Split.TRAIN)}
        drawn = {s: set(sampler.sample(200, 1, rng).episode.tolist()) for s, sampler in parts.items()}
        assert drawn == {Split.ALL: {0, 1}, Split.TRAIN: {0}}
        writer.end_episode(DONE)
        parts[Split.TRAIN].refresh()
        assert set(parts[Split.TRAIN].sample(200, 1, rng).episode.tolist()) == {0, 1}
