"""A TCP connection from each rank to rank 0, which shows whether a silent process still exists.

The kernel keeps the connections of a process that is stopped, or that holds Python's lock in one long call,
and answers for it. It closes those of a killed process at once. A host without power or network does not
answer; keep-alive packets and unacknowledged data detect that. A store cannot tell these cases apart.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any
from weakref import WeakSet

try:
    import resource
except ImportError:  # Windows, which has no such limit
    resource = None  # type: ignore[assignment]

__all__ = [
    "CLOSED",
    "FULL",
    "UNANSWERED",
    "Line",
    "addresses_of_this_host",
    "call",
    "listen",
    "make_room",
    "message",
]

#: How a line ended: by the other process or its kernel, or because its host did not answer any more.
CLOSED, UNANSWERED = "closed", "unanswered"
_NO_ANSWER = (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH)
#: What `accept` says where this process, or the machine, may open no more.
FULL = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
#: Files that the rest of a program opens, its data loader's too.
_OTHER_FILES = 256
#: Bytes that a caller may send before it has said who it is.
_STRANGERS_LIMIT = 4096
#: Seconds: for one attempt to connect; for a host that refuses at every address; for the answer of rank 0.
_ATTEMPT, _REFUSED, _ANSWER = 5.0, 15.0, 10.0

#: What a forked child must not hold open: a killed rank would seem to live as long as its data loader.
_open: WeakSet[socket.socket] = WeakSet()


def _close_all() -> None:
    for held in list(_open):
        held.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_all)


def message(word: str, detail: Any = None) -> bytes:
    """Return a message as it goes over a line."""
    return json.dumps([word, detail]).encode() + b"\n"


_BEAT = message("beat")


class Line:
    """One end of a connection; a message is a word and a detail, sent and received without blocking."""

    def __init__(self, connection: socket.socket) -> None:
        _open.add(connection)
        connection.setblocking(False)
        _set(connection, "TCP_NODELAY", 1)
        #: The rank at the other end; -1 until it is known.
        self.rank = -1
        #: `CLOSED` or `UNANSWERED` once it has ended.
        self.end = ""
        self._connection = connection
        self._lock = threading.Lock()
        self._unsent = b""
        self._unread = b""

    def fileno(self) -> int:
        """Return the socket's file descriptor, for selectors."""
        return self._connection.fileno()

    def say(self, word: str, detail: Any = None) -> None:
        """Send a message, or keep it until the other end has room. Errors show up in `hear`."""
        self.send(message(word, detail))

    def send(self, data: bytes) -> None:
        """Send what `message` has made, as `say` does."""
        with self._lock:
            self._unsent += data
            self._send_kept()

    def flush(self) -> None:
        """Send kept messages, as far as the other end has room."""
        with self._lock:
            self._send_kept()

    def _send_kept(self) -> None:
        try:
            while self._unsent:
                self._unsent = self._unsent[self._connection.send(self._unsent) :]
        except BlockingIOError:
            pass
        except OSError:
            self._unsent = b""

    def hear(self) -> list[tuple[str, Any]]:
        """Return the messages that have arrived; sets `end` if no more will come."""
        try:
            while True:
                data = self._connection.recv(1 << 16)
                if (
                    data == _BEAT and not self._unread
                ):  # nearly all; the selector says what else has come
                    return [("beat", None)]
                if not data:
                    self.end = CLOSED
                    break
                self._unread += data
                if self.rank < 0 and len(self._unread) > _STRANGERS_LIMIT:
                    self.end = CLOSED
                    break
        except BlockingIOError:
            pass
        except OSError as error:
            self.end = UNANSWERED if error.errno in _NO_ANSWER else CLOSED
        *whole, self._unread = self._unread.split(b"\n")
        try:
            return [(str(word), detail) for word, detail in map(json.loads, whole)]
        except (ValueError, TypeError, RecursionError):  # no rank speaks so
            self.end = CLOSED
            return []

    def hurry(self, silence: float) -> None:
        """From now on, end the connection if the other host does not answer for about `silence` seconds.

        Call it only at the end of a job: before that, a network that fails for a while may come back, and the
        collectives with it. A system without these socket options uses its own timeouts, which may be hours.
        """
        seconds = max(1, round(silence / 4))
        with contextlib.suppress(OSError):
            self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        _set(self._connection, "TCP_KEEPIDLE", seconds)
        _set(self._connection, "TCP_KEEPALIVE", seconds)  # macOS' name for it
        _set(self._connection, "TCP_KEEPINTVL", seconds)
        _set(self._connection, "TCP_KEEPCNT", 4)
        # A little more than the silence, which is to be told first.
        _set(self._connection, "TCP_USER_TIMEOUT", max(1000, round(silence * 1250)))

    def finish(self) -> None:
        """Stop sending; messages from the other end can still be read."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def _set(connection: socket.socket, option: str, value: int) -> None:
    number = getattr(socket, option, None)
    if number is not None:
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, number, value)


def listen(host: str = "") -> socket.socket:
    """Return a listening socket for other ranks, at a free port of all addresses, or of `host` alone."""
    try:
        if host:
            made = socket.create_server((host, 0), backlog=1 << 12)
        elif socket.has_dualstack_ipv6():
            made = socket.create_server(
                ("", 0), family=socket.AF_INET6, dualstack_ipv6=True, backlog=1 << 12
            )
        else:
            made = socket.create_server(("", 0), backlog=1 << 12)
    except OSError:  # a kernel may know IPv6 and have it switched off
        made = socket.create_server(("", 0), backlog=1 << 12)
    made.setblocking(False)
    _open.add(made)
    return made


def make_room(lines: int) -> int:
    """Raise this process's soft limit of open files if so many lines more do not fit; return what is missing.

    The hard limit is the most that a process may give itself.
    """
    if resource is None:
        return 0
    needed = lines + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = needed if hard == resource.RLIM_INFINITY else hard
    if soft < needed and soft != resource.RLIM_INFINITY:
        with contextlib.suppress(OSError, ValueError):  # a sandbox may forbid it
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            soft = most
    return 0 if soft == resource.RLIM_INFINITY else max(0, needed - soft)


def addresses_of_this_host(toward: str | None, port: int) -> list[str]:
    """Return this host's address in the network of `toward`, and its name, for the other hosts.

    `toward` is the host of the store, `port` is its port; no packet is sent.
    """
    found = []
    if toward:
        with contextlib.suppress(OSError):
            for family, kind, protocol, _, place in socket.getaddrinfo(
                toward, port, type=socket.SOCK_DGRAM
            ):
                with (
                    socket.socket(family, kind, protocol) as probe,
                    contextlib.suppress(OSError),
                ):
                    probe.connect(place)
                    found.append(str(probe.getsockname()[0]))
        found.append(toward)
    return list(dict.fromkeys([*found, socket.gethostname()]))


def call(
    addresses: Iterable[str], port: int, name: str, rank: int, timeout: float
) -> Line:
    """Return a connection of `rank` to rank 0, at the first of `addresses` where rank 0 answers.

    `name` is the round's name, which rank 0 checks. Raises `OSError` if no address accepts the connection,
    and `TimeoutError` if rank 0 does not answer within `timeout` seconds.
    """
    end, refused = time.monotonic() + timeout, time.monotonic() + min(timeout, _REFUSED)
    problem = OSError("no address is known")
    while True:
        connected = False
        for address in addresses:
            try:
                connection = socket.create_connection((address, port), _ATTEMPT)
            except OSError as error:
                problem = error
                continue
            connected = True
            line = _introduced(
                connection, name, rank, min(_ANSWER, max(1.0, end - time.monotonic()))
            )
            if line is not None:
                return line
        if not connected and time.monotonic() > refused:
            raise problem
        if time.monotonic() > end:
            raise TimeoutError(f"no answer within {timeout:g} s")
        time.sleep(0.1)


def _introduced(
    connection: socket.socket, name: str, rank: int, patience: float
) -> Line | None:
    """The line, once the other end has shown that it is rank 0 of this round; `None` where it is not."""
    with suppress(OSError, ValueError, TypeError):
        connection.settimeout(patience)
        connection.sendall(json.dumps(["hello", [name, rank]]).encode() + b"\n")
        answer = b""
        while not answer.endswith(b"\n"):
            # Byte by byte: what follows the answer is for the line.
            byte = connection.recv(1)
            if not byte or len(answer) > _STRANGERS_LIMIT:
                break
            answer += byte
        if json.loads(answer) == ["hello", name]:
            line = Line(connection)
            line.rank = 0
            return line
    connection.close()
    return None
