"""DeepSpeed's own launcher, with the integration activated in every process that it starts."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from accel_core.errors import IntegrationError
from accel_core.explain.autoload import autoload_conflicts
from accel_core.settings import read as read_settings
from accel_train.deepspeed import _children, activate
from accel_train.launch.environment import for_ranks, why_kept

__all__ = ["launch"]


def launch(arguments: Sequence[str]) -> None:
    """Run DeepSpeed's launcher on `arguments`. If a rank fails, end this process with the rank's status.

    Raises what `activate()` raises, and `IntegrationError` if the ranks would not activate the integration.
    """
    if reason := _children.obstacle():
        raise IntegrationError(f"{reason}.")
    accelerator = activate().accelerator
    spoiled = autoload_conflicts(accelerator.backend, read_settings().probe_timeout)
    if spoiled:
        sys.stderr.write(f"{why_kept(spoiled)}\n\n")
    os.environ.update(for_ranks(accelerator.backend, spoiled))
    # The launcher's parser takes its name from here, and its autotuner repeats the command.
    sys.argv[:] = ["accel deepspeed", *arguments]
    from deepspeed.launcher.runner import main

    main(list(arguments))
