"""Running plugins on recorders, each in a process of its own that one process with torch forks off.

    python -m accel_contracts.running FOLDER...

Each folder is a plugin's `src`. For each backend two runs: with the vendor's conditional names and
`torch.accelerator` as it is, and without them and with a recorder in its place that speaks for this device.
One line of JSON a run.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

# Imported for all forks at once: members import them, at two seconds each.
import torch
import torch._dynamo
import torch.utils.cpp_extension
from accel_testing.recorder import Recorder
from accel_testing.surfaces import for_backend, load
from torch.utils.backend_registration import rename_privateuse1_backend

from accel_contracts.exercise import exercise
from accel_core import Accelerator, Backend, Provenance
from accel_core.detection.plugin import Hooks, declarations
from accel_core.detection.records import Candidate

RUNS = ("every name", "torch.accelerator")


def main(folders: list[str]) -> None:
    """Run the plugins in `folders`, one after the other."""
    torch._dynamo.list_backends(exclude_tags=())  # imports them, which every fork would do again
    for folder in folders:
        try:
            backends = declarations(plugin_in(folder))
        except Exception:  # the others have their turn
            print(json.dumps({"folder": folder, "error": traceback.format_exc()}))
            continue
        for place in range(len(backends)):
            for kind in RUNS:
                _apart(folder, place, kind)


def plugin_in(folder: str) -> ModuleType:
    """The plugin whose package lies in `folder`; its module is inert, so this process may import it."""
    [name] = [path.parent.name for path in Path(folder).glob("accel_*/__init__.py")]
    if folder not in sys.path:
        sys.path.insert(0, folder)
    module = sys.modules.get(name)
    if module is None or not str(module.__file__).startswith(folder):
        for loaded in [m for m in sys.modules if m.partition(".")[0] == name]:
            del sys.modules[loaded]
        module = importlib.import_module(name)
    return module


def _apart(folder: str, place: int, kind: str) -> None:
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            print(json.dumps({"folder": folder, **_run(plugin_in(folder), place, kind)}), flush=True)
            code = 0
        except BaseException:
            print(json.dumps({"folder": folder, "error": traceback.format_exc()}), flush=True)
        finally:
            os._exit(code)
    os.waitpid(pid, 0)


def _run(plugin: ModuleType, place: int, kind: str) -> dict[str, Any]:
    backend = declarations(plugin)[place]
    report = {"backend": backend.name, "run": kind, "violations": [], "problems": [], "called": []}
    surface = for_backend(backend)
    if surface is None:
        return {**report, "skipped": "no surface"}
    recorder = Recorder(surface, conditional=kind == RUNS[0])
    accelerators = [] if kind == RUNS[0] else [accelerator_module(backend)]
    install(backend, recorder, accelerators)
    problems = exercise(built(plugin, backend))
    violations = [v for r in (recorder, *accelerators) for v in r.violations]
    called = sorted({path for r in (recorder, *accelerators) for path in r.called})
    return {**report, "violations": sorted(set(violations)), "problems": problems, "called": called}


def built(plugin: ModuleType, backend: Backend) -> Accelerator:
    """The plugin's accelerator, of its hook or of the class that it declares."""
    candidate = Candidate(
        replace(backend, provenance=Provenance(plugin.__name__, "", plugin.__name__)), plugin
    )
    given = Hooks([candidate.plugin]).of(candidate.plugin, "accel_create", backend=backend, others=())
    module, _, name = backend.accelerator.partition(":")
    made: Accelerator = given[0] if given else getattr(importlib.import_module(module), name)(backend)
    return made


def accelerator_module(backend: Backend) -> Recorder:
    """`torch.accelerator` as a recorder that speaks for this device."""
    recorder = Recorder(load("torch_accelerator"), conditional=True)
    device = SimpleNamespace(type=backend.device_type, index=None)
    recorder.modules["torch.accelerator"].current_accelerator = lambda check_available=False: device  # type: ignore[attr-defined]
    return recorder


def install(backend: Backend, recorder: Recorder, more: list[Recorder]) -> None:
    """Put the recorder where torch and importers find the vendor's modules."""
    if backend.private_use1:
        rename_privateuse1_backend(backend.device_type)
    for each in (recorder, *more):
        for path, module in each.modules.items():
            if path == "torch.random":
                continue  # torch's own, and in use
            sys.modules[path] = module
            parent, _, name = path.rpartition(".")
            if parent in ("torch", "torch.backends"):
                setattr(importlib.import_module(parent), name, module)


if __name__ == "__main__":
    main(sys.argv[1:])
