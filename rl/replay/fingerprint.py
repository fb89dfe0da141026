"""Fingerprints: one name for an episode wherever its store lies, by which a model says what it has learned from."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np

from rl.replay.reader import StoreReader
from rl.replay.sampler import Holdout


def fingerprint(reader: StoreReader, episode: int) -> str:
    """16 hexadecimal digits from the readings and the actions of a finished episode, in the order of its steps.

    An episode keeps it where its store is moved, copied or goes on growing. One that was cut, resampled or imported
    with another mapping has another.
    """
    info = reader.episodes()[episode]
    records = reader.records(np.arange(info.first_row, info.end_row))
    digest = blake2b(records["observation"]["proprio"].tobytes(), digest_size=8)
    digest.update(records["transition"]["action"][:-1].tobytes())
    return digest.hexdigest()


def fingerprints(reader: StoreReader, holdout: Holdout | None = None) -> frozenset[str]:
    """Of the finished episodes that were not discarded, less those that are held out."""
    numbers = np.array([info.episode for info in reader.episodes() if not info.discarded], np.int64)
    if holdout is not None:
        numbers = numbers[~holdout.contains(numbers)]
    return frozenset(fingerprint(reader, number) for number in numbers.tolist())
