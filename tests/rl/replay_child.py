"""A writer to be killed: appends episodes as fast as it can until someone stops it.

Run as `python replay_child.py STORE [EPISODES]`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from replay_data import observation, schema, transition

from rl.replay.journal import EndReason, EpisodeOutcome
from rl.replay.writer import StoreWriter


def main(path: Path, episodes: int) -> None:
    with StoreWriter(path, schema(segment_rows=64)) as writer:
        print("ready", flush=True)
        for _ in range(episodes):
            number = writer.begin_episode(observation(writer.num_episodes, 0))
            for step in range(300):
                writer.add(transition(number, step, truncated=step == 299))
            writer.end_episode(EpisodeOutcome(EndReason.TIMEOUT))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000)
