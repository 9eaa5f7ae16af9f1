"""Addresses of this host, in a job on several hosts whose names may mislead.

Debian's and Ubuntu's installer writes `127.0.1.1 NAME` to /etc/hosts. Then torchrun does not know that an
address of this host is its own, and gloo tells the other hosts an address at which nobody answers.
"""

from __future__ import annotations

import argparse
import ipaddress
import os
import socket
import struct
from contextlib import suppress
from typing import NamedTuple

__all__ = ["Several", "for_several_hosts", "meeting_point"]

#: torchrun's port where the address names none.
_PORT = 29500
#: Linux's request for an interface's IPv4 address (linux/sockios.h), and where it is in the answer.
_SIOCGIFADDR = 0x8915
_ADDRESS = slice(20, 24)


class Several(NamedTuple):
    """Variables, configuration and sentences for a job on several hosts."""

    #: Variables to set.
    variables: dict[str, str]
    #: What torchrun's `--rdzv-conf` gets as well.
    configuration: str
    #: A sentence for the user about each of them.
    notes: list[str]


def for_several_hosts(arguments: argparse.Namespace) -> Several:
    """Return what a job on several hosts needs where this host's own name is a loopback address.

    If the hosts meet at an address that is this host's, the store is started here. Unless
    `GLOO_SOCKET_IFNAME` is set, it becomes the interface that leads to the meeting point.
    """
    needed = Several({}, "", [])
    if str(arguments.nnodes).rpartition(":")[2] == "1":
        return Several({}, "", [])
    host, port = meeting_point(arguments)
    own_name = socket.gethostname()
    loopback = _loopback_of(own_name)
    if not host or not loopback or _is_loopback(host):
        return needed
    misled = f"this host's name, {own_name}, resolves to {loopback}"
    is_given = "is_host" in (arguments.rdzv_conf or "")
    if arguments.rdzv_backend == "c10d" and not is_given and _is_own(host):
        needed = needed._replace(configuration="is_host=1")
        needed.notes.append(
            f"{misled}, but {host} is an address of it: the hosts meet here "
            "(--rdzv-conf is_host=1)."
        )
    if "GLOO_SOCKET_IFNAME" not in os.environ:
        interface = _interface_towards(host, port)
        if interface:
            needed.variables["GLOO_SOCKET_IFNAME"] = interface
            needed.notes.append(
                f"{misled}, at which other hosts do not find it: "
                f"GLOO_SOCKET_IFNAME={interface} is set for the ranks."
            )
    return needed


def meeting_point(arguments: argparse.Namespace) -> tuple[str, int]:
    """Return host and port at which the hosts meet; torchrun's port if the endpoint names none."""
    if not arguments.rdzv_endpoint:
        return str(arguments.master_addr), int(arguments.master_port)
    host, colon, port = str(arguments.rdzv_endpoint).rpartition(":")
    if not colon or not port.isdecimal():
        return str(arguments.rdzv_endpoint), _PORT
    return host.strip("[]"), int(port)


def _loopback_of(name: str) -> str:
    """Return the loopback address that the name resolves to; empty if it has another, or none."""
    addresses = _addresses(name)
    if not addresses or not all(_is_loopback(address) for address in addresses):
        return ""
    return addresses[0]


def _addresses(name: str) -> list[str]:
    with suppress(OSError, UnicodeError):
        return [str(row[4][0]) for row in socket.getaddrinfo(name, None)]
    return []


def _is_loopback(host: str) -> bool:
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def _is_own(host: str) -> bool:
    """Whether an interface of this host has an address of `host`: a socket can be bound to it."""
    for address in _addresses(host):
        if _is_loopback(address):
            continue
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as probe, suppress(OSError):
            probe.bind((address, 0))
            return True
    return False


def _interface_towards(host: str, port: int) -> str:
    """Return the interface whose IPv4 address packets to `host` have; empty if it is not known."""
    with (
        suppress(OSError),
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe,
    ):
        probe.connect((host, port))  # sends nothing
        own = probe.getsockname()[0]
        for _, name in socket.if_nameindex():
            if _address_of(name, probe) == own:
                return name
    return ""


def _address_of(interface: str, any_socket: socket.socket) -> str:
    """Return the IPv4 address of an interface; empty if it has none, or this is not Linux."""
    try:
        from fcntl import ioctl
    except ImportError:  # Windows
        return ""
    request = struct.pack("256s", interface.encode()[:15])
    with suppress(OSError):
        answer = ioctl(any_socket.fileno(), _SIOCGIFADDR, request)
        return socket.inet_ntoa(answer[_ADDRESS])
    return ""
