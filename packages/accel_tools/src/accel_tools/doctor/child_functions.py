"""Functions that topics run in child processes.

They are in a separate module, so that a child process imports little.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from accel_core import Provenance
from accel_core.exceptions import PLUGIN_ERRORS, root_cause
from accel_core.sandbox import guard
from accel_core.sandbox.child import Stage
from accel_core.text import one_line
from accel_core.torch_import import import_torch

__all__ = ["gpu_architectures", "import_vendor", "run_hooks"]


def run_hooks(job: dict[str, Any], stage: Stage) -> dict[int, str]:
    """Run each hook of `job["hooks"]`, and return the error of each failed hook by the hook's index.

    A hook has either `lines` (the lines of a start-up file), or `entry_point` (the fields of
    a `Provenance`) and `call` (whether the loaded object is called). The stage of each hook
    is the hook's description, with its index and the errors so far as facts.
    """
    errors: dict[int, str] = {}
    for index, hook in enumerate(job["hooks"]):
        stage(hook["what"], index=index, errors=errors)
        try:
            _run_hook(hook)
        except PLUGIN_ERRORS as error:
            errors[index] = one_line(root_cause(error))
    return errors


def _run_hook(hook: dict[str, Any]) -> None:
    if "lines" in hook:
        for line in hook["lines"]:
            exec(line, {})  # The module `site` runs each line in the same way.
        return
    loaded: Any = Provenance(**hook["entry_point"]).load()
    if hook["call"]:
        loaded()


def import_vendor(
    job: dict[str, Any], stage: Callable[[str], None]
) -> dict[str, object]:
    """Import torch and then the module `job["module"]`, and return the changes that the module makes.

    The changes to the process are returned as a list under the key `changes`, even if the import
    fails. The error is not returned, because the verdict on the backend contains it.
    """
    from importlib import import_module

    from accel_tools.doctor.process_snapshot import changes_since, take_snapshot

    stage("import of torch")
    import_torch()
    before = take_snapshot()
    stage(f"import of {job['module']}")
    with guard.stdout_to_stderr(), contextlib.suppress(*PLUGIN_ERRORS):
        import_module(job["module"])
    return {"changes": [tuple(change) for change in changes_since(before)]}


def gpu_architectures(
    _: dict[str, object], stage: Callable[[str], None]
) -> dict[str, object]:
    """Return the architectures for which torch has code, and the GPUs with their compute capability.

    `torch` is the list of architectures, and `gpus` a list of tuples with a GPU's name and its major
    and minor compute capability.
    """
    stage("import of torch")
    torch = import_torch()
    stage("torch.cuda")
    gpus = []
    for index in range(torch.cuda.device_count()):
        name = torch.cuda.get_device_name(index)
        gpus.append((name, *torch.cuda.get_device_capability(index)))
    return {"torch": torch.cuda.get_arch_list(), "gpus": gpus}
