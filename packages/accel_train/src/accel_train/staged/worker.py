"""The thread of a group: it runs the collectives, one after the other.

So they reach gloo in the order of their calls, which is the same on every rank, and run
in parallel to the program.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import torch
from torch import Tensor

from accel_core.errors import CommunicationError
from accel_train.staged.ending import wait_for_gloo
from accel_train.staged.host import Copies, HostMemory
from accel_train.staged.work import StagedWork, described

__all__ = ["Worker"]

#: Seconds for what still runs when the group is destroyed; a program that waits leaves
#: nothing.
_PATIENCE = 2.0


class Worker:
    """Runs the collectives of one group in the order of their calls."""

    def __init__(self, where: str, copies: Copies, abort: Callable[[], None]) -> None:
        self._where = where
        self._copies = copies
        #: For `call` of `submit`.
        self.memory = HostMemory()
        self._abort = abort
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False

    def submit(
        self,
        name: str,
        call: Callable[[list[Tensor]], list[Tensor]],
        reads: Sequence[Tensor],
        writes: Sequence[Tensor],
        result: Any,
    ) -> StagedWork:
        """Run a collective after those before it, and return its handle.

        `call` gets host copies of `reads`, and returns a host tensor for each of
        `writes`. Raises `CommunicationError` if the group was destroyed.
        """
        tensors = [*reads, *(t for t in writes if all(t is not r for r in reads))]
        work = StagedWork(f"{self._where}: {described(name, tensors)}", result)
        index = self._copies.index(tensors)
        mark = self._copies.mark(index)
        job = partial(self._execute, work, call, reads, writes, index, mark)
        with self._lock:
            self.refuse_if_closed()
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._loop, name="accel-staged", daemon=True
                )
                self._thread.start()
            self._queue.put(job)
        return work

    def refuse_if_closed(self) -> None:
        """Raise `CommunicationError` if the group was destroyed."""
        if self._closed:
            raise CommunicationError(
                f"{self._where}: the process group has been destroyed"
            )

    def close(self) -> None:
        """End the thread; one that does not end soon is abandoned."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._queue.put(None)
        thread = self._thread
        # The last reference to a group may go in the group's own thread.
        if thread is not None and thread is not threading.current_thread():
            thread.join(_PATIENCE)
            if thread.is_alive():
                with suppress(Exception):  # whatever gloo says of its own end
                    self._abort()
                thread.join(_PATIENCE)
        wait_for_gloo()

    def _loop(self) -> None:
        while (job := self._queue.get()) is not None:
            job()
            del job  # it holds the tensors, and perhaps the group

    def _execute(
        self,
        work: StagedWork,
        call: Callable[[list[Tensor]], list[Tensor]],
        reads: Sequence[Tensor],
        writes: Sequence[Tensor],
        index: int | None,
        mark: Any,
    ) -> None:
        try:
            # Inference mode: nothing else may write the tensors of a program in it.
            with torch.inference_mode():
                self.memory.reuse()
                with self._copies.beside(index, mark):
                    sources = [self.memory.copy_of(tensor) for tensor in reads]
                results = call(sources)
                with self._copies.beside(index, mark):
                    for tensor, host in zip(writes, results, strict=True):
                        # Not `copy_` of the tensor itself: autograd would take it for a
                        # change by the program.
                        tensor.data.copy_(host)
        except BaseException as error:
            self.memory.forget()
            work.end(error)
        else:
            work.end()
