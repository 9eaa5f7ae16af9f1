"""Check that the rendezvous endpoint responds, because torchrun waits for minutes if it does not."""

from __future__ import annotations

import argparse
import signal
import socket
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

from accel_core.exceptions import PLUGIN_ERRORS, root_cause
from accel_core.sandbox import child
from accel_core.text import one_line
from accel_core.torch_import import import_torch
from accel_train.launch.network import rendezvous_endpoint

__all__ = ["EndpointProblem", "connect_to_store", "find_endpoint_problem"]

#: The time limit in seconds of one connection.
_CONNECT_SECONDS = 5.0
#: The time limit in seconds for torch's store to respond.
_STORE_SECONDS = 10.0
#: The stage of `connect_to_store` in which it waits for the store.
_STORE = "store"


class EndpointProblem(NamedTuple):
    """Why torchrun's store cannot be reached at the rendezvous endpoint, with the next step."""

    #: The message for the user.
    text: str
    #: Whether the job cannot start. Otherwise the problem may end by itself, when another host starts.
    is_fatal: bool


def find_endpoint_problem(
    arguments: argparse.Namespace, import_timeout: float
) -> EndpointProblem | None:
    """Return why torchrun's store cannot be reached at the rendezvous endpoint.

    Returns `None` if the store responds, or if no process listens at the endpoint yet, because a host that
    starts later may start the store.

    Args:
        arguments: torchrun's arguments.
        import_timeout: The time limit for the import of torch in seconds.
    """
    if not arguments.rdzv_endpoint or arguments.rdzv_backend != "c10d":
        return None
    host, port = rendezvous_endpoint(arguments)
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        text = (
            f"this host cannot resolve {host}, the host of --rdzv-endpoint: {_reason(error)}. Next step: use "
            "the host's IP address in --rdzv-endpoint, or add the name to /etc/hosts"
        )
        return EndpointProblem(text, is_fatal=False)
    try:
        socket.create_connection((host, port), _CONNECT_SECONDS).close()
    except ConnectionRefusedError:
        # No process listens yet. A host that starts later may start the store.
        return None
    except OSError as error:
        *_, socket_address = addresses[0]
        address, *_port = socket_address
        text = (
            f"this host cannot connect to --rdzv-endpoint {host}:{port} ({address}): {_reason(error)}. Next "
            f"step: check that {address} is an address of {host}, and that the firewall of {host} permits "
            f"port {port}"
        )
        return EndpointProblem(text, is_fatal=False)
    return _find_store_problem(host, port, import_timeout)


def _reason(error: OSError) -> str:
    return error.strerror or str(error)


def _find_store_problem(
    host: str, port: int, import_timeout: float
) -> EndpointProblem | None:
    """Return the problem if the process that listens at the endpoint is not torchrun's store."""
    request = {"host": host, "port": port}
    try:
        report = child.run(connect_to_store, request, import_timeout + _STORE_SECONDS)
    except OSError:
        return None
    # If importing torch failed or took too long, the store was not tested.
    if report.stage != _STORE or report.timed_out:
        return None
    if report.answer is None:
        # The timer of `connect_to_store` ended the child process.
        problem = f"no response within {_STORE_SECONDS:g} s"
    else:
        problem = str(report.answer["error"])
    if not problem:
        return None
    text = (
        f"a process listens at {host}:{port}, but does not respond like torchrun's store: {problem}. Next "
        f"step: end this process (on its host, `ss -ltnp 'sport = :{port}'` shows it), or use another port"
    )
    return EndpointProblem(text, is_fatal=True)


def connect_to_store(
    request: dict[str, Any], stage: Callable[..., None]
) -> dict[str, str]:
    """Connect to torch's store at `request["host"]` and `request["port"]`, in a child process.

    Returns the error under the key `error`, which is an empty string on success. If the store does not
    respond, a signal ends the process, because torch then ignores the time limit of its `TCPStore`.
    """
    torch = import_torch()
    stage(_STORE)
    if hasattr(signal, "setitimer"):  # Windows lacks this function.
        signal.setitimer(signal.ITIMER_REAL, _STORE_SECONDS)
    try:
        torch.distributed.TCPStore(
            request["host"],
            request["port"],
            is_master=False,
            wait_for_workers=False,
            timeout=timedelta(seconds=_STORE_SECONDS),
        )
    except PLUGIN_ERRORS as error:
        return {"error": one_line(root_cause(error))}
    return {"error": ""}
