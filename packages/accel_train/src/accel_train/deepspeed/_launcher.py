"""Run DeepSpeed's launcher, with the integration activated in every process that the launcher starts."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from accel_core.errors import IntegrationError
from accel_core.explain.autoload import autoload_conflicts
from accel_core.settings import read as read_settings
from accel_train.deepspeed import _child_activation, activate
from accel_train.launch.environment import import_variables, isolation_reason

__all__ = ["run_launcher"]


def run_launcher(arguments: Sequence[str]) -> None:
    """Run DeepSpeed's launcher with `arguments`. If a rank fails, exit with the rank's exit status.

    Raises the same errors as `activate()`. Raises `IntegrationError` if the ranks would not activate the
    DeepSpeed integration.
    """
    reason = _child_activation.missing_activation_reason()
    if reason:
        raise IntegrationError(f"{reason}.")
    accelerator = activate().accelerator
    conflicts = autoload_conflicts(accelerator.backend, read_settings().probe_timeout)
    if conflicts:
        sys.stderr.write(f"{isolation_reason(conflicts)}\n\n")
    os.environ.update(import_variables(accelerator.backend, conflicts))
    # The launcher's parser shows this name in its help, and its autotuner repeats the command.
    sys.argv[:] = ["accel deepspeed", *arguments]
    from deepspeed.launcher import runner

    launcher_arguments = list(arguments)
    parsed_arguments = runner.parse_args(launcher_arguments)
    # By default, the launcher adds `--local_rank` to the script's arguments.
    if not _may_accept_local_rank(parsed_arguments):
        launcher_arguments.insert(0, "--no_local_rank")
    runner.main(launcher_arguments)


def _may_accept_local_rank(parsed: argparse.Namespace) -> bool:
    """Return whether the script may accept the argument `--local_rank`, which the launcher adds.

    Returns False only for a script whose source does not contain that name, because such a script may end
    with "unrecognized arguments". Each rank has its number in the variable `LOCAL_RANK` in any case.
    """
    if parsed.module or parsed.no_python:
        return True
    try:
        source = Path(parsed.user_script).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return True
    # Matches both spellings of the argument: `--local_rank` and `--local-rank`.
    return re.search("local[_-]rank", source) is not None
