"""Run the collectives of a process group one after the other, in a thread.

The collectives reach gloo in the order of their calls, which is the same on every rank.
They run in parallel with the program.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

import torch
from torch import Tensor

from accel_core.errors import CommunicationError
from accel_train.staged.ending import wait_for_gloo
from accel_train.staged.host import Copies, HostMemory
from accel_train.staged.work import StagedWork, describe_collective

__all__ = ["Worker"]

#: Seconds that `close` waits for running collectives. If the program has waited for all
#: of its collectives, none is running.
_CLOSE_TIMEOUT = 2.0
#: The maximum number of callbacks that run at the same time. A thread is started only if the others are busy.
_MAX_CALLBACKS = 64


class Worker:
    """A thread that runs a process group's collectives in the order of their calls."""

    def __init__(
        self, group_name: str, copies: Copies, abort: Callable[[], None]
    ) -> None:
        self._group_name = group_name
        self._copies = copies
        #: The host memory of the running collective.
        self.memory = HostMemory()
        self._abort = abort
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        #: Runs the callbacks that the program has added to the futures of collectives. A callback may wait
        #: for another collective, as PowerSGD's hook does, so it must not run in the collectives' thread.
        self._callbacks = ThreadPoolExecutor(_MAX_CALLBACKS, "staged callbacks")
        self._closed = False

    def submit(
        self,
        name: str,
        compute: Callable[[list[Tensor]], list[Tensor]],
        reads: Sequence[Tensor],
        writes: Sequence[Tensor],
        result: Any,
    ) -> StagedWork:
        """Queue a collective for the thread, and return the collective's handle.

        `compute` gets host copies of `reads`, and returns a host tensor for each tensor in `writes`. Each
        host tensor is then copied to its tensor in `writes`. `name` is the collective's name for error
        messages. `result` is the handle's result. Raises `CommunicationError` if the process group has been
        destroyed.
        """
        tensors = list(reads)
        for tensor in writes:
            is_also_read = any(tensor is other for other in reads)
            if not is_also_read:
                tensors.append(tensor)
        description = f"{self._group_name}: {describe_collective(name, tensors)}"
        work = StagedWork(description, result, self._callbacks.submit)
        index = self._copies.device_index(tensors)
        # The copies wait for the work that the program has queued on the device so far.
        earlier_work = self._copies.record_event(index)
        job = partial(
            self._run_collective, work, compute, reads, writes, index, earlier_work
        )
        with self._lock:
            self.require_open()
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run_jobs, name="accel-staged", daemon=True
                )
                self._thread.start()
            self._queue.put(job)
        return work

    def require_open(self) -> None:
        """Raise `CommunicationError` if the process group has been destroyed."""
        if self._closed:
            raise CommunicationError(
                f"{self._group_name}: the process group has been destroyed"
            )

    def close(self) -> None:
        """End the thread. If the thread does not end within 2 seconds, abort gloo and wait 2 more seconds."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._queue.put(None)
        thread = self._thread
        # A group may be garbage collected in its own thread, which cannot wait for itself.
        if thread is not None and thread is not threading.current_thread():
            thread.join(_CLOSE_TIMEOUT)
            if thread.is_alive():
                with suppress(Exception):  # gloo may have ended already.
                    self._abort()
                thread.join(_CLOSE_TIMEOUT)
        if thread is None or not thread.is_alive():
            self._callbacks.shutdown(wait=False)
        wait_for_gloo()

    def _run_jobs(self) -> None:
        """Run queued jobs until `None` is queued."""
        while True:
            job = self._queue.get()
            if job is None:
                return
            job()
            # Otherwise the variable would keep tensors and the group alive during the
            # wait for the next job.
            del job

    def _run_collective(
        self,
        work: StagedWork,
        compute: Callable[[list[Tensor]], list[Tensor]],
        reads: Sequence[Tensor],
        writes: Sequence[Tensor],
        device_index: int | None,
        earlier_work: Any,
    ) -> None:
        """Copy `reads` to the host, call `compute`, copy its results, and end `work`."""
        try:
            # The program's inference tensors can be written only in inference mode.
            with torch.inference_mode():
                self.memory.start_reuse()
                with self._copies.on_side_stream(device_index, earlier_work):
                    host_copies = [self.memory.copy_of(tensor) for tensor in reads]
                results = compute(host_copies)
                with self._copies.on_side_stream(device_index, earlier_work):
                    for tensor, result in zip(writes, results, strict=True):
                        # `data` is used because autograd would treat a `copy_` to the
                        # tensor itself as a change by the program.
                        tensor.data.copy_(result)
        except BaseException as error:
            self.memory.discard()
            work.end(error)
        else:
            work.end()
