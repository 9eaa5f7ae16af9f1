"""Make accel-core see the simulated device on this machine, and call it simulated.

accel-core reads the machine's files, which have no sign of the device, and torch's files, which are those of
a CPU build. Its modules are changed when they are imported, as torch's are.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Mapping
from typing import Any

from accel_simulated import imports

__all__ = ["VERSION", "install"]

#: What a torch over a simulated device says of itself, where a real one says which CUDA it is built for.
VERSION = "0.0 (simulated)"

#: Devices that no plugin need declare: accel-core's own backend serves them.
_SERVED_BY = {"acme": "generic", "plain": "generic"}


def install(backend: str, device_type: str, told: Callable[[], str]) -> None:
    """Make accel-core see the device; `backend` is its name there, `device_type` its name in torch.

    `told` returns what is simulated, `"acme:2 by accel-simulated 0.1.0"`, and raises if that is not possible.
    """
    changes = {
        "accel_core.settings": _check,
        "accel_core.backend": _describe,
        "accel_core.hardware.bus": _have_no_sign,
        "accel_core.interface.devices": _name,
    }
    for module, change in changes.items():
        imports.change(
            module, after=functools.partial(change, backend=backend, told=told)
        )
    if device_type in ("cuda", "xpu"):
        # Before the file's own word, which is None in a CPU build and holds in one for a real device.
        build = f"{device_type} = {VERSION!r}\n"
        imports.change(
            "torch.version",
            after=lambda m: setattr(m, device_type, VERSION),
            source=build,
        )
    if device_type == "cuda":
        imports.change("torch.utils.cpp_extension", after=_compile_no_cuda)


def _compile_no_cuda(module: Any) -> None:
    """Refuse what is written for nvcc: its build would take minutes, and could not be linked."""
    build = module._jit_compile
    signature = inspect.signature(build)

    @functools.wraps(build)
    def checked(*arguments: Any, **options: Any) -> Any:
        given = signature.bind(*arguments, **options).arguments
        files = map(str, given["sources"])
        if given.get("with_cuda") or any(
            file.endswith((".cu", ".cuh")) for file in files
        ):
            raise RuntimeError(
                f"simulated cuda compiles no CUDA code, and {given['name']} has some. DeepSpeed's optimizers "
                "have portable forms: start the program with ACCEL_INTEGRATIONS=auto"
            )
        return build(*arguments, **options)

    module._jit_compile = checked


def _check(module: Any, backend: str, told: Callable[[], str]) -> None:
    """Have whoever reads the settings told of what cannot be simulated, and the device built before.

    He is about to try it in a child process with a time limit.
    """
    read = module.read

    @functools.wraps(read)
    def checked(environ: Mapping[str, str] | None = None) -> Any:
        if environ is None or environ is os.environ:
            told()
        return read(environ)

    module.read = checked


def _describe(module: Any, backend: str, told: Callable[[], str]) -> None:
    """Have the device's declaration say that it is simulated, wherever it is shown."""
    declared: Any = module.Backend
    initialize = declared.__init__
    names = (backend, _SERVED_BY.get(backend))

    @functools.wraps(initialize)
    def described(self: Any, *arguments: Any, **fields: Any) -> None:
        initialize(self, *arguments, **fields)
        words = os.environ.get("ACCEL_SIMULATE", "").strip()
        is_described = "no real device" in self.description
        if self.name not in names or is_described or not words:
            return
        what = f"{self.description}; " if self.description else ""
        text = f"{what}simulated, no real device: {words}"
        object.__setattr__(self, "description", text)  # the record is frozen

    declared.__init__ = described


def _have_no_sign(module: Any, backend: str, told: Callable[[], str]) -> None:
    """Have accel-core not tell by nodes and buses: the device is in neither."""
    evidence = module.evidence

    @functools.wraps(evidence)
    def unseen(declared: Any, root: str = "/") -> Any:
        return None if declared.name == backend else evidence(declared, root)

    module.evidence = unseen


def _name(module: Any, backend: str, told: Callable[[], str]) -> None:
    """Have an accelerator's `repr` name the simulation."""
    shown = module.Base.__repr__

    @functools.wraps(shown)
    def named(self: Any) -> str:
        text: str = shown(self)
        return (
            text if self.device_type == "cpu" else f"{text[:-1]}, simulated: {told()}>"
        )

    module.Base.__repr__ = named
