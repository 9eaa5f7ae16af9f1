"""The two threads of a group: one copies in and calls gloo, the other waits for gloo and copies out.

So the copies of one collective run in parallel to another's communication, and all in parallel to the
program. Collectives reach gloo in the order of their calls, which is the same on every rank.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

from accel_core.errors import CommunicationError
from accel_train.staged.host import Buffers, Queue
from accel_train.staged.operation import Operation, StagedWork

__all__ = ["Pipeline"]

#: Seconds for what is still under way when the group is destroyed; a program that waits leaves nothing.
_PATIENCE = 2.0


class Pipeline:
    """Runs the operations of one group."""

    def __init__(
        self, where: str, order: Queue, buffers: Buffers, abort: Callable[[], None]
    ) -> None:
        self._where = where
        self._order, self._buffers = order, buffers
        self._abort = abort
        self._in: queue.SimpleQueue[tuple[Operation, StagedWork] | None] = (
            queue.SimpleQueue()
        )
        self._out: queue.SimpleQueue[tuple[Operation, StagedWork] | None] = (
            queue.SimpleQueue()
        )
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        #: Held while an operation is copied in and given to gloo, by whichever thread does it.
        self._entry = threading.Lock()
        #: How many have not been given to gloo.
        self._ahead = 0
        #: Collectives that gloo has, and whose results are not all on the device.
        self._under_way: dict[Operation, StagedWork] = {}
        self._closed = False

    def run(self, operation: Operation, *, asynchronous: bool) -> StagedWork:
        """Start a collective; if `asynchronous` is False, also wait until it has ended.

        Raises `CommunicationError` if it failed, or if the group was destroyed.
        """
        work = StagedWork(operation, self._where)
        if not asynchronous and self._begin_here():
            # Nothing waits before it: two changes of threads would cost more than a small collective.
            try:
                self._pass(operation, work)
            finally:
                self._entry.release()
            if not work.is_completed():
                self._leave(operation, work, inline=True)
            work.wait()
            return work
        operation.mark(self._order)
        self._queue(operation, work)
        if not asynchronous:
            work.wait()
        return work

    def post(self, operation: Operation) -> PeerWork:
        """Start a send or a receive; collectives and these messages do not wait for each other."""
        work = PeerWork(operation, self._where, self._order, self._buffers)
        operation.mark(self._order)
        self._queue(operation, work)
        return work

    def close(self) -> None:
        """End the threads; a thread that does not end soon is abandoned."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._in.put(None)
        # The last reference to a group may go in one of its own threads.
        others = [
            thread
            for thread in self._threads
            if thread is not threading.current_thread()
        ]
        for thread in others:
            thread.join(_PATIENCE)
        if any(thread.is_alive() for thread in others):
            with suppress(Exception):  # whatever gloo says of its own end
                self._abort()
            for thread in others:
                thread.join(_PATIENCE)
        self._buffers.clear()

    def _begin_here(self) -> bool:
        """Whether the caller may copy in by itself; then it holds `_entry`."""
        with self._lock:
            self._refuse_if_closed()
            return self._ahead == 0 and self._entry.acquire(blocking=False)

    def _queue(self, operation: Operation, work: StagedWork) -> None:
        with self._lock:
            self._refuse_if_closed()
            if not self._threads:
                for name, loop in (("in", self._copy_in), ("out", self._copy_out)):
                    thread = threading.Thread(
                        target=loop, name=f"accel-staged-{name}", daemon=True
                    )
                    self._threads.append(thread)
                    thread.start()
            self._ahead += 1
            self._in.put((operation, work))

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise CommunicationError(
                f"{self._where}: the process group has been destroyed"
            )

    # What the threads do

    def _copy_in(self) -> None:
        while (item := self._in.get()) is not None:
            operation, work = item
            with self._entry:
                self._pass(operation, work, inline=False)
            with self._lock:
                self._ahead -= 1
            if not work.is_completed() and not isinstance(work, PeerWork):
                self._out.put(item)
        self._out.put(None)

    def _copy_out(self) -> None:
        while (item := self._out.get()) is not None:
            self._leave(*item, inline=False)

    def _pass(
        self, operation: Operation, work: StagedWork, *, inline: bool = True
    ) -> None:
        """Copy in and give to gloo, or end the work with the error."""
        try:
            self._wait_for_inputs(operation)
            operation.enter(self._order, self._buffers, inline=inline)
            if not isinstance(work, PeerWork):
                with self._lock:
                    self._under_way[operation] = work
        except BaseException as error:
            work.end(error)
            _raise_if_programs(error)
        finally:
            operation.started.set()

    def _wait_for_inputs(self, operation: Operation) -> None:
        with self._lock:
            earlier = [
                work
                for each, work in self._under_way.items()
                if operation.waits_for(each)
            ]
        for work in earlier:
            work.wait()

    def _leave(self, operation: Operation, work: StagedWork, *, inline: bool) -> None:
        error: BaseException | None = None
        try:
            operation.leave(self._order, self._buffers, inline=inline)
        except BaseException as raised:
            error = raised
        with self._lock:
            self._under_way.pop(operation, None)
        work.end(error)
        if error is not None:
            _raise_if_programs(error)


def _raise_if_programs(error: BaseException) -> None:
    """Raise `error` again if it came from a signal while the program waited: Ctrl-C, or its own handler's."""
    if threading.current_thread() is threading.main_thread() and not isinstance(
        error, Exception
    ):
        raise error


class PeerWork(StagedWork):
    """A send or a receive. The thread that waits copies the tensor out, so messages block no others."""

    def __init__(
        self, operation: Operation, where: str, order: Queue, buffers: Buffers
    ) -> None:
        super().__init__(operation, where)
        self._order, self._buffers = order, buffers
        self._one = threading.Lock()
        self._source = -1

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait until the message is sent or received. Raises `CommunicationError`."""
        self._operation.started.wait()
        with self._one:
            if not self.is_over():
                self._leave(timeout)
        return super().wait()

    def is_over(self) -> bool:
        """Return whether the message has ended, successfully or not."""
        return self._ended.is_set()

    def is_completed(self) -> bool:
        """Return whether the message has ended, or would end without waiting for the other rank."""
        if not self._operation.started.is_set():
            return False
        return self.is_over() or self._operation.is_gloo_done()

    def get_future(self) -> None:  # type: ignore[override]
        """Raise `CommunicationError`: a message has no future, because only `wait()` completes it."""
        raise CommunicationError(
            f"{self._where}: {self._operation} has no future. Call wait()."
        )

    def _source_rank(self) -> int:
        """The rank from which it was received."""
        return self._source

    def _leave(self, timeout: timedelta | None) -> None:
        try:
            gloo = self._operation.gloo
            if timeout is not None and timeout > timedelta(0):
                for each in gloo:
                    each.wait(timeout)
            self._operation.leave(self._order, self._buffers, inline=True)
            if self._operation.name == "recv":
                self._source = int(gloo[0]._source_rank())
        except BaseException as error:
            self.end(error)
            _raise_if_programs(error)
        else:
            self.end()
