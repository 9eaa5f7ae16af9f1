"""Sections of the interface for the tools around a program: compilers and profilers, launchers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from accel_core.accelerators._devices import Base, Devices
from accel_core.errors import UnsupportedError

if TYPE_CHECKING:
    from accel_core.backend import Backend

__all__ = ["Compile", "Launch"]


class Compile(Base):
    """Compilation, Triton, profiler ranges, deferred calls."""

    #: Whether `range_push` and `range_pop` take an NVTX domain.
    supports_nvtx_domain: bool = False

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self._compile_backend = backend.compile_backend
        self._ranges = threading.local()

    def get_compile_backend(self) -> str:
        """The `backend` to give to `torch.compile`.

        From the declaration. Where that leaves it open: torch's default if the vendor has set one (torch
        2.13), the compiler registered under the device type (`torch_dynamo_backends`), `"inductor"` if it
        generates code for this device, else `"aot_eager"`, which compiles forward and backward and runs
        torch's own kernels.
        """
        if not self._compile_backend:
            self._compile_backend = _compiler_for(self._device_type)
        return self._compile_backend

    def set_compile_backend(self, backend: str) -> None:
        """Use another `torch.compile` backend; `ValueError` lists those that are registered."""
        from torch._dynamo import list_backends

        known = list_backends(exclude_tags=())
        if backend not in known:
            raise ValueError(
                f"{self.name}: {backend!r} is not a registered torch.compile backend, "
                f"expected one of {', '.join(sorted(known))}"
            )
        self._compile_backend = backend

    def is_triton_supported(self) -> bool:
        """Whether Triton kernels run on the device."""
        return False

    def prefer_triton_grouped_mm(self) -> bool:
        """Whether a Triton kernel beats `torch._grouped_mm` here."""
        return False

    def range_push(self, msg: str, domain: str | None = None, category: str | None = None) -> None:
        """Open a named range in the profiler's timeline; never raises.

        The default is `torch.profiler.record_function`, at no cost while no profiler runs. `domain`
        and `category` are for vendors that have them.
        """
        entered = None
        if self._torch.autograd._profiler_enabled():
            entered = self._torch.profiler.record_function(str(msg))
            entered.__enter__()
        # A range opened while no profiler ran is kept too, so that its end closes nothing else.
        self._open_ranges().append(entered)

    def range_pop(self, domain: str | None = None) -> None:
        """Close the range that this thread opened last; nothing where there is none; never raises."""
        ranges = self._open_ranges()
        if ranges and (entered := ranges.pop()) is not None:
            entered.__exit__(None, None, None)

    def _open_ranges(self) -> list[Any]:
        ranges: list[Any] = self._ranges.__dict__.setdefault("stack", [])  # this thread's
        return ranges

    @contextmanager
    def range(self, msg: str) -> Iterator[None]:
        """A context manager around `range_push` and `range_pop`."""
        self.range_push(msg)
        try:
            yield
        finally:
            self.range_pop()

    def lazy_call(self, callback: Callable[[], Any]) -> Any:
        """Run `callback` now, or when the device initialises where the vendor can wait for that."""
        return callback()


#: Device types for which every inductor generates code; for others its table is asked, which takes seconds.
_INDUCTORS_OWN = ("cpu", "cuda", "xpu")


def _compiler_for(device_type: str) -> str:
    """The best of torch.compile's backends for a device of which nothing is declared."""
    if device_type in _INDUCTORS_OWN:
        return "inductor"
    try:
        import torch._dynamo

        default = getattr(torch.compiler, "get_default_backend", lambda: "inductor")()
        if isinstance(default, str) and default not in ("inductor", "accel"):
            return default
        if device_type in torch._dynamo.list_backends(exclude_tags=()):
            return device_type
        from torch._inductor.codegen import common
        from torch._inductor.codegen.common import get_scheduling_for_device

        # Before torch 2.9 it was called where the graph is lowered, under another name.
        getattr(common, "init_backend_registration", lambda: None)()
        known = get_scheduling_for_device(device_type) is not None
    except ImportError:  # a build without inductor
        known = False
    return "inductor" if known else "aot_eager"


#: The process group for a device that has none, and the entry points that bring it: functions that register
#: it with torch for an accelerator.
_STAGED = "staged"
_PROCESS_GROUPS = "accel.process_groups"


class Launch(Devices):
    """Launching: the communication backend, and the environment of ranks."""

    def communication_backend_name(self) -> str:
        """torch.distributed's backend for this device: `"hccl"`.

        From the declaration; where that leaves it open, what torch registers for the device type, and for
        a device without collectives of its own `"staged"`, which accel-train brings: through host memory,
        over gloo. The name can be given to `torch.distributed.init_process_group` at once. Raises
        `UnsupportedError`, which names accel-train, where `"staged"` is what is left and it is not installed.
        """
        name = self.backend.communication_backend or self._registered_communication() or _STAGED
        if name == _STAGED:
            self._register_staged()
        return name

    def _register_staged(self) -> None:
        """Have torch know the process group of that name, which a distribution beside the core brings."""
        from accel_core._support.installed import entry_points

        brought = [e for e in entry_points(_PROCESS_GROUPS) if e.name == _STAGED]
        if not brought:
            from accel_core.machine.vendors import sourced

            raise UnsupportedError(
                f"{self.name} has no communication backend of its own. accel-train brings one that goes "
                f"through host memory: {sourced('pip install accel-train')}"
            )
        brought[0].load()(self)

    def _registered_communication(self) -> str:
        """Communication backend in torch's table for the device type; empty if it has none that exists."""
        distributed = getattr(self._torch, "distributed", None)
        if distributed is None or not distributed.is_available():
            return "gloo"  # there is nothing to register with: whoever uses it is told by torch
        backend = distributed.Backend
        usual = str(backend.default_device_backend_map.get(self._device_type, ""))
        # torch notes no default for who registers one device type by its name alone, and not in a list.
        for name in (usual, *backend.backend_capability):
            if name not in ("fake", _STAGED) and self._device_type in backend.backend_capability.get(
                name, ()
            ):
                return str(name)
        return ""

    @property
    def _communication_backend_name(self) -> str:
        """The same as an attribute, which callers of the interface read as well."""
        return self.communication_backend_name()

    def _prepare_communication(self) -> str:
        """The backend's name, once what brings it is imported: called where a process group is to be made."""
        return self.communication_backend_name()

    def communication_backend_version(self) -> tuple[int, ...] | None:
        """Version of the communication library, `(2, 27, 3)`; `None` where the vendor does not tell."""
        return None

    def export_envs(self) -> list[str]:
        """Prefixes of the environment variables that a launcher forwards to other nodes."""
        return list(self.backend.environment.forward)

    def set_visible_devices_envs(
        self, current_env: MutableMapping[str, str], local_accelerator_ids: Sequence[int | str]
    ) -> None:
        """Write into `current_env` that only these devices are visible, in the vendor's grammar.

        Only the variable that wins is written: the others may belong to another vendor (mlu also
        reads `CUDA_VISIBLE_DEVICES`) or filter a second time. Raises `ValueError` for ids that the
        grammar cannot hold.
        """
        from accel_core.machine.visible_devices import format_visible_devices

        for variable in self.visible_devices_envs()[:1]:
            current_env[variable] = format_visible_devices(
                self.backend.visibility.grammar, local_accelerator_ids
            )
