"""What this process is trying, noted where the next process finds it should this one not survive.

Nothing in a process guards against a plugin or a vendor's package that ends or crashes it. So before one is
imported, or its device is asked, a private file says which, and the end of the choice removes it. A file that
is left, and whose process has ended, is the note of a death: the next choice tries that version of that
distribution in a child process first, and says so. It is removed once that version has come through in a
process that chooses, or another version is installed. `notes` has the files.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from accel_core.backend import Provenance

if TYPE_CHECKING:
    from types import TracebackType

    from accel_core.detection.notes import Death, Notes

__all__ = ["LOADING", "PROBING", "Note", "tell"]

#: What a step belongs to: reading a plugin's declarations, or asking its device and building its accelerator.
LOADING = "loading"
PROBING = "probing"

#: In a child process that a command asks: told of each step, in the place of a note.
_listener: Callable[[str], None] | None = None


def tell(listener: Callable[[str], None]) -> None:
    """Tell `listener` of every step from now on, and note none: somebody watches this process."""
    global _listener
    _listener = listener


class Note:
    """The note of one choice; a context manager, whose end removes it.

    Nothing is opened, and no folder made, before the first `step` of a plugin. `patience`: seconds after
    which a step that the user interrupts counts as one that hangs, whose note stays.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._begun = 0.0
        self._watched = _listener is not None
        self._files: Notes | None = None
        #: What users are told of earlier processes, in the order in which it came up.
        self.said: list[str] = []

    def __enter__(self) -> Note:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._files is not None:
            waited = time.monotonic() - self._begun
            hung = kind is not None and issubclass(kind, KeyboardInterrupt) and waited > self._patience
            self._files.end(keep=hung)

    def step(self, source: Provenance, name: str, kind: str, what: str) -> None:
        """`what` begins, which runs code of that distribution's, or of its vendor's, in this process."""
        if _listener is not None:
            _listener(what)
        if (files := self._of(source)) is not None:
            self._begun = time.monotonic()
            files.step(source, name, kind, what)

    def survived(self, source: Provenance, kind: str) -> None:
        """That distribution has come through all steps of that kind in this process."""
        if self._files is not None:
            self._files.survived(source, kind)

    def earlier(self, source: Provenance, kind: str) -> Death | None:
        """An earlier process that did not survive those steps of that version of that distribution."""
        files = self._of(source)
        return files.earlier(source, kind) if files is not None else None

    def installed(self, source: Provenance) -> None:
        """That version of that distribution is what is installed; notes of another one are void."""
        if self._files is not None:
            self._files.installed(source)

    def _of(self, source: Provenance) -> Notes | None:
        """The files; `None` for what is built in, and where somebody watches this process."""
        if self._watched or not source.value:
            return None
        if self._files is None:
            from accel_core.detection.notes import Notes  # here, as what is built in needs none

            self._files = Notes()
        return self._files
