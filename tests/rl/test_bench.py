"""The bench: results tell their settings, a table says where it pools several, and cuts nothing off its page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import ceiling
from rl import bench_report
from rl.bench_report import BEGIN, END, write_bench_report
from rl.bench_runs import settings_digest
from rl.config import load_dict
from rl.provenance import write_json
from rl.runtime.run_dir import RunDir


def result(seed: int, **more: Any) -> dict[str, Any]:
    numbers = dict.fromkeys(
        ("env_steps", "updates", "minutes", "cycle_steps", "correction_rate", "correction_seconds"), 1.0
    )
    counts = dict.fromkeys(("generated", "used", "ratio_mean", "running_env_steps", "sustained_env_steps"))
    told = {"task": "press", "obs": "state", "arm": "rlpd", "seed": seed}
    outcome = {"final_success": 0.5, "eval_episodes": 100, "curve": []}
    return numbers | counts | {"generated": 0, "used": 0} | told | outcome | more


def test_the_digest_is_of_settings_and_not_of_seed_device_and_places(tmp_path: Path) -> None:
    def digest(name: str, *overrides: str) -> str:
        run = RunDir.create(tmp_path / name, load_dict("train", ["experiment=press_pixels", *overrides]))
        return settings_digest(run.path / "config.yaml")

    models = [tmp_path / name for name in ("one", "copy", "other")]
    for path, content in zip(models, ("1", "1", "2"), strict=True):
        path.write_text(content)
    one, copy, other = (f"synthetic.video.world_model={path}" for path in models)
    first = digest("a", "seed=0", "name=0", "runs_dir=here", "demos.path=here", one)
    assert first == digest("b", "seed=1", "name=1", "runs_dir=there", "demos.path=there", copy)
    assert first != digest("c", "demos.path=here", one, "agent.discount=0.9")
    assert first != digest("d", "demos.path=here", other), "another world model"
    assert first != digest("e", one), "it records its own demonstrations"
    stores = [tmp_path / name for name in ("recorded", "again")]
    for store in stores:
        store.mkdir()
        (store / "journal.jsonl").write_text(store.name)
    told = [digest(f"on_{store.name}", f"synthetic.video.anchors={store}") for store in stores]
    assert told[0] != told[1], "other recordings"
    assert told[0] == digest("f", f"synthetic.video.anchors={stores[0]}")


@pytest.mark.parametrize(
    ("settings", "cell"),
    [(["a", "a", "a"], "3"), (["a", "b", None], "3, 2 settings"), ([None, None, "a"], "3")],
)
def test_seeds_of_different_settings_are_marked(settings: list[str | None], cell: str) -> None:
    told = [result(i) | ({} if one is None else {"settings": one}) for i, one in enumerate(settings)]
    assert f"| rlpd | {cell} |" in bench_report.table({("press", "state", "rlpd"): told})
    assert f"| rlpd | {cell} |" in ceiling.table({"rlpd": dict(enumerate(told))})


def test_a_new_page_gets_the_table_and_the_rest_of_an_old_one_stays(tmp_path: Path) -> None:
    write_json(tmp_path / "results" / "press_state" / "rlpd" / "0.json", result(0))
    page = write_bench_report(tmp_path / "results", tmp_path / "docs")
    assert page.read_text().startswith(f"# Results\n\n{BEGIN}\n| task |")
    page.write_text(f"above\n{BEGIN}\n{END}\nbelow\n")
    write_bench_report(tmp_path / "results", tmp_path / "docs")
    text = page.read_text()
    assert text.startswith(f"above\n{BEGIN}\n| task |") and text.endswith(f"|\n{END}\nbelow\n")


@pytest.mark.parametrize("text", ["above\n", f"above\n{BEGIN}\nbelow\n", f"above\n{END}\nbelow\n"])
def test_a_page_that_lacks_a_mark_is_left_alone(tmp_path: Path, text: str) -> None:
    write_json(tmp_path / "results" / "press_state" / "rlpd" / "0.json", result(0))
    (tmp_path / "results.md").write_text(text)
    with pytest.raises(ValueError, match=r"results\.md: expected the marks"):
        write_bench_report(tmp_path / "results", tmp_path)
    assert (tmp_path / "results.md").read_text() == text
