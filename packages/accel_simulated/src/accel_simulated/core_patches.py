"""Make accel-core find the simulated device on this machine, and describe the device as simulated.

accel-core reads the machine's files, which have no trace of the device, and torch's files, which belong to a
CPU build. Therefore modules of accel-core and of torch are patched when they are imported.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Mapping
from typing import Any

from accel_simulated import imports

__all__ = ["VERSION", "install"]

#: The value of `torch.version.cuda` or `torch.version.xpu` with a simulated device.
VERSION = "0.0 (simulated)"

#: Backends of accel-core itself that serve devices without a plugin.
_SERVED_BY = {"acme": "generic", "plain": "generic"}


def install(backend: str, device_type: str, describe: Callable[[], str]) -> None:
    """Patch accel-core when it is imported.

    `backend` is the device's name in accel-core, and `device_type` its name in torch. `describe` returns a
    description of the simulation, such as `"acme:2 by accel-simulated 0.1.0"`, or raises an error if the
    simulation is not possible.
    """
    patches = {
        "accel_core.settings": _build_before_settings_are_read,
        "accel_core.backend": _mark_description,
        "accel_core.hardware.bus": _hide_missing_hardware,
        "accel_core.interface.devices": _mark_repr,
    }
    for module, patch in patches.items():
        imports.on_import(
            module, after=functools.partial(patch, backend=backend, describe=describe)
        )
    if device_type in ("cuda", "xpu"):
        imports.on_import(
            "torch.version",
            after=lambda module: setattr(module, device_type, VERSION),
            # This line precedes the file's own value, None, from which accel-core would infer a CPU build.
            source=f"{device_type} = {VERSION!r}\n",
        )
    if device_type == "cuda":
        imports.on_import("torch.utils.cpp_extension", after=_reject_cuda_code)


def _reject_cuda_code(module: Any) -> None:
    """Make torch's extension builder reject CUDA code, whose build takes minutes and cannot be linked."""
    build = module._jit_compile
    signature = inspect.signature(build)

    @functools.wraps(build)
    def checked_build(*arguments: Any, **options: Any) -> Any:
        bound = signature.bind(*arguments, **options).arguments
        sources = [str(source) for source in bound["sources"]]
        has_cuda = any(source.endswith((".cu", ".cuh")) for source in sources)
        if bound.get("with_cuda") or has_cuda:
            raise RuntimeError(
                f"{bound['name']} has CUDA code, which cannot be compiled for simulated cuda. accel-train "
                "has portable forms of DeepSpeed's optimizers: start the program with ACCEL_INTEGRATIONS=auto"
            )
        return build(*arguments, **options)

    module._jit_compile = checked_build


def _build_before_settings_are_read(
    module: Any, backend: str, describe: Callable[[], str]
) -> None:
    """Make `accel_core.settings.read` build the device, or raise the error if it cannot be simulated.

    The caller of `read` is about to probe the device in a child process, whose time limit is too short for
        a build.
    """
    read = module.read

    @functools.wraps(read)
    def checked_read(environ: Mapping[str, str] | None = None) -> Any:
        if environ is None or environ is os.environ:
            describe()
        return read(environ)

    module.read = checked_read


def _mark_description(module: Any, backend: str, describe: Callable[[], str]) -> None:
    """Add "simulated, no real device" to the description of the device's declaration."""
    declaration: Any = module.Backend
    initialize = declaration.__init__
    names = (backend, _SERVED_BY.get(backend))

    @functools.wraps(initialize)
    def initialize_marked(self: Any, *arguments: Any, **fields: Any) -> None:
        initialize(self, *arguments, **fields)
        request = os.environ.get("ACCEL_SIMULATE", "").strip()
        is_marked = "no real device" in self.description
        if self.name not in names or is_marked or not request:
            return
        description = f"simulated, no real device: {request}"
        if self.description:
            description = f"{self.description}; {description}"
        object.__setattr__(self, "description", description)  # the dataclass is frozen

    declaration.__init__ = initialize_marked


def _hide_missing_hardware(
    module: Any, backend: str, describe: Callable[[], str]
) -> None:
    """Keep accel-core from looking for the device's device nodes and PCI functions, which do not exist."""
    evidence = module.evidence

    @functools.wraps(evidence)
    def evidence_or_none(declaration: Any, root: str = "/") -> Any:
        if declaration.name == backend:
            return None
        return evidence(declaration, root)

    module.evidence = evidence_or_none


def _mark_repr(module: Any, backend: str, describe: Callable[[], str]) -> None:
    """Add the description of the simulation to the `repr` of accelerators."""
    original_repr = module.Base.__repr__

    @functools.wraps(original_repr)
    def marked_repr(self: Any) -> str:
        text: str = original_repr(self)
        if self.device_type == "cpu":
            return text
        return f"{text[:-1]}, simulated: {describe()}>"

    module.Base.__repr__ = marked_repr
