"""Find out which file or connection a process waits for, from the files in `/proc` of Linux."""

import contextlib
import os
import platform
import socket
import struct
import sys
from pathlib import Path
from typing import NamedTuple

#: System calls that wait for a file or a connection, by their number on x86-64 and on AArch64.
_SYSTEM_CALLS = {
    "x86_64": {
        0: "read", 1: "write", 2: "open", 7: "poll", 16: "ioctl", 42: "connect", 43: "accept",
        44: "sendto", 45: "recvfrom", 47: "recvmsg", 72: "fcntl", 73: "flock", 257: "openat",
        271: "ppoll",
    },
    "aarch64": {
        25: "fcntl", 29: "ioctl", 32: "flock", 56: "openat", 63: "read", 64: "write", 73: "ppoll",
        202: "accept", 203: "connect", 206: "sendto", 207: "recvfrom", 212: "recvmsg",
    },
}  # fmt: skip
#: The maximum number of bytes of a path that are read from the memory of a process.
_MAX_PATH = 4096


class _Call(NamedTuple):
    """A system call that a thread has not returned from."""

    name: str
    arguments: tuple[int, ...]


def awaited_object(pid: int) -> str:
    """Return the system call in which a process waits, with its object, such as `"open() of /tmp/pipe"`.

    The threads are examined in the order of their start, so the main thread is the first. Returns an empty
    string if no thread waits for something that has a name, or if this is not Linux.
    """
    if sys.platform != "linux":
        return ""
    # A thread may end at any time, and the kernel may forbid the examination.
    with contextlib.suppress(OSError, ValueError):
        for task in sorted(os.listdir(f"/proc/{pid}/task"), key=int):
            call = _current_call(f"/proc/{pid}/task/{task}")
            target = _object_of(pid, call) if call is not None else ""
            if call is not None and target:
                return f"{call.name}() of {target}"
    return ""


def _current_call(task: str) -> _Call | None:
    """Return the system call of a thread, or `None` if it runs or waits for no file or connection."""
    words = Path(task, "syscall").read_text(encoding="ascii").split()
    names = _SYSTEM_CALLS.get(platform.machine(), {})
    name = names.get(int(words[0])) if words[0].isdecimal() else None
    if name is None:
        return None
    return _Call(name, tuple(int(word, 16) for word in words[1:]))


def _object_of(pid: int, call: _Call) -> str:
    """Return the path or the address that a system call is about, or an empty string if it has no name."""
    first, second, third = call.arguments[:3]
    if call.name == "open":
        return _path_at(pid, first)
    if call.name == "openat":
        return _path_at(pid, second)
    if call.name == "connect":
        return _address(_read_memory(pid, second, third))
    if call.name in ("poll", "ppoll"):
        # The first field of the first element is the file descriptor.
        [first] = struct.unpack("=i", _read_memory(pid, first, 4))
    return _object_of_descriptor(pid, first)


def _read_memory(pid: int, address: int, size: int) -> bytes:
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:  # noqa: PTH123
        memory.seek(address)
        return memory.read(size)


def _path_at(pid: int, address: int) -> str:
    return os.fsdecode(_read_memory(pid, address, _MAX_PATH).partition(b"\0")[0])


def _address(data: bytes) -> str:
    """Return the address in a `struct sockaddr`, or an empty string for an unknown family."""
    [family] = struct.unpack("=H", data[:2])
    if family == socket.AF_UNIX:
        return os.fsdecode(data[2:].partition(b"\0")[0])
    if family == socket.AF_INET:
        [port] = struct.unpack("!H", data[2:4])
        return f"{socket.inet_ntoa(data[4:8])}:{port}"
    return ""


def _object_of_descriptor(pid: int, descriptor: int) -> str:
    """Return the path of an open file, or the address to which a TCP socket is connected."""
    target = os.fspath(Path(f"/proc/{pid}/fd/{descriptor}").readlink())
    if target.startswith("socket:["):
        inode = int(target[len("socket:[") : -1])
        return _peer_of_tcp_socket(pid, inode)
    # A pipe without a name, for example, is `pipe:[12345]`.
    return target if target.startswith("/") else ""


def _peer_of_tcp_socket(pid: int, inode: int) -> str:
    """Return the IPv4 address and port to which a socket is connected, or an empty string."""
    table = Path(f"/proc/{pid}/net/tcp").read_text(encoding="ascii")
    for line in table.splitlines()[1:]:
        columns = line.split()
        if columns[9] == str(inode):
            address, port = columns[2].split(":")
            packed = struct.pack("=I", int(address, 16))
            return f"{socket.inet_ntoa(packed)}:{int(port, 16)}"
    return ""
