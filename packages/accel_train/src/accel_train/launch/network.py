"""Correct torchrun's and gloo's choice of addresses on a host whose name resolves to a loopback address.

The installers of Debian and Ubuntu write `127.0.1.1 NAME` to /etc/hosts. Then torchrun does not recognize
this host's address in `--rdzv-endpoint`, and gloo publishes 127.0.1.1, which other hosts cannot reach.
"""

from __future__ import annotations

import argparse
import errno
import ipaddress
import os
import socket
import struct
from contextlib import suppress
from typing import NamedTuple

from accel_core import hardware

__all__ = [
    "LoopbackFailure",
    "NetworkSettings",
    "addressed_interfaces",
    "check_loopback",
    "check_own_name",
    "network_settings",
    "rendezvous_endpoint",
]  # fmt: skip

#: torchrun's port for an endpoint without one.
_DEFAULT_PORT = 29500
#: The number of seconds within which this host must be able to connect to itself.
_LOOPBACK_SECONDS = 5.0
#: The file with the ports that Linux gives no program that asks for any free port.
_RESERVED_PORTS = "/proc/sys/net/ipv4/ip_local_reserved_ports"
#: The ioctl for an interface's IPv4 address (linux/sockios.h), and the bytes of the address in its answer.
_SIOCGIFADDR = 0x8915
_ADDRESS = slice(20, 24)


class NetworkSettings(NamedTuple):
    """Network settings for a job on several hosts, with sentences for the user."""

    #: Environment variables to set.
    variables: dict[str, str]
    #: An addition to torchrun's `--rdzv-conf`, which may be empty.
    rdzv_conf: str
    #: A sentence about each setting, or about an endpoint that no other host can reach.
    notes: list[str]


def network_settings(arguments: argparse.Namespace) -> NetworkSettings:
    """Return the network settings that a job on several hosts needs on this host.

    The result has settings only if this host's name resolves only to loopback addresses. If the rendezvous
    endpoint is this host, torchrun gets `is_host=1` and starts the store here. `GLOO_SOCKET_IFNAME`, unless
    it is already set, becomes the network interface with the route to the endpoint. If the endpoint is a
    loopback address, the result has only a note that no other host can reach the endpoint.
    """
    # The option is a number of hosts, or a minimum and a maximum such as "2:4".
    _, _, max_hosts = str(arguments.nnodes).rpartition(":")
    variables: dict[str, str] = {}
    rdzv_conf = ""
    notes: list[str] = []
    if max_hosts == "1":
        return NetworkSettings(variables, rdzv_conf, notes)
    host, port = rendezvous_endpoint(arguments)
    if _is_loopback(host):
        notes.append(_note_on_waiting(arguments, host, port))
        return NetworkSettings(variables, rdzv_conf, notes)
    own_name = socket.gethostname()
    loopback = _loopback_address_of(own_name)
    if not loopback or not host:
        return NetworkSettings(variables, rdzv_conf, notes)
    if _needs_is_host(arguments, host):
        rdzv_conf = "is_host=1"
        notes.append(
            f"this host's name, {own_name}, resolves to {loopback}, but {host} is an address of this host, "
            "so torchrun's store is started here (--rdzv-conf is_host=1)."
        )
    if "GLOO_SOCKET_IFNAME" not in os.environ:
        interface = _interface_with_route_to(host, port)
        if interface:
            variables["GLOO_SOCKET_IFNAME"] = interface
            notes.append(
                f"this host's name, {own_name}, resolves to {loopback}, which other hosts cannot reach, so "
                f"GLOO_SOCKET_IFNAME={interface} is set for the ranks."
            )
    return NetworkSettings(variables, rdzv_conf, notes)


def _note_on_waiting(arguments: argparse.Namespace, host: str, port: int) -> str:
    """Return a note for a job on several hosts whose endpoint is a loopback address of this host."""
    nnodes = str(arguments.nnodes)
    setting, step = f"--nnodes {nnodes}", "--nnodes 1"
    if os.environ.get("PET_NNODES") == nnodes:
        setting, step = f"PET_NNODES={nnodes} in the environment", "unset PET_NNODES"
    return (
        f"{setting} makes torchrun wait for other launchers at {host}:{port}, which only launchers on this "
        f"host can reach. For a job with only this launcher: {step}. For a job on several hosts: "
        "--rdzv-endpoint HOST:PORT"
    )


class LoopbackFailure(NamedTuple):
    """Why this host cannot connect to itself, and the next step."""

    #: The address, such as `"127.0.0.1"` or `"10.0.0.7, the address of this host's name node7"`.
    address: str
    error: str
    #: The next step, or an empty string if none is known.
    step: str

    def __str__(self) -> str:
        return f"this host cannot connect to itself at {self.address}: {self.error}"


def check_loopback() -> LoopbackFailure | None:
    """Connect from this host to itself at 127.0.0.1, and return the failure, or `None` on success."""
    try:
        _connect_to_itself("127.0.0.1")
    except OSError as error:
        reason = error.strerror or str(error)
        return LoopbackFailure("127.0.0.1", reason, _step_for_loopback(error))
    return None


def check_own_name() -> LoopbackFailure | None:
    """Connect from this host to itself at the addresses of its name.

    torchrun and `accel doctor --ranks 2` give the name to the ranks as the address of the store. Returns
    `None` if a connection to one of the addresses succeeds, and otherwise the last failure.
    """
    name = socket.gethostname()
    # The failure if the name has no addresses, so that the loop below does nothing.
    failure = LoopbackFailure(
        address=f"this host's name {name}",
        error="the name cannot be resolved",
        step=f"add the line `127.0.1.1 {name}` to /etc/hosts",
    )
    for address in dict.fromkeys(_addresses(name)):
        try:
            _connect_to_itself(address)
        except OSError as error:
            reason = error.strerror or str(error)
            step = _step_for_loopback(error)
            if error.errno == errno.EADDRNOTAVAIL:
                reason = "the address does not belong to this host"
                step = f"correct the address of {name} in /etc/hosts or in the DNS"
            failure = LoopbackFailure(
                f"{address}, the address of this host's name {name}", reason, step
            )
        else:
            return None
    return failure


def _connect_to_itself(address: str) -> None:
    """Connect to a socket that listens at an address of this host, or raise `OSError`."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as listener:
        listener.bind((address, 0))
        listener.listen()
        _address, port, *_ = listener.getsockname()
        socket.create_connection((address, port), _LOOPBACK_SECONDS).close()


def _step_for_loopback(error: OSError) -> str:
    """Return the next step after a failed connection to this host, or an empty string if none is known."""
    if error.errno in (errno.ENETUNREACH, errno.ENETDOWN):
        return "run as root: ip link set lo up"
    if error.errno in (errno.EADDRINUSE, errno.EADDRNOTAVAIL):
        if hardware.read_text(_RESERVED_PORTS).strip():
            return (
                f"release reserved ports, which {_RESERVED_PORTS} lists: run as root: sysctl -w "
                "net.ipv4.ip_local_reserved_ports="
            )
        return (
            "free a port of the range in /proc/sys/net/ipv4/ip_local_port_range, or widen the range: `ss "
            "-tanp` shows the ports in use, and as root their processes"
        )
    # A packet filter either drops a packet or rejects it.
    is_rejected = error.errno in (errno.EPERM, errno.EACCES, errno.ECONNREFUSED)
    if isinstance(error, TimeoutError) or is_rejected:
        return "permit connections over the interface lo in the firewall of this host"
    return ""


def _needs_is_host(arguments: argparse.Namespace, host: str) -> bool:
    """Return whether torchrun needs `is_host=1`, because `host` is this host and c10d is the rendezvous."""
    is_set_by_user = "is_host" in (arguments.rdzv_conf or "")
    if arguments.rdzv_backend != "c10d" or is_set_by_user:
        return False
    return _is_this_host(host)


def rendezvous_endpoint(arguments: argparse.Namespace) -> tuple[str, int]:
    """Return the rendezvous host and port from torchrun's options.

    The host and port come from `--rdzv-endpoint`, or otherwise from `--master-addr` and `--master-port`. For
    an endpoint without a port, torchrun's default port is returned.
    """
    if not arguments.rdzv_endpoint:
        # In torch 2.13, master_port may be None: on a single host, torchrun then uses a free port.
        return str(arguments.master_addr), int(arguments.master_port or _DEFAULT_PORT)
    endpoint = str(arguments.rdzv_endpoint)
    host, colon, port = endpoint.rpartition(":")
    has_port = bool(colon) and port.isdecimal()
    if not has_port:
        return endpoint, _DEFAULT_PORT
    # An IPv6 address is in brackets.
    return host.strip("[]"), int(port)


def _loopback_address_of(name: str) -> str:
    """Return the loopback address that `name` resolves to.

    Returns an empty string if `name` also resolves to another address, or to no address.
    """
    addresses = _addresses(name)
    if addresses and all(_is_loopback(address) for address in addresses):
        return addresses[0]
    return ""


def _addresses(name: str) -> list[str]:
    """Return the IP addresses that `name` resolves to, or an empty list if there are none."""
    addresses = []
    with suppress(OSError, UnicodeError):
        for *_, socket_address in socket.getaddrinfo(name, None):
            ip_address, *_port = socket_address
            addresses.append(str(ip_address))
    return addresses


def _is_loopback(host: str) -> bool:
    """Return whether `host` is a loopback address, or `localhost`."""
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def _is_this_host(host: str) -> bool:
    """Return whether an interface of this host has an address of `host`, so that a socket can bind to it."""
    for address in _addresses(host):
        if _is_loopback(address):
            continue
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as probe, suppress(OSError):
            probe.bind((address, 0))
            return True
    return False


def _interface_with_route_to(host: str, port: int) -> str:
    """Return the network interface that this host uses to send IPv4 packets to `host`.

    Returns an empty string if there is none, or on Windows.
    """
    with (
        suppress(OSError),
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe,
    ):
        # Connecting a datagram socket sends nothing, but selects the source address.
        probe.connect((host, port))
        source_address, _port = probe.getsockname()
        for _index, interface in socket.if_nameindex():
            if _ipv4_address_of(interface, probe) == source_address:
                return interface
    return ""


def addressed_interfaces() -> list[str]:
    """Return the network interfaces of this host that have an IPv4 address, with `lo` first.

    If no address can be found, for example on Windows, all interfaces are returned. If the interfaces cannot
    be listed, the result is empty.
    """
    try:
        names = [name for _, name in socket.if_nameindex()]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            addressed = [name for name in names if _ipv4_address_of(name, probe)]
    except (AttributeError, OSError):
        return []
    # False is sorted before True, so `lo` comes first.
    return sorted(addressed or names, key=lambda name: name != "lo")


def _ipv4_address_of(interface: str, any_socket: socket.socket) -> str:
    """Return the IPv4 address of a network interface.

    Returns an empty string if it has none, or if this is not Linux.
    """
    try:
        from fcntl import ioctl
    except ImportError:  # Windows
        return ""
    # Linux's names of interfaces have at most 15 bytes.
    request = struct.pack("256s", interface.encode()[:15])
    with suppress(OSError):
        answer = ioctl(any_socket.fileno(), _SIOCGIFADDR, request)
        return socket.inet_ntoa(answer[_ADDRESS])
    return ""
