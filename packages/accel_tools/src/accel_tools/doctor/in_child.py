"""Functions that topics run in child processes, in a module of their own so that a child imports little."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from typing import Any

from accel_core import Provenance
from accel_core.exceptions import PLUGIN_ERRORS, root_cause
from accel_core.sandbox import guard
from accel_core.text import one_line
from accel_core.torch_import import import_torch

__all__ = ["architectures", "import_vendor", "try_acts"]


def try_acts(job: dict[str, Any], stage: Callable[[str], None]) -> dict[int, str]:
    """Run each act, an entry point or lines of a file; return the error of each that fails, by its number."""
    wrong: dict[int, str] = {}
    for index, act in enumerate(job["jobs"]):
        stage(json.dumps([act["what"], index, wrong]))
        try:
            if "lines" in act:
                for line in act["lines"]:
                    exec(line, {})  # as the module site does
            else:
                loaded: Any = Provenance(**act["entry_point"]).load()
                if act["call"]:
                    loaded()
        except PLUGIN_ERRORS as error:
            wrong[index] = one_line(root_cause(error))
    return wrong


def import_vendor(
    job: dict[str, Any], stage: Callable[[str], None]
) -> dict[str, object]:
    """Import torch, then the vendor's package; return what the package changed, even if its import fails."""
    from importlib import import_module

    from accel_tools.doctor.footprint import changes, footprint

    stage("import of torch")
    import_torch()
    before = footprint()
    stage(f"import of {job['module']}")
    with (
        guard.stdout_to_stderr(),
        contextlib.suppress(*PLUGIN_ERRORS),
    ):  # the verdict says how it fails
        import_module(job["module"])
    return {"changes": [tuple(change) for change in changes(before)]}


def architectures(
    _: dict[str, object], stage: Callable[[str], None]
) -> dict[str, object]:
    """Return the architectures that torch has code for, and the GPUs with their compute capability."""
    stage("import of torch")
    torch = import_torch()
    stage("torch.cuda")
    count = range(torch.cuda.device_count())
    gpus = [
        (torch.cuda.get_device_name(i), *torch.cuda.get_device_capability(i))
        for i in count
    ]
    return {"torch": torch.cuda.get_arch_list(), "gpus": gpus}
