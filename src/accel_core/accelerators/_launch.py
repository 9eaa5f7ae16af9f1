"""Section of the interface: what a launcher needs to know."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence

from accel_core.accelerators._compile import Compile

__all__ = ["Launch"]


class Launch(Compile):
    """Launching: the communication backend, and the environment of ranks."""

    def communication_backend_name(self) -> str:
        """torch.distributed's backend for this device: `"hccl"`.

        From the declaration; where that leaves it open, what torch registers for the device type.
        """
        if self.backend.communication_backend:
            return self.backend.communication_backend
        backend = getattr(self._torch.distributed, "Backend", None)  # absent in builds without distributed
        return str(getattr(backend, "default_device_backend_map", {}).get(self._device_type, "gloo"))

    def communication_backend_version(self) -> tuple[int, ...] | None:
        """Version of the communication library, `(2, 27, 3)`; `None` where the vendor does not tell."""
        return None

    def export_envs(self) -> list[str]:
        """Prefixes of the environment variables that a launcher forwards to other nodes."""
        return list(self.backend.export_envs)

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
                self.backend.visible_devices_grammar, local_accelerator_ids
            )
