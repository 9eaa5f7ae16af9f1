"""Functions that topics run in child processes.

The functions have a module of their own, so that a child process imports few other modules.
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

__all__ = ["import_and_find_changes", "read_gpu_architectures", "run_hooks"]


def run_hooks(job: dict[str, Any], stage: Stage) -> dict[int, str]:
    """Run the hooks in `job["hooks"]`, and return the errors of hooks that failed.

    The errors are keyed by the hook's index. A hook is a dictionary. It has either the key `lines` (the
    lines of a start-up file), or the keys `entry_point` (the fields of a `Provenance`) and `call` (whether
    to call the loaded object).

    Before each hook, `stage` is called with the hook's description. The facts passed to `stage` are the
    hook's index and the errors so far.
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
    is_start_file = "lines" in hook
    if is_start_file:
        for line in hook["lines"]:
            exec(line, {})  # The module `site` runs each line in the same way.
        return
    loaded: Any = Provenance(**hook["entry_point"]).load()
    if hook["call"]:  # Importing the other entry points is enough.
        loaded()


def import_and_find_changes(
    job: dict[str, Any], stage: Callable[[str], None]
) -> dict[str, object]:
    """Import torch and then a module, and return the module's changes to the process.

    `job["module"]` is the name of the module. The returned dictionary contains the changes as a list under
    the key `changes`, even if the import fails. The error of the import is not returned, because the
    verdict on the backend contains it.
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


def read_gpu_architectures(
    _: dict[str, object], stage: Callable[[str], None]
) -> dict[str, object]:
    """Return the GPU architectures that torch has code for, and the GPUs of this machine.

    The returned dictionary has two keys. `architectures` is a list such as `["sm_90"]`. `gpus` is a list of
    tuples with a GPU's name and the major and minor version of its compute capability.
    """
    stage("import of torch")
    torch = import_torch()
    stage("torch.cuda")
    gpus = []
    for index in range(torch.cuda.device_count()):
        name = torch.cuda.get_device_name(index)
        major, minor = torch.cuda.get_device_capability(index)
        gpus.append((name, major, minor))
    return {"architectures": torch.cuda.get_arch_list(), "gpus": gpus}
