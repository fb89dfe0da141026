"""`groundhog ablate` on a real recording: the same learner again bit by bit, nothing written to the run, and resume."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from rl import cli
from rl.ablation import report
from rl.ablation import runs as ablation_runs
from rl.ablation.pictures import draw_page
from rl.ablation.recording import Recording
from rl.replay.reader import StoreReader
from rl.runtime.run_dir import RunDir
from tests.e2e.harness import SMALL

QUICK = ("parallel=1", "eval_episodes=1", "fqe.updates=5", "fqe.members=2")
RECORDED = (
    "runtime.kind=inline",
    "actor.max_env_steps=60",
    "learner.bc_updates=10",
    "learner.warm_updates=10",
    "learner.publish_every=25",
    "learner.checkpoint_every=1000",
    "pacing.utd_ratio=1",
    "learner.log_every=10",
    "learner.diagnose_every=0",
    "synthetic.model=oracle",  # so that there is a world-model worker, and clips of its own, to replay
    "synthetic.imagination.parallel=4",
    "synthetic.worker.per_update=0.5",
    "synthetic.selection.mode=none",
    "synthetic.share.pacing.rule=constant",
    "synthetic.share.pacing.rise_per_100=100",
)
IMAGINED = "recorded+stream.imagined=recorded"
PLAIN = "recorded correction.kind=none synthetic.model=none"
ARMS = f"arms=[recorded,{IMAGINED.replace('+', ' ')},{PLAIN}]"


@pytest.fixture(scope="module", autouse=True)
def no_picture() -> Iterator[None]:
    """Drawing takes as long as a replay; one test draws."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "draw_page", lambda path, *_: path)
        yield


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """A short run with scripted corrections and imagined clips, which nothing here may change."""
    path = tmp_path_factory.mktemp("recorded")
    assert cli.main(["train", f"runs_dir={path}", "name=run", *SMALL, *RECORDED]) == 0
    return RunDir(path / "run")


def ablate(run: RunDir, out: Path, *overrides: str) -> int:
    return cli.main(["ablate", f"run={run.path}", f"out={out}", *QUICK, *overrides])


def measured(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text())["measured"])


def digests(path: Path) -> dict[str, str]:
    files = sorted(file for file in path.rglob("*") if file.is_file())
    return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


@pytest.fixture(scope="module")
def replayed(run: RunDir, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three arms, everything shown, their run directories kept."""
    out = tmp_path_factory.mktemp("replayed")
    before = digests(run.path)
    assert ablate(run, out, ARMS, "holdout_every=0", "keep=true") == 0
    assert digests(run.path) == before, "nothing of the run is ever written to"
    return out


def test_the_recorded_learner_comes_out_again_bit_by_bit(run: RunDir, replayed: Path) -> None:
    """Order, pace and random numbers, those of imagination too, are the run's, or not a single weight would agree."""
    again = RunDir(replayed / "recorded" / "0.run")
    one, two = run.weights().load(), again.weights().load()
    assert one.updates == two.updates
    assert all(torch.equal(one.tensors[name], two.tensors[name]) for name in one.tensors)
    assert StoreReader(again.synthetic).num_transitions == StoreReader(run.synthetic).num_transitions > 0


def test_another_arm_learns_something_else(replayed: Path) -> None:
    one, two = (measured(replayed / name.replace(" ", "+") / "0.json") for name in ("recorded", PLAIN))
    assert one["policy"] != two["policy"]
    assert one["updates"] == two["updates"], "what is not shown still takes its time"
    assert two["shown"]["real_transitions"] < one["shown"]["real_transitions"]
    assert two["synthetic"] is None and one["synthetic"]["ratio_mean"] > 0


def test_recorded_clips_are_shown_with_their_provenance(run: RunDir, replayed: Path) -> None:
    shown, recorded = StoreReader(replayed / IMAGINED / "0.run" / "synthetic"), StoreReader(run.synthetic)
    said = measured(replayed / IMAGINED / "0.json")["synthetic"]
    assert 0 < shown.num_transitions <= recorded.num_transitions and said["used"] > 0
    rows = shown.valid_starts
    one, two = (reader.records(rows)["transition"]["provenance"] for reader in (shown, recorded))
    assert (one["source_episode"] == two["source_episode"]).all() and (one["admission"] == 1).all()


def test_repeated_in_another_process_it_is_the_same_and_the_held_out_episode_changes_it(
    run: RunDir, replayed: Path, tmp_path: Path
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    assert ablate(run, one, "holdout_every=2") == 0
    assert ablate(run, two, "holdout_every=2", "parallel=2") == 0
    first, second = measured(one / "recorded" / "0.json"), measured(two / "recorded" / "0.json")
    assert first == second
    assert first["policy"] != measured(replayed / "recorded" / "0.json")["policy"]
    held_out = Recording.open(run.path, "cpu").held_out(2)
    infos = StoreReader(run.real).episodes()
    hidden = sum(info.num_transitions for info in infos if info.episode in held_out)
    assert first["held_out_episodes"] == len(held_out) > 0
    assert first["shown"]["real_transitions"] == sum(info.num_transitions for info in infos) - hidden
    assert not list(one.rglob("*.run")), "the copies are gone"


def test_what_is_finished_is_not_done_again(
    run: RunDir, replayed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    arms = "arms=[recorded,recorded actor.max_env_steps=0]"

    def interrupted(self: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ablation_runs.Replaying, "run", interrupted)
        assert ablate(run, out, arms, "holdout_every=0") == 130
    assert not list(out.rglob("*.json")) and not list(out.rglob("*.run"))
    shutil.copytree(replayed / "recorded", out / "recorded", dirs_exist_ok=True)
    done = (out / "recorded" / "0.json").stat().st_mtime_ns
    monkeypatch.setattr(report, "draw_page", draw_page)
    assert ablate(run, out, arms, "holdout_every=0") == 0
    assert (out / "recorded" / "0.json").stat().st_mtime_ns == done
    alone = "recorded+actor.max_env_steps=0"  # no env step is shown, the warm start alone remains
    assert measured(out / alone / "0.json")["shown"]["real_transitions"] == 0
    rows = {row["arm"]: row for row in json.loads((out / "summary.json").read_text())["rows"]}
    assert rows.keys() == {"recorded", alone}
    assert f"| {alone} |" in (out / "table.md").read_text() and (out / "ablation.png").exists()


def test_a_result_of_another_question_is_not_taken_for_this_one(
    run: RunDir, replayed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ablate(run, replayed, "arms=[recorded]", "holdout_every=2") == 2
    assert "other settings of this arm; choose another name=" in capsys.readouterr().err


def test_true_success_and_ranks_against_the_bench(run: RunDir, replayed: Path, tmp_path: Path) -> None:
    other = PLAIN.replace(" ", "+")
    for arm, success in (("recorded", 0.9), (other, 0.2)):
        path = tmp_path / "bench" / "press_state" / arm / "0.json"
        path.parent.mkdir(parents=True)
        row = {"task": "press", "obs": "state", "arm": arm, "eval_episodes": 10, "final_success": success}
        path.write_text(json.dumps(row | {"minutes": 1.0}))
    out = tmp_path / "out"
    shutil.copytree(replayed, out)
    asked = (ARMS, "holdout_every=0", "report=true", f"online={tmp_path / 'bench'}")
    assert ablate(run, out, *asked, f"summary={tmp_path / 'copy.json'}") == 0
    summary = json.loads((out / "summary.json").read_text())
    assert summary == json.loads((tmp_path / "copy.json").read_text())
    assert {"commit", "machine", "versions", "recorded_minutes", "cpu_minutes"} <= summary.keys()
    rows = {row["arm"]: row for row in summary["rows"]}
    assert rows["recorded"]["online"]["success"] == 0.9 and rows[IMAGINED]["online"] is None
    assert rows["recorded"]["eval_episodes"] == 1 and 0 <= rows["recorded"]["true_success"] <= 1
    online = {row["measure"]: row for row in summary["ranks"]["online"]}
    agrees = 1.0 if rows["recorded"]["fqe"] > rows[other]["fqe"] else -1.0
    assert online["fqe"]["arms"] == 2
    assert [online["fqe"][name] for name in ("spearman", "kendall")] == pytest.approx([agrees, agrees])


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["arms=[rlpdd]"], "arm 'rlpdd': no file"),
        (["arms=[recorded,recorded]"], "arms: recorded twice"),
        (["arms=['recorded robot.task=insert']"], "changes robot.task"),
        (["arms=['recorded demos.episodes=2']"], "changes demos.episodes"),
        (
            ["arms=['recorded correction.kind=keyboard robot.clock=wall pacing.actor_waits=episode']"],
            "robot.clock",
        ),
        (["arms=['recorded agent.discont=0.9']"], "did you mean `agent.discount`?"),
        (["arms=['recorded agent.discount=2']"], "discount in [0, 1)"),
        (["arms=['recorded stream.reward_model=judge.safetensors']"], "the run recorded none"),
        (["arms=['recorded stream.imagined=recorded synthetic.model=none']"], "it needs synthetic.model"),
        (["arms=['recorded stream.imagine=recorded']"], "stream:"),
        (["arms=[oracle_policy]", "seeds=[3]"], "use seeds=[0]"),
        (["arms=[full]"], "recorded no images"),
        (["seeds=[1,1]"], "different numbers"),
        (["online=nowhere"], "online=nowhere: no result of press from state"),
    ],
)
def test_what_cannot_be_answered_is_said_before_anything_is_replayed(
    run: RunDir, tmp_path: Path, capsys: pytest.CaptureFixture[str], overrides: list[str], message: str
) -> None:
    assert ablate(run, tmp_path / "out", *overrides) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1, error
    assert not (tmp_path / "out").exists()


def test_an_own_arm_is_a_small_file(run: RunDir, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arm = tmp_path / "mine.yaml"
    arm.write_text("# @package _global_\nsynthetic: {model: NONE}\nstream: {imagined: RECORDED}\n")
    assert ablate(run, tmp_path / "out", f"arms=[{arm}]") == 2
    assert "it needs synthetic.model" in capsys.readouterr().err
    arm.write_text("- 1")
    assert ablate(run, tmp_path / "out", f"arms=[{arm}]") == 2
    assert "mine.yaml: expected keys with their values" in capsys.readouterr().err


def test_a_run_that_cannot_be_replayed_is_named(
    run: RunDir, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ablate(RunDir(tmp_path / "nowhere"), tmp_path / "out") == 2
    assert "is " in (error := capsys.readouterr().err) and "a run directory of `groundhog train`" in error
    copy = RunDir(tmp_path / "copy")
    shutil.copytree(run.path, copy.path)
    shutil.rmtree(copy.synthetic)
    assert ablate(copy, tmp_path / "out", "arms=['recorded stream.imagined=recorded']") == 2
    assert "the run imagined nothing" in capsys.readouterr().err
    rows = next(copy.real.glob("segments/*/rows.bin"))
    data = bytearray(rows.read_bytes())
    data[len(data) // 3] ^= 0xFF
    rows.write_bytes(data)
    assert ablate(copy, tmp_path / "out") == 2
    assert "do not match their checksums" in capsys.readouterr().err
    shutil.rmtree(copy.real)
    assert ablate(copy, tmp_path / "out") == 2
    assert "no store here" in capsys.readouterr().err
    shutil.copytree(run.demo, copy.real)
    (copy.real / "journal.jsonl").write_text("")
    (copy.real / "count").write_bytes(bytes(8))
    assert ablate(copy, tmp_path / "out") == 2
    assert "no finished episode of the robot" in capsys.readouterr().err
    assert ablate(run, run.real / "out") == 2
    assert "lies in what was recorded" in capsys.readouterr().err
