"""`SDAAAccelerator`: the members to override for torch.sdaa. Its source is not
public.
"""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module

from accel_core import Backend, TorchAccelerator

__all__ = ["SDAAAccelerator"]


class SDAAAccelerator(TorchAccelerator):
    """The accelerator for Tecorigin cards, each of which has four devices.

    torch_sdaa's source is not public, so every function is looked up before it is
    called. If torch_sdaa lacks the function, the member of this class returns its
    default, or raises `UnsupportedError`.
    """

    # DeepSpeed (0.19.8) trains in float16 on every Tecorigin card.
    _has_fp16_on_every_device = True
    # In DeepSpeed (0.19.8), `device(i)` is a context manager that selects the device.
    _warns_of_device_blocks = True

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self._is_compiler_registered = False

    def get_compile_backend(self) -> str:
        """Return the backend for `torch.compile`.

        This is the backend that `set_compile_backend` set. If none was set, it is
        `"teco_inductor"` if torch_sdaa registers that backend, and otherwise
        `"inductor"`.
        """
        self._register_compiler()
        return super().get_compile_backend()

    def set_compile_backend(self, backend: str) -> None:
        """Set the backend for `torch.compile`.

        Raises `ValueError`, which lists the registered backends, if the name is
        unknown.
        """
        self._register_compiler()
        super().set_compile_backend(backend)

    def _register_compiler(self) -> None:
        """Register torch_sdaa's compiler, or select inductor if there is none."""
        if self._is_compiler_registered:
            return
        self._is_compiler_registered = True
        # torch_sdaa 3.1.1a3 registers its compiler when this module is imported. If the
        # import fails, torch's compiler is used.
        with suppress(ImportError, AttributeError, RuntimeError):
            import_module("torch_sdaa._inductor")
        from torch._dynamo import list_backends

        if self._compile_backend not in list_backends(exclude_tags=()):
            self._compile_backend = "inductor"
