"""`SDAAAccelerator`: what is known to differ on torch.sdaa, of which no source is public."""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module

from accel_core import Backend, TorchAccelerator

__all__ = ["SDAAAccelerator"]


class SDAAAccelerator(TorchAccelerator):
    """Tecorigin cards; one card is four devices.

    Nobody outside has read torch_sdaa, so every name of it is looked for before it is used. What it lacks
    gives the documented default, or `UnsupportedError` with the member's name.
    """

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self._knows_compilers = False

    def is_fp16_supported(self) -> bool:
        """Whether there is a device: DeepSpeed (0.19.8) trains in float16 on every one."""
        return self.is_available()

    def get_compile_backend(self) -> str:
        """`"teco_inductor"` where torch_sdaa registers it, else `"inductor"`, unless another was set."""
        self._find_compilers()
        return super().get_compile_backend()

    def set_compile_backend(self, backend: str) -> None:
        """Use another `torch.compile` backend; `ValueError` lists those that are registered."""
        self._find_compilers()
        super().set_compile_backend(backend)

    def _find_compilers(self) -> None:
        if self._knows_compilers:
            return
        self._knows_compilers = True
        # 3.1.1a3 registers its compiler in a module of its own; whatever fails there leaves torch's.
        with suppress(ImportError, AttributeError, RuntimeError):
            import_module("torch_sdaa._inductor")
        from torch._dynamo import list_backends

        if self._compile_backend not in list_backends(exclude_tags=()):
            self._compile_backend = "inductor"
