"""Make accel-core find the simulated device on this machine, and describe the device as simulated.

accel-core reads the machine's files, which have no trace of the device, and torch's files, which belong to a
CPU build. Therefore modules of accel-core and of torch are patched when they are imported.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from accel_simulated import imports

__all__ = ["SIMULATED_TOOLKIT_VERSION", "install"]

#: The value of `torch.version.cuda` or `torch.version.xpu` with a simulated device. torch and programs split
#: the version into integers. No release of CUDA or oneAPI has this version.
SIMULATED_TOOLKIT_VERSION = "0.0"

#: The backend of accel-core that serves each fictional device, for which no plugin exists.
_SERVING_BACKENDS = {"acme": "generic", "plain": "generic"}


def install(backend: str, device_type: str, describe: Callable[[], str]) -> None:
    """Arrange for accel-core and torch to be patched on import, so that they recognize the simulated device.

    `backend` is the device's name in accel-core, and `device_type` is its name in torch. `describe` returns a
    description of the simulation, such as `"acme:2 by accel-simulated 0.1.0"`, or raises an error if the
    simulation is not possible.
    """
    patches = {
        "accel_core.settings": _build_when_settings_are_read,
        "accel_core.backend": _mark_backend_as_simulated,
        "accel_core.hardware.bus": _skip_hardware_evidence,
        "accel_core.interface.devices": _add_simulation_to_repr,
    }
    for module, patch in patches.items():
        imports.on_import(
            module, after=functools.partial(patch, backend=backend, describe=describe)
        )

    def set_toolkit_version(torch_version: ModuleType) -> None:
        setattr(torch_version, device_type, SIMULATED_TOOLKIT_VERSION)

    if device_type in ("cuda", "xpu"):
        imports.on_import(
            "torch.version",
            after=set_toolkit_version,
            # This line precedes the file's own value, None, from which accel-core would infer a CPU build.
            source=f"{device_type} = {SIMULATED_TOOLKIT_VERSION!r}\n",
        )
    if device_type == "cuda":
        imports.on_import("torch.utils.cpp_extension", after=_reject_cuda_code)


def _reject_cuda_code(module: Any) -> None:
    """Make `torch.utils.cpp_extension` reject CUDA code, which compiles for minutes but cannot be linked."""
    original_build = module._jit_compile
    signature = inspect.signature(original_build)

    @functools.wraps(original_build)
    def checked_build(*arguments: Any, **options: Any) -> Any:
        by_name = signature.bind(*arguments, **options).arguments
        sources = [str(source) for source in by_name["sources"]]
        has_cuda_file = any(source.endswith((".cu", ".cuh")) for source in sources)
        if by_name.get("with_cuda") or has_cuda_file:
            raise RuntimeError(
                f"{by_name['name']} has CUDA code, which cannot be compiled for simulated cuda. To use "
                "accel-train's portable versions of DeepSpeed's optimizers, start the program with "
                "ACCEL_INTEGRATIONS=auto"
            )
        return original_build(*arguments, **options)

    module._jit_compile = checked_build


def _build_when_settings_are_read(
    module: Any, backend: str, describe: Callable[[], str]
) -> None:
    """Make `accel_core.settings.read` also build the device, or raise an error if it cannot be simulated.

    After it has read the settings, accel-core probes the device in a child process, whose time limit is too
    short for a build.
    """
    original_read = module.read

    @functools.wraps(original_read)
    def read_after_build(environ: Mapping[str, str] | None = None) -> Any:
        if environ is None or environ is os.environ:
            describe()  # builds the device
        return original_read(environ)

    module.read = read_after_build


def _mark_backend_as_simulated(
    module: Any, backend: str, describe: Callable[[], str]
) -> None:
    """Append "simulated, no real device" to the description of each `Backend` of the simulated device."""
    backend_class: Any = module.Backend
    original_init = backend_class.__init__
    simulated_names = (backend, _SERVING_BACKENDS.get(backend))

    @functools.wraps(original_init)
    def init_with_mark(self: Any, *arguments: Any, **fields: Any) -> None:
        original_init(self, *arguments, **fields)
        request = os.environ.get("ACCEL_SIMULATE", "").strip()
        if self.name not in simulated_names or not request:
            return
        # A copy by `dataclasses.replace` already has the mark.
        if "no real device" in self.description:
            return
        description = f"simulated, no real device: {request}"
        if self.description:
            description = f"{self.description}; {description}"
        object.__setattr__(self, "description", description)  # the dataclass is frozen

    backend_class.__init__ = init_with_mark


def _skip_hardware_evidence(
    module: Any, backend: str, describe: Callable[[], str]
) -> None:
    """Make accel-core skip the search for device nodes and PCI functions of the simulated device."""
    original_evidence = module.evidence

    @functools.wraps(original_evidence)
    def evidence_of_real_devices(declaration: Any, root: str = "/") -> Any:
        if declaration.name == backend:
            return None  # a simulated device leaves no traces on the machine
        return original_evidence(declaration, root)

    module.evidence = evidence_of_real_devices


def _add_simulation_to_repr(
    module: Any, backend: str, describe: Callable[[], str]
) -> None:
    """Add a description of the simulation to the `repr` of every accelerator except the CPU."""
    original_repr = module.Base.__repr__

    @functools.wraps(original_repr)
    def repr_with_simulation(self: Any) -> str:
        text: str = original_repr(self)
        if self.device_type == "cpu":
            return text
        return f"{text.removesuffix('>')}, simulated: {describe()}>"

    module.Base.__repr__ = repr_with_simulation
