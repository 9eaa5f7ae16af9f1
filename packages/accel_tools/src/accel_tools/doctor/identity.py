"""Texts that identify this machine or its users, for `redact`: users, hosts, folders, variables' values."""

from __future__ import annotations

import contextlib
import fnmatch
import os
import re
import site
import socket
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from accel_core import packages
from accel_core.backend import ENTRY_POINT_GROUP
from accel_core.exceptions import OWN_MODULES
from accel_core.torch_import import AUTOLOAD

__all__ = [
    "ENVIRONMENT",
    "HOME",
    "PATH",
    "Identity",
    "is_public",
    "matters",
    "may_be_told",
]

#: What stands for a folder: of installed packages, whose files everybody has; the user's; any other.
ENVIRONMENT, HOME, PATH = "<env>", "~", "<path>"

#: The variables whose values a bug report may hold, with a shell's stars; others are only `set` in it.
_TOLD = (
    "DS_ACCELERATOR", "DS_ALLOW_DEPRECATED_FP16", "ACCEL_ALLOW", "ACCEL_BLOCK", "ACCEL_STRICT", "ACCEL_PROBE",
    "ACCEL_PROBE_TIMEOUT", "ACCEL_COMPILE", "ACCEL_INTEGRATIONS", "ACCEL_COMMUNICATION_BACKEND",
    "ACCEL_VENDOR_DEFAULTS", "ACCEL_SIMULATE", "LOCAL_SIZE", "LOCAL_RANK", "RANK", "WORLD_SIZE",
    "MASTER_PORT", "*_VISIBLE_DEVICES", "*_VISIBLE_MODULES", "ZE_AFFINITY_MASK", "ZE_FLAT_DEVICE_HIERARCHY",
    "ONEAPI_DEVICE_SELECTOR", "CUDA_DEVICE_ORDER", "HSA_OVERRIDE_GFX_VERSION", "NVIDIA_DRIVER_CAPABILITIES",
    "NVIDIA_DISABLE_REQUIRE", AUTOLOAD, "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_NPU_ALLOC_CONF", "OMP_NUM_THREADS", "LOCAL_WORLD_SIZE", "ACCELERATE_USE_CPU",
    "ACCELERATE_TORCH_DEVICE", "PT_HPU_LAZY_MODE", "PT_HPU_LAZY_ACC_PAR_MODE",
)  # fmt: skip
_TOLD_NAMES = re.compile("|".join(map(fnmatch.translate, _TOLD)))
#: And those of which the value is told where it is a version: `CUDA_VERSION=12.8.1`.
_VERSION = re.compile(r"v?\d[\w.+-]{0,40}")

#: Accounts and hosts that are everybody's.
_ANYBODY = {
    "root",
    "user",
    "users",
    "admin",
    "ubuntu",
    "localhost",
    "local",
    "localdomain",
    "nobody",
    "home",
}
#: Values that say nothing: to put them out would leave holes in sentences that have these words anyhow.
_ORDINARY = {
    "true", "false", "none", "auto", "default", "enabled", "disabled", "python", "torch", "pytorch", "cuda",
    "linux", "darwin", "win32", "utf-8", "posix", "xterm", "bash", "http", "https", "warn", "error", "info",
}  # fmt: skip
#: Beginnings of the names of variables that matter here, whatever they hold.
_MATTER = (
    "ACCEL_", "ASCEND_", "BIREN_", "CANN_", "CNCL_", "CUDA_", "DS_", "HABANA_", "HCCL_", "HIP_", "HSA_",
    "LD_LIBRARY_PATH", "LD_PRELOAD", "MASTER_", "MCCL_", "MLU_", "MTHREADS_", "MUSA_", "NCCL_", "NEUWARE_",
    "NVIDIA_", "ONEAPI_", "PT_HPU_", "PYTHONPATH", "PYTHONHOME", "PYTORCH_", "RANK", "ROCM_", "ROCR_",
    "SDAA_", "SLURM_JOB_ID", "SYCL_", "TORCH_", "WORLD_SIZE", "XPU_", "ZE_",
)  # fmt: skip
#: Where the addresses of our messages, and of first-party plugins, lead; and what lies below.
_PUBLIC_HOSTS = (
    "github.com", "pypi.org", "pytorch.org", "python.org", "readthedocs.io", "nvidia.com", "amd.com",
    "intel.com", "hiascend.com", "habana.ai", "cambricon.com", "mthreads.com", "apple.com", "gitee.com",
    "huggingface.co",
)  # fmt: skip
#: Ports, counts and versions say nothing either, and stand in many sentences.
_NUMBER = re.compile(r"v?\d{1,5}(\.\d{1,4}){0,2}")
#: A shorter value is a flag or a number, which names nobody.
_LEAST = 4


def may_be_told(name: str, value: str) -> bool:
    """Return whether a bug report may show the value of the environment variable `name`."""
    if name.endswith("_VERSION"):
        return _VERSION.fullmatch(value) is not None
    return _TOLD_NAMES.match(name) is not None


def matters(name: str) -> bool:
    """Return whether a bug report may show that the environment variable `name` is set."""
    return name.startswith(_MATTER) or _TOLD_NAMES.match(name) is not None


def is_public(host: str) -> bool:
    """Return whether a host is a well-known public one."""
    return any(host == known or host.endswith(f".{known}") for known in _PUBLIC_HOSTS)


class Identity(NamedTuple):
    """Texts that must not leave this machine, each with its replacement."""

    environ: Mapping[str, str]
    #: Folders, each with its mark: `ENVIRONMENT`, `HOME` or `PATH`.
    folders: tuple[tuple[str, str], ...]
    #: Other texts, each with what stands for it: `("alice", "<user>")`.
    names: tuple[tuple[str, str], ...]
    #: Top-level names of what is installed: a relative path, or a word with dots, may begin with one.
    packages: frozenset[str]

    @classmethod
    def here(cls, environ: Mapping[str, str]) -> Identity:
        """Return the identity of this process and its user, without any network lookup."""
        folders = dict.fromkeys(_installed(), ENVIRONMENT)
        with contextlib.suppress(OSError):
            folders.setdefault(os.getcwd(), PATH)  # noqa: PTH109 - it may be deleted
        for entry in (*sys.path, tempfile.gettempdir()):
            if isinstance(entry, str):
                folders.setdefault(entry, PATH)
        for home in _homes(environ):
            folders[home] = HOME
        names = {
            **dict.fromkeys(_users(environ), "<user>"),
            **dict.fromkeys(_hosts(environ), "<host>"),
        }
        for name, value in environ.items():
            if not may_be_told(name, value):
                for part in _parts(value):
                    if _is_absolute(part):
                        folders.setdefault(part, PATH)
                    else:
                        names.setdefault(part, f"<${name}>")
        return cls(
            environ,
            tuple(
                (path, mark) for path, mark in folders.items() if _names_somebody(path)
            ),
            tuple(
                (text, mark)
                for text, mark in names.items()
                if text.lower() not in _ANYBODY
            ),
            frozenset(_packages()),
        )


def _names_somebody(path: str) -> bool:
    """Whether a folder is not one that every machine has."""
    return _is_absolute(path) and len([p for p in re.split(r"[\\/]+", path) if p]) > 1


def _is_absolute(path: str) -> bool:
    return (
        path.startswith(("/", "\\\\")) or re.match(r"[A-Za-z]:[\\/]", path) is not None
    )


def _installed() -> Iterator[str]:
    """The folders of Python and of what is installed."""
    yield from sysconfig.get_paths().values()
    yield from (sys.prefix, sys.base_prefix, sys.exec_prefix)
    with contextlib.suppress(
        AttributeError, OSError
    ):  # some virtual environments' site has neither
        yield from site.getsitepackages()
        yield site.getusersitepackages()
    for entry in sys.path:
        if not isinstance(entry, str):
            continue
        name = os.path.basename(entry)  # noqa: PTH119
        if name in ("site-packages", "dist-packages"):
            yield entry


def _packages() -> Iterator[str]:
    """List the names that stay: of installed packages, of plugins and of their backends."""
    yield from OWN_MODULES
    for entry in packages.entry_points(ENTRY_POINT_GROUP):
        yield entry.module.partition(".")[0]
        yield entry.name.partition(".")[0]
    for folder in set(_installed()):
        if folder.endswith(("site-packages", "dist-packages")):
            with contextlib.suppress(OSError):
                yield from (name for name in os.listdir(folder) if name.isidentifier())


def _homes(environ: Mapping[str, str]) -> Iterator[str]:
    yield from filter(None, map(environ.get, ("HOME", "USERPROFILE")))
    yield os.path.expanduser("~")  # noqa: PTH111 - as the user's shell sees it
    with contextlib.suppress(ImportError, KeyError):
        import pwd

        yield pwd.getpwuid(os.getuid()).pw_dir


def _users(environ: Mapping[str, str]) -> Iterator[str]:
    yield from filter(
        None, map(environ.get, ("USER", "LOGNAME", "USERNAME", "SUDO_USER"))
    )
    with contextlib.suppress(ImportError, KeyError):
        import pwd

        entry = pwd.getpwuid(os.getuid())
        yield entry.pw_name
        yield from (
            part for part in re.split(r"[\s,]+", entry.pw_gecos) if len(part) > 2
        )


def _hosts(environ: Mapping[str, str]) -> Iterator[str]:
    for host in (
        socket.gethostname(),
        environ.get("HOSTNAME"),
        environ.get("COMPUTERNAME"),
    ):
        if host:
            yield host
            yield host.partition(".")[0]
            # The domain is a company's.
            if host.count(".") > 1:
                yield host.partition(".")[2]


def _parts(value: str) -> Iterator[str]:
    """A value, the entries of a list in it, and of an address its host and who logs in there."""
    entries = [value, *value.split(os.pathsep), *value.split(",")]
    people = []
    for entry in list(entries):
        with contextlib.suppress(ValueError):
            address = urlsplit(entry)
            people += [
                name
                for name in (address.username, address.password)
                if name and len(name) > 1
            ]
            if address.hostname and not is_public(address.hostname):
                entries.append(address.hostname)
    long = [
        e
        for e in map(str.strip, entries)
        if len(e) >= _LEAST and not _NUMBER.fullmatch(e)
    ]
    yield from (
        part
        for part in dict.fromkeys([*long, *people])
        if part.lower() not in _ORDINARY
    )
