"""Section of the interface: the communication backend, and the environment of ranks."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence

from accel_core.accelerators.devices import Devices
from accel_core.errors import UnsupportedError
from accel_core.machine.vendors import sourced
from accel_core.settings import entry_points

#: The process group for a device that has none, and the entry points that bring it: functions that register
#: it with torch for an accelerator.
_STAGED = "staged"
_PROCESS_GROUPS = "accel.process_groups"


class Communication(Devices):
    """Launching: the communication backend, and the environment of ranks."""

    #: The backend's name as a subclass states it.
    _stated_communication = ""

    def communication_backend_name(self) -> str:
        """torch.distributed's backend for this device: `"hccl"`.

        From the declaration; where that leaves it open, what torch registers for the device type, and for
        a device without collectives of its own `"staged"`, which accel-train brings: through host memory,
        over gloo. The name can be given to `torch.distributed.init_process_group` at once. Raises
        `UnsupportedError`, which names accel-train, where `"staged"` is what is left and it is not installed.
        """
        name = self._stated_communication or self.backend.communication_backend
        name = name or self._registered_communication() or _STAGED
        if name == _STAGED:
            self._register_staged()
        return name

    def _register_staged(self) -> None:
        """Have torch know the process group of that name, which a distribution beside the core brings."""
        brought = [e for e in entry_points(_PROCESS_GROUPS) if e.name == _STAGED]
        if not brought:
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
        serving = [n for n, types in backend.backend_capability.items() if self._device_type in types]
        names = [name for name in (usual, *serving) if name in serving and name not in ("fake", _STAGED)]
        return str(names[0]) if names else ""

    @property
    def _communication_backend_name(self) -> str:
        """The same as an attribute, which callers of the interface read, and subclasses state."""
        return self.communication_backend_name()

    @_communication_backend_name.setter
    def _communication_backend_name(self, stated: str) -> None:
        self._stated_communication = stated

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

        grammar = self.backend.visibility.grammar
        for variable in self.visible_devices_envs()[:1]:
            current_env[variable] = format_visible_devices(grammar, local_accelerator_ids)
