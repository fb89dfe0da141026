"""ScriptedTeleop: plays back commands in place of a person."""

from __future__ import annotations

from collections.abc import Sequence

from robot.interfaces import TeleopCommand


class ScriptedTeleop:
    """Gives `commands` one per read, over as many episodes as it takes; then the hands stay off."""

    def __init__(self, commands: Sequence[TeleopCommand]) -> None:
        self._commands = iter(tuple(commands))

    def reset(self) -> None:
        """A new episode begins; the script goes on where it was."""

    def read(self) -> TeleopCommand:
        """The next command; never blocks."""
        return next(self._commands, TeleopCommand())

    def stop_asked(self) -> bool:
        """Never: a script has no stop key."""
        return False

    def close(self) -> None:
        """Nothing to release."""
