"""Find out which file or connection a process waits for, from `/proc` of Linux."""

import contextlib
import os
import platform
import socket
import struct
import sys
from pathlib import Path
from typing import NamedTuple

#: For each machine: system calls that can wait for a file or a connection, by number.
_SYSTEM_CALLS = {
    "x86_64": {
        0: "read", 1: "write", 2: "open", 7: "poll", 16: "ioctl", 42: "connect", 43: "accept",
        44: "sendto", 45: "recvfrom", 47: "recvmsg", 72: "fcntl", 73: "flock", 202: "futex",
        257: "openat", 271: "ppoll",
    },
    "aarch64": {
        25: "fcntl", 29: "ioctl", 32: "flock", 56: "openat", 63: "read", 64: "write", 73: "ppoll",
        98: "futex", 202: "accept", 203: "connect", 206: "sendto", 207: "recvfrom", 212: "recvmsg",
    },
}  # fmt: skip
#: The maximum number of bytes of a path that are read from the memory of a process.
_MAX_PATH = 4096


class _Call(NamedTuple):
    """A system call that a thread has not returned from."""

    name: str
    arguments: tuple[int, ...]


def awaited_object(pid: int) -> str:
    """Return the system call in which a process waits, and the file or connection for
    which it waits, such as `"open() of /tmp/pipe"`.

    The first thread that waits for something with a name determines the result, and the
    main thread comes first. The result is empty if no thread waits for something with a
    name, or if this system is not Linux.
    """
    if sys.platform != "linux":
        return ""
    # A thread may end at any time, and the kernel may forbid the examination.
    with contextlib.suppress(OSError, ValueError):
        thread_ids = sorted(os.listdir(f"/proc/{pid}/task"), key=int)
        for thread_id in thread_ids:
            call = _current_call(f"/proc/{pid}/task/{thread_id}")
            if call is None:
                continue
            target = _object_of(pid, call)
            if target:
                return f"{call.name}() of {target}"
    return ""


def _current_call(thread_folder: str) -> _Call | None:
    """Return the system call in which a thread waits, or `None` if the thread runs or is
    in a call that is not in `_SYSTEM_CALLS`.
    """
    # The file contains the number of the call and then its arguments, in hexadecimal. If
    # the thread runs, the file contains the word "running".
    text = Path(thread_folder, "syscall").read_text(encoding="ascii")
    number, *arguments = text.split()
    if not number.isdecimal():
        return None
    name_by_number = _SYSTEM_CALLS.get(platform.machine(), {})
    name = name_by_number.get(int(number))
    if name is None:
        return None
    return _Call(name, tuple(int(argument, 16) for argument in arguments))


def _object_of(pid: int, call: _Call) -> str:
    """Return the path or the address of the file or connection that a system call uses,
    or an empty string if there is no such name.
    """
    first, second, third = call.arguments[:3]
    if call.name == "open":  # open(path, flags, mode)
        return _path_at(pid, first)
    if call.name == "openat":  # openat(folder, path, flags, mode)
        return _path_at(pid, second)
    if call.name == "connect":  # connect(descriptor, address, size)
        return _address(_read_memory(pid, second, third))
    if call.name == "futex":  # futex(address, …): a lock, or a semaphore of POSIX
        return _mapped_file(pid, first)
    descriptor = first
    if call.name in ("poll", "ppoll"):  # poll(array, count, timeout)
        # The array begins with the descriptor of its first element.
        [descriptor] = struct.unpack("=i", _read_memory(pid, first, 4))
    return _object_of_descriptor(pid, descriptor)


def _mapped_file(pid: int, address: int) -> str:
    """Return the path of the file that is mapped at an address, such as
    `"/dev/shm/sem.job"`, or an empty string if the memory belongs to no file.
    """
    for line in Path(f"/proc/{pid}/maps").read_text(encoding="utf-8").splitlines():
        # For example: 7f2c0000-7f2c1000 rw-s 00000000 00:19 1234   /dev/shm/sem.job
        columns = line.split(maxsplit=5)
        start, end = (int(bound, 16) for bound in columns[0].split("-"))
        if start <= address < end and len(columns) == 6:
            return columns[5] if columns[5].startswith("/") else ""
    return ""


def _read_memory(pid: int, address: int, size: int) -> bytes:
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:  # noqa: PTH123
        memory.seek(address)
        return memory.read(size)


def _path_at(pid: int, address: int) -> str:
    return _decode_c_string(_read_memory(pid, address, _MAX_PATH))


def _decode_c_string(data: bytes) -> str:
    """Return the text before the first NUL byte."""
    text, _, _ = data.partition(b"\0")
    return os.fsdecode(text)


def _address(socket_address: bytes) -> str:
    """Return the address in a `struct sockaddr`, or an empty string for an unknown family."""
    family_bytes, address = socket_address[:2], socket_address[2:]
    [family] = struct.unpack("=H", family_bytes)
    if family == socket.AF_UNIX:
        return _decode_c_string(address)
    if family == socket.AF_INET:
        port_bytes, ip_bytes = address[:2], address[2:6]
        [port] = struct.unpack("!H", port_bytes)
        return f"{socket.inet_ntoa(ip_bytes)}:{port}"
    return ""


def _object_of_descriptor(pid: int, descriptor: int) -> str:
    """Return the path of an open file, or the address to which a TCP socket is connected."""
    target = os.fspath(Path(f"/proc/{pid}/fd/{descriptor}").readlink())
    if target.startswith("socket:["):  # A socket is `socket:[12345]`, with its inode.
        inode = target.removeprefix("socket:[").removesuffix("]")
        return _peer_of_tcp_socket(pid, int(inode))
    # A pipe without a name, for example, is `pipe:[12345]`.
    return target if target.startswith("/") else ""


def _peer_of_tcp_socket(pid: int, inode: int) -> str:
    """Return the IPv4 address and port to which a socket is connected, or an empty string."""
    # Each line after the titles describes a socket (proc(5), /proc/net/tcp).
    remote_address_column, inode_column = 2, 9
    table = Path(f"/proc/{pid}/net/tcp").read_text(encoding="ascii")
    _titles, *lines = table.splitlines()
    for line in lines:
        columns = line.split()
        if columns[inode_column] == str(inode):
            # Both are hexadecimal, and the address is in the byte order of the machine.
            address, port = columns[remote_address_column].split(":")
            packed_address = struct.pack("=I", int(address, 16))
            return f"{socket.inet_ntoa(packed_address)}:{int(port, 16)}"
    return ""
