"""Section of the interface: the communication backend and the environment of ranks."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence

from accel_core.errors import UnsupportedError
from accel_core.hardware.vendors import install_command
from accel_core.hardware.visible_devices import format_visible_devices
from accel_core.interface.devices import Devices
from accel_core.settings import permitted_entry_points

#: The communication backend for a device without a backend of its own.
_STAGED = "staged"


class Communication(Devices):
    """The members for communication between ranks: the torch.distributed backend, and
    the ranks' environment variables.
    """

    #: The name of the communication backend, if a subclass sets it.
    _overriding_communication_backend = ""

    def communication_backend_name(self) -> str:
        """Return the torch.distributed backend for this device, such as `"hccl"`.

        The declared backend is used if there is one, or otherwise the backend that
        torch registers for the device type. If there is neither, the result is
        `"staged"`, a backend of accel-train that transfers data through host memory
        over gloo. The result can be passed to `torch.distributed.init_process_group`.
        Raises `UnsupportedError` if only `"staged"` remains but accel-train is not
        installed.
        """
        name = (
            self._overriding_communication_backend
            or self.backend.communication_backend
            or self._backend_registered_with_torch()
            or _STAGED
        )
        if name == _STAGED:
            self._register_staged()
        return name

    def _register_staged(self) -> None:
        """Register the process group `staged` with torch. Raises `UnsupportedError` if
        no installed distribution provides it.
        """
        for entry_point in permitted_entry_points("accel.process_groups"):
            if entry_point.name == _STAGED:
                register = entry_point.load()
                register(self)
                return
        raise UnsupportedError(
            f"{self.name} has no communication backend. Next step: install accel-train, "
            f"whose backend uses host memory: {install_command('accel-train')}"
        )

    def _backend_registered_with_torch(self) -> str:
        """Return the communication backend that torch registers for the device type, or
        an empty string if there is none.
        """
        distributed = getattr(self._torch, "distributed", None)
        if distributed is None or not distributed.is_available():
            return "gloo"  # torch itself reports that torch.distributed is missing.
        registry = distributed.Backend
        capable = []
        for name, device_types in registry.backend_capability.items():
            if self._device_type in device_types and name not in ("fake", _STAGED):
                capable.append(str(name))
        default = registry.default_device_backend_map.get(self._device_type, "")
        # torch records no default for a backend that is registered for a single device
        # type as a string instead of a list.
        if default in capable:
            return str(default)
        if capable:
            return capable[0]
        return ""

    @property
    def _communication_backend_name(self) -> str:
        """The communication backend as an attribute, which callers read and
        subclasses set.
        """
        return self.communication_backend_name()

    @_communication_backend_name.setter
    def _communication_backend_name(self, name: str) -> None:
        self._overriding_communication_backend = name

    def communication_backend_version(self) -> tuple[int, ...] | None:
        """Return the communication library's version, such as `(2, 27, 3)`, or `None`
        if the vendor does not report it.
        """
        return None

    def export_envs(self) -> list[str]:
        """Return the prefixes of the environment variables that a launcher must forward
        to other nodes.
        """
        return list(self.backend.environment.forward)

    def set_visible_devices_envs(
        self,
        current_env: MutableMapping[str, str],
        local_accelerator_ids: Sequence[int | str],
    ) -> None:
        """Set the visible-devices variable in `current_env` so that a process sees only
        the devices `local_accelerator_ids`.

        Only the variable with the highest precedence is set. The other variables may
        belong to another vendor (mlu also reads `CUDA_VISIBLE_DEVICES`), or would
        filter the devices a second time. Raises `SettingError`, a `ValueError`, for ids
        that the variable cannot express.
        """
        variables = self.visible_devices_envs()
        if not variables:
            return
        highest_precedence = variables[0]
        grammar = self.backend.visibility.grammar
        value = format_visible_devices(grammar, local_accelerator_ids)
        current_env[highest_precedence] = value
