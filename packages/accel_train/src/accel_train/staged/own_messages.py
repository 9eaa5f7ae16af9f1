"""Pass messages that a rank sends to itself, as NCCL allows and gloo does not."""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from datetime import timedelta

from torch import Tensor

__all__ = ["OwnMessages"]


class OwnMessages:
    """The messages that a rank sends to itself.

    Messages with the same tag arrive in the order in which they were sent.
    """

    def __init__(self, timeout: timedelta) -> None:
        #: The longest time that a receive waits for its send.
        self.timeout = timeout
        self._lock = threading.Lock()
        self._unreceived_messages: defaultdict[int, deque[Tensor]] = defaultdict(deque)
        self._waiting_receives: defaultdict[int, deque[_ReceiveHandle]] = defaultdict(
            deque
        )

    def send(self, message: Tensor, tag: int) -> _SendHandle:
        """Send a host tensor to this rank itself, and return the handle of the send.

        The tensor must not change afterwards.
        """
        with self._lock:
            if self._waiting_receives[tag]:
                receive_handle = self._waiting_receives[tag].popleft()
                receive_handle.deliver(message)
            else:
                self._unreceived_messages[tag].append(message)
        return _SendHandle()

    def receive(self, target: Tensor, tag: int) -> _ReceiveHandle:
        """Return the handle of a receive operation into `target`. The handle's `wait` copies the message."""
        receive_handle = _ReceiveHandle(target, tag, self.timeout)
        with self._lock:
            if self._unreceived_messages[tag]:
                receive_handle.deliver(self._unreceived_messages[tag].popleft())
            else:
                self._waiting_receives[tag].append(receive_handle)
        return receive_handle


class _SendHandle:
    """The handle of a send. A send has already ended when its handle is created."""

    def wait(self, _timeout: timedelta | None = None) -> bool:
        return True

    def is_completed(self) -> bool:
        return True


class _ReceiveHandle:
    """The handle of a receive operation."""

    def __init__(self, target: Tensor, tag: int, timeout: timedelta) -> None:
        self._target = target
        self._tag = tag
        self._timeout = timeout
        self._message: Tensor | None = None
        self._arrived = threading.Event()

    def deliver(self, message: Tensor) -> None:
        self._message = message
        self._arrived.set()

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait for the message, and copy the message into the target tensor.

        Raises `RuntimeError` if no message arrives in time, or if the message has a different size.
        """
        seconds = (timeout or self._timeout).total_seconds()
        if not self._arrived.wait(seconds) or self._message is None:
            raise RuntimeError(
                f"this rank has not sent itself a message with tag {self._tag} within {seconds:g} s. Next "
                "step: call isend() before this wait()."
            )
        if self._message.shape != self._target.shape:
            raise RuntimeError(
                f"the received message has {self._message.numel()} bytes, expected {self._target.numel()} "
                "bytes"
            )
        self._target.copy_(self._message)
        return True

    def is_completed(self) -> bool:
        return self._arrived.is_set()
