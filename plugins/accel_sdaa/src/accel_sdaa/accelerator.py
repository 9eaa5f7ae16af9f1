"""`SDAAAccelerator`: what is known to differ on torch.sdaa, of which no source is
public.
"""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module

from accel_core import Backend, TorchAccelerator

__all__ = ["SDAAAccelerator"]


class SDAAAccelerator(TorchAccelerator):
    """Tecorigin cards; one card is four devices.

    torch_sdaa's source is not public, so every function is looked up before it is used.
    If torch_sdaa lacks one, the member's default applies, or it raises
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
        """Return the compiler that was set, else `"teco_inductor"` if torch_sdaa
        registers it, else `"inductor"`.
        """
        self._find_compilers()
        return super().get_compile_backend()

    def set_compile_backend(self, backend: str) -> None:
        """Use another `torch.compile` backend; raises `ValueError`, with the registered
        ones, for an unknown name.
        """
        self._find_compilers()
        super().set_compile_backend(backend)

    def _find_compilers(self) -> None:
        if self._knows_compilers:
            return
        self._knows_compilers = True
        # 3.1.1a3 registers its compiler in a module of its own; whatever fails there
        # leaves torch's.
        with suppress(ImportError, AttributeError, RuntimeError):
            import_module("torch_sdaa._inductor")
        from torch._dynamo import list_backends

        if self._compile_backend not in list_backends(exclude_tags=()):
            self._compile_backend = "inductor"
