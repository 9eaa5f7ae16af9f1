"""Settings of `accel try tpu`: TorchTPU loads XLA's library for the CPU, not libtpu."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from accel_core import IntegrationMissingError
from accel_tpu.library import LIBRARY_VARIABLE

__all__ = ["environment"]

#: The package that contains the library, and the name of the library's file.
_PACKAGE, _FILE = "fastatomstruct_xla_cpu", "libpjrt_cpu.so"


def environment() -> tuple[dict[str, str], str]:
    """Return the environment variables for `accel try tpu`, and a text that names the PJRT library.

    Raises `IntegrationMissingError` if TorchTPU or the package with the library is not
    installed.
    """
    packages = {"torch_tpu": "torch-tpu", _PACKAGE: "fastatomstruct-xla-cpu"}
    missing = [packages[module] for module in packages if find_spec(module) is None]
    if missing:
        raise IntegrationMissingError(
            f"`accel try tpu` needs {' and '.join(missing)}. Next step: pip install "
            f"{' '.join(missing)}"
        )
    package = find_spec(_PACKAGE)
    assert package is not None
    assert package.origin is not None  # the path of the package's `__init__.py`
    library = Path(package.origin).with_name(_FILE)
    # torch's autoload would import TorchTPU in every process; the plugin imports it only
    # if the backend is chosen. The backend is not pinned, because DeepSpeed rejects a
    # DS_ACCELERATOR that it does not support.
    variables = {LIBRARY_VARIABLE: str(library), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    return variables, f"TorchTPU on XLA's CPU library: {library}"
