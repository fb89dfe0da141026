"""Recording: a run directory opened to be read alone; what its robot did, and what it learned from."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from rl.agent.spec import AgentSpec
from rl.config import ConfigError, read, to_object
from rl.digests import digest_of
from rl.metrics import read_metrics
from rl.replay.journal import EpisodeInfo
from rl.replay.reader import StoreReader
from rl.runtime.run_dir import RunDir
from rl.schemas import TrainConfig
from rl.summary import session_minutes


@dataclass(frozen=True)
class Recording:
    """A recorded run. synthetic: None where it imagined nothing. identity: changes when the recording does."""

    run: RunDir
    config: TrainConfig
    spec: AgentSpec
    real: StoreReader
    demo: StoreReader
    synthetic: StoreReader | None
    identity: str

    @classmethod
    def open(cls, path: Path, device: str) -> Recording:
        """Raises ConfigError or StoreError, naming the place and the remedy, where `path` holds no run to replay."""
        config = to_object(read(path / "config.yaml", "train", (f"device={device}",)))
        assert isinstance(config, TrainConfig)
        run = RunDir(path)
        real, demo = StoreReader(run.real), StoreReader(run.demo)
        synthetic = StoreReader(run.synthetic) if (run.synthetic / "schema.json").exists() else None
        recording = cls(run, config, run.spec, real, demo, synthetic, _identity(path))
        if not any(info.num_transitions for info in recording.episodes):
            raise ConfigError(
                f"{run.real}: no finished episode of the robot; an ablation replays what the robot did: "
                f"continue the run with `groundhog train resume={path}`"
            )
        return recording

    def verify(self) -> None:
        """Raise CorruptStoreError, naming the rows, where anything that would be shown is damaged."""
        for store in (self.real, self.demo, self.synthetic):
            if store is not None:
                store.verify_all()

    @property
    def episodes(self) -> list[EpisodeInfo]:
        """What the robot did, finished episodes alone, discarded ones included."""
        return self.real.episodes()

    @property
    def env_steps(self) -> int:
        return sum(info.num_transitions for info in self.episodes)

    @property
    def minutes(self) -> float | None:
        """How long the run took, None where it kept no account."""
        spent = session_minutes(read_metrics(self.run.metrics_path))
        return spent[-1] if spent else None

    def held_out(self, every: int) -> frozenset[int]:
        """The episodes that are never learned from: the one in the middle of every `every`; none where it is 0.

        Not the last of them, which a world model keeps for itself to be judged on.
        """
        numbers = range(len(self.episodes))
        return frozenset(n for n in numbers if every and n % every == every // 2)


def _identity(path: Path) -> str:
    parts = [path / "config.yaml", path / "spec.json"]
    parts += [path / store / "journal.jsonl" for store in ("real", "demo", "synthetic")]
    digests = {part.name if part.parent == path else part.parent.name: digest_of(part) for part in parts}
    return hashlib.sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest()
