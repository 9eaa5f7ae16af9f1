"""Who serves each member on each backend: the plugin, the vendor's module, torch, or accel_core's default.

    python -m accel_contracts.serving FOLDER...

Each folder is a plugin's `src`. Members are called on recorders of the vendor's surface and of
`torch.accelerator`, and what was called tells. One line of JSON a backend.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

from accel_testing.recorder import Recorder
from accel_testing.surfaces import for_backend

from accel_contracts.exercise import CALLS
from accel_contracts.running import accelerator_module, built, install, plugin_in
from accel_core import Accelerator, Backend, TorchAccelerator, UnsupportedError
from accel_core.detection.plugin import declarations

#: What almost every member asks first: calling it says nothing of who serves the member.
_ASKED_FIRST = ("device_count", "current_device", "is_available", "is_initialized", "_lazy_init", "init")
#: Members whose calls `CALLS` does not have, as they belong together.
_MORE: dict[str, Callable[[Accelerator], Any]] = {
    "Stream": lambda acc: acc.Stream(),
    "Event": lambda acc: acc.Event(),
    "stream": lambda acc: _entered(acc.stream(acc.Stream())),
    "device_guard": lambda acc: _entered(acc.device_guard(0)),
    "range_push": lambda acc: acc.range_push("work"),
    "range_pop": lambda acc: acc.range_pop(),
}


def _entered(context: Any) -> None:
    with context:
        pass


def serving(accelerator: Accelerator, vendor: Recorder, torch: Recorder) -> dict[str, str]:
    """`{member: "plugin" | "vendor" | "torch" | "default" | "unsupported"}`."""
    calls: dict[str, Callable[[], Any]] = {
        **{name: _first_call(accelerator, name) for name in CALLS},
        **{name: lambda call=call: call(accelerator) for name, call in _MORE.items()},
    }
    return {name: _who(accelerator, name, calls[name], vendor, torch) for name in sorted(calls)}


def _first_call(accelerator: Accelerator, name: str) -> Callable[[], Any]:
    args, kwargs = CALLS[name][0]
    return lambda: getattr(accelerator, name)(*args, **kwargs)


def _who(
    accelerator: Accelerator, name: str, call: Callable[[], Any], vendor: Recorder, torch: Recorder
) -> str:
    vendor.called.clear()
    torch.called.clear()
    try:
        call()
    except UnsupportedError:
        return "unsupported"
    except Exception:  # a recorder's answer misfits; who was asked is known all the same
        pass
    if _is_overridden(type(accelerator), name):
        return "plugin"
    for recorder, who in ((vendor, "vendor"), (torch, "torch")):
        asked = {path.rpartition(".")[2] for path in recorder.called}
        if name in asked or asked.difference(_ASKED_FIRST):
            return who
    return "default"


def _is_overridden(kind: type, name: str) -> bool:
    own = kind.__mro__[: kind.__mro__.index(TorchAccelerator)]
    return any(name in vars(each) for each in own)


def _report(folder: str, place: int) -> None:
    plugin = plugin_in(folder)
    backend: Backend = declarations(plugin)[place]
    surface = for_backend(backend)
    if surface is None:
        return
    vendor, torch = Recorder(surface, conditional=True), accelerator_module(backend)
    install(backend, vendor, [torch])
    with contextlib.redirect_stdout(sys.stderr):
        serves = serving(built(plugin, backend), vendor, torch)
    print(json.dumps({"backend": backend.name, "priority": backend.priority, "serves": serves}), flush=True)


def main(folders: list[str]) -> None:
    """Report on the plugins in `folders`, each backend in a fork of its own."""
    warnings.simplefilter("ignore")
    for folder in folders:
        for place in range(len(declarations(plugin_in(folder)))):
            sys.stdout.flush()
            pid = os.fork()
            if pid == 0:
                try:
                    _report(folder, place)
                finally:
                    os._exit(0)
            os.waitpid(pid, 0)


if __name__ == "__main__":
    main(sys.argv[1:])
