"""The base of every collective of the staged process group, and messages between two ranks."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor
from torch._C import _distributed_c10d as c10d

from accel_train.staged.calls import listed, options, require_dense
from accel_train.staged.device import STAGED, Device
from accel_train.staged.ending import wait_for_gloo
from accel_train.staged.host import Buffers, Queue, bytes_of
from accel_train.staged.operation import Operation, StagedWork
from accel_train.staged.pipeline import Pipeline

__all__ = ["Base", "Together"]

# Any: torch declares members with overloads that nobody calls on a group of Python's.
_ProcessGroup: Any = c10d.ProcessGroup


class Base(_ProcessGroup):  # type: ignore[misc]
    """A process group over gloo: its threads, barrier, send and receive."""

    def __init__(
        self, device: Device, store: Any, rank: int, size: int, timeout: timedelta
    ) -> None:
        super().__init__(rank, size)
        self._gloo: Any = c10d.ProcessGroupGloo(store, rank, size, timeout)
        # torch asks for the device types when it moves pickled objects: they need not leave the host.
        self._register_backend(
            torch.device("cpu"), c10d.ProcessGroup.BackendType.GLOO, self._gloo
        )
        self._where = (
            f"rank {rank} of {size}, staged over gloo for {device.device_name()}"
        )
        abort = getattr(
            self._gloo, "abort", lambda: None
        )  # older ones cannot be stopped
        self._pipeline = Pipeline(self._where, Queue(device), Buffers(device), abort)
        self._close = weakref.finalize(self, self._pipeline.close)
        self._together: list[Any] | None = None

    def getBackendName(self) -> str:  # noqa: N802 - torch's name
        """Return `"staged"`."""
        return STAGED

    def _get_backend(self, _device: torch.device) -> Any:
        """gloo, for every device: it is what communicates."""
        return self._gloo

    def _set_default_timeout(self, timeout: timedelta) -> None:
        self._gloo._set_default_timeout(timeout)

    def set_timeout(self, timeout: timedelta) -> None:
        """Set the timeout of the collectives that follow."""
        self._gloo.set_timeout(timeout)

    def shutdown(self) -> None:
        """End the threads. torch calls this when the group is destroyed."""
        self._close()
        wait_for_gloo()

    def abort(self) -> None:
        """Cancel the operations that are running."""
        self._close()

    # Two ranks; and none

    def send(self, tensors: Any, destination: int, tag: int = 0) -> Any:
        """Send a tensor to a rank, which receives it with the same tag."""
        return self._post(
            "send", tensors, lambda row: self._gloo.send([row], destination, tag)
        )

    def recv(self, tensors: Any, source: int, tag: int = 0) -> Any:
        """Receive a tensor from a rank."""
        return self._post(
            "recv", tensors, lambda row: self._gloo.recv([row], source, tag)
        )

    def recv_anysource(self, tensors: Any, tag: int = 0) -> Any:
        """Receive a tensor from any rank that sends one; the returned work knows from which."""
        return self._post(
            "recv", tensors, lambda row: self._gloo.recv_anysource([row], tag)
        )

    def _post(self, name: str, tensors: Any, call: Callable[[Tensor], Any]) -> Any:
        tensors = listed(tensors)
        require_dense(tensors)

        def start(sources: list[Tensor], targets: list[Tensor]) -> Sequence[Any]:
            return [call(bytes_of(host)) for host in sources or targets]

        if name == "send":
            return self._note(
                self._pipeline.post(
                    Operation(name, start, reads=tensors, result=tensors)
                )
            )
        return self._note(self._pipeline.post(Operation(name, start, writes=tensors)))

    def barrier(self, opts: Any = None) -> Any:
        """Wait until every rank has called this, and the earlier collectives have been started."""
        given = options(c10d.BarrierOptions, opts)
        operation = Operation(
            "barrier", lambda _sources, _targets: [self._gloo.barrier(given)], result=[]
        )
        return self._run(operation, opts)

    # Several as one

    def _start_coalescing(self, _device: torch.device) -> None:
        self._together = []

    def _end_coalescing(self, _device: torch.device) -> Any:
        works, self._together = self._together or [], None
        return Together(works)

    def _run(self, operation: Operation, opts: Any) -> Any:
        # Before torch 2.7 the options do not say it: then torch waits by itself.
        asynchronous = self._together is not None or getattr(opts, "asyncOp", True)
        return self._note(self._pipeline.run(operation, asynchronous=asynchronous))

    def _note(self, work: StagedWork) -> StagedWork:
        if self._together is not None:
            self._together.append(work)
        return work


class Together(c10d.Work):
    """Several collectives that are waited for as one."""

    def __init__(self, works: Sequence[Any]) -> None:
        super().__init__()
        self._works = works

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait until all have ended. Raises the error of the first that failed."""
        for work in self._works:
            work.wait(timeout)
        return True

    def is_completed(self) -> bool:
        """Return whether all have ended."""
        return all(work.is_completed() for work in self._works)
