"""What can go wrong with a store; every message says what was expected, what came, and what to do."""

from __future__ import annotations


class StoreError(RuntimeError):
    """A store cannot be opened, written or read."""


class StoreLockedError(StoreError):
    """Another process (or another object of this one) writes this store."""


class StoreFullError(StoreError):
    """The disk has no room for the next segment; nothing of the step was written."""


class CorruptStoreError(StoreError):
    """A file of the store is missing, too short, or does not match its checksum."""


class SchemaMismatchError(StoreError):
    """Two stores (or a store and a run) hold different things; the message names the first difference."""


class EmptyShareError(StoreError):
    """A sampler has no transition to give."""
