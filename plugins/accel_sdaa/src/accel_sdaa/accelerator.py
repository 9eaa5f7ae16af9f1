"""`SDAAAccelerator`: the members that differ on torch.sdaa, whose source is not public."""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module

from accel_core import Backend, TorchAccelerator

__all__ = ["SDAAAccelerator"]


class SDAAAccelerator(TorchAccelerator):
    """Tecorigin cards; each card exposes four devices.

    torch_sdaa's source is not public, so every function is looked up before it is used.
    If torch_sdaa lacks a function, the member returns its default or raises
    `UnsupportedError` with the member's name.
    """

    # DeepSpeed (0.19.8) trains in float16 on every Tecorigin card.
    _fp16_on_every_device = True
    # DeepSpeed's (0.19.8) `device(i)` is a block that selects the device.
    _warns_of_device_blocks = True

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self._knows_compilers = False

    def get_compile_backend(self) -> str:
        """Return the backend of `torch.compile` that was set, else `"teco_inductor"` if
        torch_sdaa registers it, else `"inductor"`.
        """
        self._find_compilers()
        return super().get_compile_backend()

    def set_compile_backend(self, backend: str) -> None:
        """Set the backend of `torch.compile`. Raises `ValueError`, with the registered
        names, for an unknown name.
        """
        self._find_compilers()
        super().set_compile_backend(backend)

    def _find_compilers(self) -> None:
        if self._knows_compilers:
            return
        self._knows_compilers = True
        # torch_sdaa 3.1.1a3 registers its compiler in this module. If that fails, torch's
        # compiler is used.
        with suppress(ImportError, AttributeError, RuntimeError):
            import_module("torch_sdaa._inductor")
        from torch._dynamo import list_backends

        if self._compile_backend not in list_backends(exclude_tags=()):
            self._compile_backend = "inductor"
