"""A device whose streams run nothing before somebody waits for them."""

import threading
from contextlib import contextmanager

import pytest


class LateStream:
    """Work that is done when it is waited for, in order."""

    def __init__(self):
        self._left = []
        self._all = 0

    def put(self, work):
        self._left.append(work)
        self._all += 1
        return self._all

    def run(self, until):
        while self._left and self._all - len(self._left) < until:
            self._left.pop(0)()

    def synchronize(self):
        self.run(self._all)


class LateEvent:
    def record(self, stream):
        self._stream, self._until = stream, stream._all

    def synchronize(self):
        self._stream.run(self._until)


class LateDevice:
    """Who forgets to wait reads what was there before, in every run. Its memory is the host's."""

    Event, Stream = LateEvent, LateStream

    def __init__(self):
        self._default = LateStream()
        self._here = threading.local()
        self.streams_used = []

    def device_name(self, device_index=None):
        return "cpu"

    @property
    def selected(self):
        """The device that this thread has selected."""
        return getattr(self._here, "index", None)

    @contextmanager
    def device_guard(self, device_index):
        before, self._here.index = self.selected, device_index
        yield
        self._here.index = before

    @contextmanager
    def stream(self, stream):
        before, self._here.stream = self.current_stream(), stream
        self.streams_used.append(stream)
        yield
        self._here.stream = before

    def current_stream(self, device_index=None):
        return getattr(self._here, "stream", self._default)

    def launch(self, work, *arguments):
        """Put work into this thread's stream."""
        self.current_stream().put(lambda: work(*arguments))


@pytest.fixture
def device():
    pytest.importorskip("torch")
    return LateDevice()
