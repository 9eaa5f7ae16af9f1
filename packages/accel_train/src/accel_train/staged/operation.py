"""One collective: from the device's tensors to the host, through gloo, and back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor

# Not torch.distributed: it is not needed for more than this.
from torch._C import _distributed_c10d as c10d

from accel_core.errors import CommunicationError
from accel_train.staged.host import Buffers, Queue, bytes_of

__all__ = ["Operation", "StagedWork", "Start"]

#: Starts gloo's work on the host copies of the tensors that are read, and of those that are written.
Start = Callable[[list[Tensor], list[Tensor]], "Sequence[Any]"]
_Span = tuple[int, int, int]


class Operation:
    """A collective: the tensors that it reads and writes, and the call of gloo between.

    A tensor of `both` is read and written in place. `finish` processes the written host copies before they go
    back to the device.
    """

    def __init__(
        self,
        name: str,
        start: Start,
        *,
        reads: Sequence[Tensor] = (),
        writes: Sequence[Tensor] = (),
        both: Sequence[Tensor] = (),
        finish: Callable[[list[Tensor]], None] | None = None,
        packed: bool = False,
        result: Any = None,
    ) -> None:
        self.name = name
        self._start = start
        self._reads, self._writes, self._both = list(reads), list(writes), list(both)
        self._finish = finish
        #: Whether what is read, and what is written, each lie one after the other in one buffer.
        self._packed = packed
        self.result = result if result is not None else [*self._both, *self._writes]
        self._mark: Any = None
        self._taken: list[Tensor] = []
        self._back: list[tuple[Tensor, Tensor]] = []
        self._hosts: list[Tensor] = []
        #: gloo's own work objects, from `enter` to `leave`.
        self.gloo: Sequence[Any] = ()
        #: Set when gloo has it, or when it failed before.
        self.started = threading.Event()

    @property
    def tensors(self) -> list[Tensor]:
        """Return every tensor that the operation reads or writes."""
        return [*self._reads, *self._writes, *self._both]

    def __str__(self) -> str:
        """As an error names it: `all_reduce of 2 tensors, 1024 bytes`."""
        tensors = self.tensors
        if not tensors:
            return self.name
        size = sum(t.numel() * t.element_size() for t in tensors)
        kinds = ", ".join(
            dict.fromkeys(str(t.dtype).removeprefix("torch.") for t in tensors)
        )
        return f"{self.name} of {len(tensors)} tensor{'s'[: len(tensors) > 1]} ({kinds}), {size} bytes"

    def waits_for(self, earlier: Operation) -> bool:
        """Return whether this operation uses memory that `earlier` has yet to write."""
        spans = [_span(t) for t in (*earlier._writes, *earlier._both)]
        mine = [_span(t) for t in self.tensors]
        return any(
            a[0] == b[0] and a[1] < b[2] and b[1] < a[2] for a in spans for b in mine
        )

    def mark(self, queue: Queue) -> None:
        """Record an event in the caller's stream; the tensors may be used after it."""
        self._mark = queue.mark(queue.index(self.tensors))

    def enter(self, queue: Queue, buffers: Buffers, *, inline: bool) -> None:
        """Copy the tensors to the host and pass them to gloo."""
        index = queue.index(self.tensors)
        with (
            torch.no_grad(),
            queue.here(index) if inline else queue.side(index, self._mark),
        ):
            reads = self._place(self._reads, buffers, copy=True)
            both = self._place(self._both, buffers, copy=True, back=True)
            writes = self._place(self._writes, buffers, copy=False, back=True)
        self._hosts = [*both, *writes]
        self.gloo = self._start([*reads, *both], self._hosts)

    def leave(self, queue: Queue, buffers: Buffers, *, inline: bool) -> None:
        """Wait for gloo and copy the results to the device."""
        for work in self.gloo:
            work.wait()
        if self._finish is not None:
            self._finish(self._hosts)
        index = queue.index(self.tensors)
        with (
            torch.no_grad(),
            queue.here(index) if inline else queue.side(index, self._mark),
        ):
            for tensor, host in self._back:
                # Not `copy_` of the tensor itself: autograd would take it for a change by the program.
                tensor.data.copy_(host)
        for buffer in self._taken:
            buffers.give(buffer)
        self.gloo, self._taken, self._back, self._hosts = (), [], [], []

    def is_gloo_done(self) -> bool:
        """Return whether gloo has finished, so that `leave` does not wait for other ranks."""
        return all(work.is_completed() for work in self.gloo)

    def forget(self) -> None:
        """Release the tensors. The buffers are not reused, because gloo may still use them."""
        self._reads, self._writes, self._both = [], [], []

    # Host copies

    def _place(
        self,
        tensors: Sequence[Tensor],
        buffers: Buffers,
        *,
        copy: bool,
        back: bool = False,
    ) -> list[Tensor]:
        """A contiguous host tensor for each, or, `packed`, one row of bytes for all."""
        if self._packed and tensors:
            return [self._pack(tensors, buffers, copy=copy, back=back)]
        hosts = []
        for tensor in tensors:
            if tensor.device.type == "cpu" and tensor.is_contiguous():
                hosts.append(tensor.data)
                continue
            host = self._like(
                tensor, self._take(tensor.numel() * tensor.element_size(), buffers)
            )
            self._exchange(tensor, host, copy=copy, back=back)
            hosts.append(host)
        return hosts

    def _pack(
        self, tensors: Sequence[Tensor], buffers: Buffers, *, copy: bool, back: bool
    ) -> Tensor:
        sizes = [t.numel() * t.element_size() for t in tensors]
        whole = self._take(sum(sizes), buffers)
        first = 0
        for tensor, size in zip(tensors, sizes, strict=True):
            part = whole[first : first + size]
            first += size
            # A view of a type must begin at a multiple of its size: with mixed types the copy goes round.
            if part.storage_offset() % tensor.element_size() == 0:
                self._exchange(tensor, self._like(tensor, part), copy=copy, back=back)
            else:
                self._exchange_bytes(tensor, part, copy=copy, back=back)
        return whole

    def _take(self, size: int, buffers: Buffers) -> Tensor:
        buffer = buffers.take(size)
        self._taken.append(buffer)
        return buffer[:size]

    @staticmethod
    def _like(tensor: Tensor, buffer: Tensor) -> Tensor:
        return buffer.view(tensor.dtype).view(tensor.shape)

    def _exchange(
        self, tensor: Tensor, host: Tensor, *, copy: bool, back: bool
    ) -> None:
        if copy:
            host.copy_(tensor.detach())
        if back:
            self._back.append((tensor, host))

    def _exchange_bytes(
        self, tensor: Tensor, part: Tensor, *, copy: bool, back: bool
    ) -> None:
        between = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
        if copy:
            part.copy_(bytes_of(between.copy_(tensor.detach())))
        if back:
            self._back.append((tensor, between))
            finish = self._finish

            def unpack(hosts: list[Tensor]) -> None:
                if finish is not None:
                    finish(hosts)
                bytes_of(between).copy_(part)

            self._finish = unpack


def _span(tensor: Tensor) -> _Span:
    """The memory that a tensor lies in, and its first element and the one after its last there, in bytes."""
    first = int(tensor.storage_offset())
    last = first + sum(
        (int(n) - 1) * int(s)
        for n, s in zip(tensor.shape, tensor.stride(), strict=True)
    )
    size = tensor.element_size()
    end = (last + 1) * size if tensor.numel() else first * size
    return tensor.untyped_storage()._cdata, first * size, end


class StagedWork(c10d.Work):
    """The handle of a running collective, to wait for.

    `wait` returns when the tensors on the device hold the result. If the collective failed, every `wait`
    raises `CommunicationError`.
    """

    def __init__(self, operation: Operation, where: str) -> None:
        super().__init__()
        self._operation = operation
        self._where = where
        self._result = operation.result
        self._ended = threading.Event()
        self._error: CommunicationError | None = None
        self._future: torch.futures.Future[Any] | None = None
        self._lock = threading.Lock()

    def end(self, error: BaseException | None = None) -> None:
        """Mark the collective as ended, with its `error` if it failed."""
        if error is not None:
            self._error = self._in_words(error)
        self._operation.forget()
        with self._lock:
            self._ended.set()
            future = self._future
        if future is not None:
            self._settle(future)

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait for the result, and return True. Raises `CommunicationError`, which is a `RuntimeError`.

        `timeout` limits this wait only; a collective has its group's timeout.
        """
        seconds = (
            timeout.total_seconds()
            if timeout is not None and timeout > timedelta(0)
            else None
        )
        if not self._ended.wait(seconds):
            raise CommunicationError(
                f"{self._where}: {self._operation} has not ended after {seconds:g} s. Wait longer, "
                "or check what the other ranks are doing."
            )
        if self._error is not None:
            raise self._error
        return True

    def synchronize(self) -> None:
        """Do the same as `wait`: the host learns of the result only when it is on the device."""
        self.wait()

    def is_completed(self) -> bool:
        """Return whether the collective has ended, successfully or not."""
        return self._ended.is_set()

    def is_success(self) -> bool:
        """Return whether the collective has ended successfully."""
        return self._ended.is_set() and self._error is None

    def exception(self) -> BaseException | None:
        """Return the collective's error; `None` if it has none."""
        return self._error

    def result(self) -> Any:
        """Return the tensors that the collective wrote."""
        self.wait()
        return self._result

    def get_future(self) -> torch.futures.Future[Any]:
        """Return a future of `result()`."""
        with self._lock:
            if self._future is not None:
                return self._future
            self._future = torch.futures.Future()
            over = self._ended.is_set()
        if over:
            self._settle(self._future)
        return self._future

    def _settle(self, future: torch.futures.Future[Any]) -> None:
        if self._error is None:
            future.set_result(self._result)
        else:
            future.set_exception(self._error)

    def _in_words(self, error: BaseException) -> CommunicationError:
        text = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        step = ""
        if "imed out" in text:
            step = (
                " One of the other ranks is late, lost, or in another collective: check what they printed. "
                "To wait longer: init_process_group(timeout=…)."
            )
        elif "onnection" in text or "eset by peer" in text:
            step = " Another rank has ended: see what it printed."
        raised = CommunicationError(
            f"{self._where}: {self._operation} failed: {text}.{step}"
        )
        raised.__cause__ = error
        return raised
