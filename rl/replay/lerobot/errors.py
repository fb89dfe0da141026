"""What can be wrong with a dataset: with all of it, or with one episode, which is then left out by name."""

from __future__ import annotations

from rl.replay.errors import StoreError


class DatasetError(StoreError):
    """A LeRobot dataset cannot be read or written; the message names the file and the remedy."""


class EpisodeError(DatasetError):
    """One episode is not usable; an import leaves it out and reports the message as the reason."""
