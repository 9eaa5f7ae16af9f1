"""Startup of a simulating process: `accel_simulated.pth` imports it if `ACCEL_SIMULATE` is set.

It puts the vendor's simulated package on `sys.path`, and makes the device available when torch is imported.
It checks nothing: an invalid value must not stop Python from starting. The first `import torch` reports the
error.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING

from accel_simulated import imports, seen

if TYPE_CHECKING:
    from accel_simulated.declared import Declared

__all__ = ["begin", "device", "told"]

#: What `ACCEL_SIMULATE` was when this process began to simulate.
_begun = ""
_HERE = os.path.dirname(os.path.abspath(__file__))


def begin() -> None:
    """Prepare this process for the device that `ACCEL_SIMULATE` names."""
    global _begun
    _begun = os.environ["ACCEL_SIMULATE"]
    name = _name()
    runtime = os.path.join(_HERE, "runtimes", name)
    found = _declared()
    if found is not None:
        from accel_simulated import declared

        declared.install(found)
    elif name and os.path.isdir(runtime):
        # As an installed package: behind PYTHONPATH, and before a real one of the vendor's.
        ends = ("site-packages", "dist-packages")
        places = [place for place, entry in enumerate(sys.path) if entry.endswith(ends)]
        sys.path.insert(min(places, default=len(sys.path)), runtime)
    if os.path.isdir(
        os.environ.get("ACCEL_SIMULATE_RECORD", "")
    ):  # `accel simulate --report`
        from accel_simulated.detector import recording

        recording.begin(device()[1])
    imports.change("torch", before=_prepare)
    seen.install(*device(), lambda: told(os.environ))
    if name == "klxpu":  # by the vendor's own way, which is not torch's
        from accel_simulated import kunlunxin

        kunlunxin.install()
    if name == "mps":  # of which accel_core knows that it is on Macs only
        imports.change("accel_core.hardware", after=_on_any_platform)


def device() -> tuple[str, str]:
    """Return the backend that `ACCEL_SIMULATE` names, unchecked, and torch's device type for it."""
    name, found = _name(), _declared()
    if found is not None:
        return found.backend, name
    return name, "cuda" if name == "klxpu" else name


def _name() -> str:
    return os.environ.get("ACCEL_SIMULATE", "").partition(":")[0].strip().lower()


def _declared() -> Declared | None:
    """The plugin's declaration of the simulated device, if the device is known only by that."""
    if not os.environ.get("ACCEL_SIMULATE_DECLARED"):
        return None
    from accel_simulated import declared

    found = declared.told()
    return found if found is not None and found.vendor.name == _name() else None


def told(environ: Mapping[str, str]) -> str:
    """Return a name of this process's simulation: `"acme:2 by accel-simulated 0.1.0"`.

    Builds the device if the variable is about this process, because the caller is about to probe it in a
    child with a time limit. Raises `SettingError` if the variable is invalid, and what `device.check` and
    `building.build` raise.
    """
    from accel_core import SettingError
    from accel_simulated import __version__, building, faults
    from accel_simulated.asked import VARIABLE, asked
    from accel_simulated.device import check

    injected = ", ".join(faults.asked(environ))
    more = f", with requested faults ({injected})" if injected else ""
    found = asked(environ)
    if found is not None and environ is os.environ:
        begun = asked({**environ, VARIABLE: _begun})
        if begun != found:
            raise SettingError(
                f"{VARIABLE}={str(found)!r} came when this process simulated {begun} already. "
                f"Start another Python: accel simulate {found} -- COMMAND"
            )
        check(found)
        building.ready(found.vendor.kind)
    return f"{found} by accel-simulated {__version__}{more}"


def _on_any_platform(module: ModuleType) -> None:
    module.platform_matches = lambda platforms: True  # type: ignore[attr-defined]


def _prepare() -> None:
    """Raise `SettingError` for a value that cannot be followed, and what building raises."""
    from accel_simulated import device
    from accel_simulated.asked import asked

    found = asked()
    if found is not None:
        device.prepare(found)


if os.environ.get("ACCEL_SIMULATE", "").strip():
    begin()
