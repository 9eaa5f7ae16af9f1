"""Provide the handles with which a program waits for collectives and messages, and their errors."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import torch
from torch import Tensor

# torch.distributed is not imported, because nothing else in it is needed.
from torch._C import _distributed_c10d as c10d

from accel_core.errors import CommunicationError

__all__ = ["CoalescedWork", "MessageWork", "StagedWork", "describe_collective"]


def describe_collective(name: str, tensors: Sequence[Tensor]) -> str:
    """Return a description of a collective for error messages.

    An example is `all_reduce of 2 tensors (float32), 1024 bytes`.
    """
    if not tensors:
        return name
    total_bytes = 0
    types: list[str] = []
    for tensor in tensors:
        total_bytes += tensor.numel() * tensor.element_size()
        type_name = str(tensor.dtype).removeprefix("torch.")
        if type_name not in types:
            types.append(type_name)
    noun = "tensor" if len(tensors) == 1 else "tensors"
    return f"{name} of {len(tensors)} {noun} ({', '.join(types)}), {total_bytes} bytes"


def _call_immediately(function: Callable[[], None]) -> None:
    function()


class StagedWork(c10d.Work):
    """The handle of a collective that is running or has ended.

    `wait` returns when the tensors on the device contain the result. If the collective failed, every call to
    `wait` raises `CommunicationError`.
    """

    def __init__(
        self,
        description: str,
        result: Any,
        run_callbacks: Callable[[Callable[[], None]], object] = _call_immediately,
    ) -> None:
        """Create the handle of the collective named `description`, whose result will be `result`.

        `run_callbacks` runs the function that is passed to it, by default immediately. The
        function completes the future of `get_future()` and calls the future's callbacks.
        """
        super().__init__()
        self._description = description
        self._result = result
        self._run_callbacks = run_callbacks
        self._ended = threading.Event()
        self._error: CommunicationError | None = None
        self._future: torch.futures.Future[Any] | None = None
        self._lock = threading.Lock()

    def end(self, error: BaseException | None = None) -> None:
        """Mark the collective as ended, with `error` if it failed."""
        if error is not None:
            self._error = _communication_error(self._description, error)
        with self._lock:
            self._ended.set()
            future = self._future
        if future is not None:
            self._run_callbacks(partial(self._complete_future, future))

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait for the collective's result, and return True.

        `timeout` limits only this wait; the collective itself has its group's timeout. Raises
        `CommunicationError`, a `RuntimeError`, if the collective failed or `timeout` has passed.
        """
        seconds = None
        if timeout is not None and timeout > timedelta(0):
            seconds = timeout.total_seconds()
        if not self._ended.wait(seconds):
            raise CommunicationError(
                f"{self._description} has not ended after {seconds:g} s. Next step: wait "
                "longer, or check what the other ranks are doing."
            )
        if self._error is not None:
            raise self._error
        return True

    def synchronize(self) -> None:
        """Wait for the collective's result, like `wait`."""
        self.wait()

    def is_completed(self) -> bool:
        """Return whether the collective has ended, successfully or not."""
        return self._ended.is_set()

    def is_success(self) -> bool:
        """Return whether the collective has ended successfully."""
        return self._ended.is_set() and self._error is None

    def exception(self) -> BaseException | None:
        """Return the collective's error, or `None` if it has not failed."""
        return self._error

    def result(self) -> Any:
        """Wait for the collective to end, and return the tensors that it wrote."""
        self.wait()
        return self._result

    def get_future(self) -> torch.futures.Future[Any]:
        """Return a future that receives the value of `result()` when the collective has ended."""
        with self._lock:
            if self._future is not None:
                return self._future
            self._future = torch.futures.Future()
            has_ended = self._ended.is_set()
        if has_ended:
            self._complete_future(self._future)
        return self._future

    def _complete_future(self, future: torch.futures.Future[Any]) -> None:
        if self._error is None:
            future.set_result(self._result)
        else:
            future.set_exception(self._error)


class MessageWork(c10d.Work):
    """The handle of a send or receive operation.

    A received tensor is copied to the device by the thread that waits for the message.
    """

    def __init__(
        self, description: str, gloo_work: Any, finish: Callable[[], None]
    ) -> None:
        super().__init__()
        self._description = description
        self._gloo_work = gloo_work
        #: Copies a received tensor to the device, or `None` once it has run or failed.
        self._finish: Callable[[], None] | None = finish
        self._error: CommunicationError | None = None
        self._lock = threading.Lock()

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait until the message is sent or received. Raises `CommunicationError` if the operation failed."""
        with self._lock:
            if self._finish is not None:
                self._wait_and_finish(self._finish, timeout)
        if self._error is not None:
            raise self._error
        return True

    def _wait_and_finish(
        self, finish: Callable[[], None], timeout: timedelta | None
    ) -> None:
        """Wait for gloo, then call `finish`. If gloo or `finish` fails, store the error for `wait`."""
        try:
            if timeout is not None and timeout > timedelta(0):
                self._gloo_work.wait(timeout)
            else:
                self._gloo_work.wait()
            finish()
        except Exception as error:
            self._error = _communication_error(self._description, error)
        self._finish = None

    def synchronize(self) -> None:
        """Wait for the message, like `wait`."""
        self.wait()

    def is_completed(self) -> bool:
        """Return whether `wait()` would return without waiting for the other rank."""
        return self._finish is None or bool(self._gloo_work.is_completed())

    def is_success(self) -> bool:
        """Return whether the message was sent or received."""
        return self._finish is None and self._error is None

    def exception(self) -> BaseException | None:
        """Return the error of the send or receive operation, or `None` if it has not failed."""
        return self._error

    def get_future(self) -> None:  # type: ignore[override]
        """Raise `CommunicationError`, because only `wait()` completes a send or receive operation."""
        raise CommunicationError(
            f"{self._description} does not support get_future(). Next step: call wait()."
        )

    def _source_rank(self) -> int:
        """Return the rank from which the message was received."""
        return int(self._gloo_work._source_rank())


class CoalescedWork(c10d.Work):
    """A single handle for several collectives that torch has coalesced."""

    def __init__(self, works: Sequence[Any]) -> None:
        super().__init__()
        self._works = works

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait until all collectives have ended. Raises the error of the first collective that failed."""
        for work in self._works:
            work.wait(timeout)
        return True

    def is_completed(self) -> bool:
        """Return whether all of the coalesced collectives have ended."""
        return all(work.is_completed() for work in self._works)


def _communication_error(operation: str, error: BaseException) -> CommunicationError:
    """Return the error of a failed collective or message, with the next step.

    `operation` describes the collective or message. `error` is the original error.
    """
    lines = str(error).splitlines() or [type(error).__name__]
    message = lines[0].rstrip(".")
    next_step = ""
    # The first letters are left out, because they may be upper case.
    if "imed out" in message:
        next_step = (
            " Another rank is late, has ended, or called a different collective. Next "
            "step: check the output of the other ranks, or set a longer time limit with "
            "init_process_group(timeout=…)."
        )
    elif "onnection" in message or "eset by peer" in message:
        next_step = (
            " Another rank has ended. Next step: check the output of the other ranks."
        )
    communication_error = CommunicationError(
        f"{operation} failed: {message}.{next_step}"
    )
    communication_error.__cause__ = error
    return communication_error
